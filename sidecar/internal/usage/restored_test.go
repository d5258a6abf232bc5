package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRestoredQuotadIsToldAgain: a quotad that was restored is offered every event of the last weeks once more, also those
// of processes that ended long before it, and counts each once; after the next restart nothing is offered again.
func TestRestoredQuotadIsToldAgain(t *testing.T) {
	dir := t.TempDir()
	const runs, each = 3, 5
	q := newCounter(nil)
	run := func(name string) *Recorder {
		r := open(t, dir, name)
		q.r = r
		r.Connected(q)
		for range each {
			r.Record(event(10))
		}
		q.rounds(20)
		return r
	}
	for i := range runs {
		if err := run(fmt.Sprintf("run%d", i)).Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := run("last")
	if q.cost != (runs+1)*each*10 {
		t.Fatalf("counted %d", q.cost)
	}
	old := filepath.Join(dir, "ancient"+doneSuffix)
	if err := os.WriteFile(old, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Unix(0, 0).Add(-offerAgainMax-time.Hour), time.Unix(0, 0).Add(-offerAgainMax-time.Hour)); err != nil {
		t.Fatal(err)
	}

	// The backup has the first process's usage and half of this one's.
	restored := newCounter(r)
	restored.last["run0"] = each
	restored.last["last"] = 2
	r.Connected(restored)
	r.Epoch(7)
	restored.rounds(40)
	if want := int64((runs-1)*each*10 + (each-2)*10); restored.cost != want {
		t.Errorf("told of %d, want %d", restored.cost, want)
	}
	if _, err := os.Stat(old); err != nil {
		t.Errorf("an old file was offered: %v", err)
	}
	r.Epoch(7)
	batches := restored.batches
	restored.rounds(5)
	if restored.batches != batches {
		t.Error("it is offered twice in an epoch")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, "again")
	restored.r, batches = again, restored.batches
	again.Connected(restored)
	again.Epoch(7)
	restored.rounds(20)
	if restored.batches > batches+1 { // the last file of its predecessor, which that could not set aside
		t.Errorf("after a restart %d batches are offered again", restored.batches-batches)
	}
}
