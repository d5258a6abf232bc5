package system

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnderFire plays every nemesis with load running, and then checks everything that must hold.
func TestUnderFire(t *testing.T) {
	long(t)
	var rows []row
	for _, n := range nemeses {
		t.Run(strings.ReplaceAll(n.name, " ", "_"), func(t *testing.T) { rows = append(rows, underFire(t, n)) })
	}
	t.Log("\n" + table(rows))
}

func underFire(t *testing.T, n nemesis) row {
	began := time.Now()
	c := startCluster(t, 2, cmp.Or(n.dollars, "1000"), n.always...)
	w := c.startTraffic()
	c.pass(time.Second)
	times := n.play(c)
	c.heal()
	w.end()

	c.settled(n.books)
	w.linear()
	c.alike()
	c.sound()
	r := row{
		name: n.name, times: times, answers: w.ok["app"] + w.ok["narrow"], refused: w.refusals(), gap: w.gap,
		overshoot: c.overshoot(), settles: int(c.fake.Witness(0).Totals.Completed), took: time.Since(began),
	}
	r.history, _ = w.history.Len()
	for why := range r.refused {
		if !slices.ContainsFunc(n.refused, func(may string) bool { return strings.Contains(why, may) }) {
			t.Errorf("%d times %s: nobody may be refused because of this", r.refused[why], why)
		}
	}
	if r.answers == 0 || w.ok["app"] == 0 || w.ok["narrow"] == 0 {
		t.Errorf("answers %v: there was no load", w.ok)
	}
	if r.gap > cmp.Or(n.gap, gapMost) {
		t.Errorf("for %s nobody was answered", r.gap)
	}
	if r.overshoot > cmp.Or(n.over, overMost) {
		t.Errorf("the narrow key passed its limit by %d permille", r.overshoot)
	}
	t.Log("\n" + table([]row{r}))
	return r
}

// pass lets time pass under load: a nemesis is a matter of time.
func (c *cluster) pass(d time.Duration) {
	c.t.Helper()
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
		c.t.Fatal("the test ended")
	}
}
