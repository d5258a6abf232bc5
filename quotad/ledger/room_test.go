package ledger

import (
	"fmt"
	"testing"
)

// TestSharedChildMakesNoRoom: the child that names share when there are too many does not give its place to one of them, or
// there would be one too many when it is needed again.
func TestSharedChildMakesNoRoom(t *testing.T) {
	l := New(Config{})
	err := l.Define(1, []Spec{{Scope: "end_user", Owner: "t", Kind: Requests, Each: EachName, Limit: 600}}, Fairness{})
	if err != nil {
		t.Fatal(err)
	}
	users := l.Resources()[0].ID
	seq, name := uint64(0), 0
	ask := func(names int) {
		seq++
		l.Enter(1 + seq)
		r := Renew{Identity: "s", Incarnation: 7, Seq: seq}
		for range names {
			name++
			r.Asks = append(r.Asks, Ask{ID: uint64(name), Needs: []Need{{Resource: users, Amount: 1, Name: fmt.Sprint(name)}}})
		}
		l.Renew(r)
		if err := l.Check(); err != nil {
			t.Fatalf("with %d names: %v", name, err)
		}
	}
	for name < namesMax {
		ask(256)
	}
	// The shared one is made and is the oldest, idle and full when further names come.
	seq++
	l.Enter(1 + seq)
	l.Renew(Renew{Identity: "s", Incarnation: 8, Seq: 1, Asks: []Ask{{ID: 1, Needs: []Need{{Resource: users, Amount: 1}}}}})
	l.Fence(8)
	l.Advance(1_000)
	for _, kid := range l.Children(users) {
		if kid.Name != "" {
			l.use(l.resources[kid.ID])
		}
	}
	l.Advance(5_000)
	ask(1)
	ask(1)
	if n := l.Resources()[0].Children; n != namesMax+1 {
		t.Errorf("%d children, want %d", n, namesMax+1)
	}
}
