package system

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// problems are what a sidecar's /status says is wrong.
func (s *stack) problems(sc *sidecar) []string { s.t.Helper(); return s.status(sc).Problems }

func (s *stack) problem(sc *sidecar, text string) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.problems(sc), func(p string) bool { return strings.Contains(p, text) })
}

// exact waits until the provider's count, the usage rows and the budget agree to the nano-dollar, with nothing held or
// in doubt.
func (s *stack) exact() {
	s.t.Helper()
	w := s.fake.Witness(0).Totals
	want := usage{w.Completed, w.PromptTokens, w.OutputTokens, w.CostNano}
	var got usage
	var b budget
	defer func() {
		if s.t.Failed() {
			s.t.Logf("witness %+v, usage %+v, budget %+v", want, got, b)
		}
	}()
	s.eventually("usage and budget agree with the witness", func() bool {
		got, b = s.usageCLI(), s.budget("t")
		return got == want && b.Settled == want.cost && b.Held == 0 && b.Suspense == 0 &&
			b.Settled+b.Outstanding+b.Free == b.Cap
	})
	if s.fake.Witness(0).Totals.Cancelled != 0 {
		s.t.Error("a request was cancelled: the counts above say nothing of it")
	}
}

// served sends n requests that must be answered.
func (s *stack) served(sc *sidecar, n int) {
	s.t.Helper()
	for range n {
		if a := s.chat(sc, say("tokens=10", `,"max_tokens":10`)); a.status != 200 {
			s.t.Fatalf("%d %s %v", a.status, a.body, a.err)
		}
	}
}

// TestSidecarDiskFull fills the disk under a running sidecar, and kills it there.
func TestSidecarDiskFull(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		whole := func(base string) string {
			return strings.Replace(org(base, "{ monthly: 100, hard: true }", "{ rpm: 600000 }"), "chat: { targets:", "chat: { reserve: cap, targets:", 1)
		}
		s := start(t, 1, 0, whole)
		small := disk(t, 32<<20)
		sc := s.startSidecar("sidecar-0", filepath.Join(small, "data"))
		s.served(sc, 5)
		if got := s.problems(sc); len(got) != 0 {
			t.Fatalf("problems before: %v", got)
		}
		free := fill(t, small)

		// The journal has its room, so everything that is admitted is accounted for.
		s.served(sc, 100)
		if !s.problem(sc, "usage events cannot be written") || s.problem(sc, "journal") {
			t.Errorf("problems %v", s.problems(sc))
		}
		for name, is := range map[string]func(float64) bool{
			"sluice_usage_unwritten":    func(v float64) bool { return v > 50 },
			"sluice_usage_write_errors": func(v float64) bool { return v > 50 },
			"sluice_journal_ok":         func(v float64) bool { return v == 1 },
		} {
			if v := s.metric(sc, name); !is(v) {
				t.Errorf("%s is %g", name, v)
			}
		}
		s.exact()
		sc.Kill()

		// A successor on the full disk serves too: configuration and journal are there already.
		s.restart(sc)
		s.served(sc, 30)
		s.exact()
		if !s.problem(sc, "usage events cannot be written") || s.problem(sc, "journal") {
			t.Errorf("problems of the successor: %v", s.problems(sc))
		}

		// A configuration that has no room is in force all the same, and is on disk once there is room.
		s.apply(strings.Replace(whole(s.fakeURL), "model: m1", "model: m2", 1))
		s.eventually("a snapshot that is not on disk", func() bool { return s.problem(sc, "keep snapshot") })
		version := s.metric(sc, "sluice_config_version")
		free()
		s.eventually("the waiting events are on disk", func() bool { return s.metric(sc, "sluice_usage_unwritten") == 0 })
		s.eventually("no problems any more", func() bool { return len(s.problems(sc)) == 0 })
		s.exact()
		nd := s.nodes[0]
		nd.Kill()
		sc.Kill()
		sc.run(t)
		if got := s.metric(sc, "sluice_config_version"); got != version {
			t.Errorf("without quotad configuration %g is in force, want %g", got, version)
		}
		nd.process = run(t, nd.id, "quotad", nd.args...)
		s.eventually("it is connected again", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })

		// Killed with requests running, on a disk that is full again: they count as spent in full.
		fill(t, small)
		s.served(sc, 30)
		s.exact()
		before := s.budget("t").Settled
		var streams sync.WaitGroup
		for range 5 {
			streams.Go(func() { s.chat(sc, say("tokens=100 gap=1s", `,"stream":true,"max_tokens":100`)) })
		}
		s.eventually("5 streams", func() bool { return s.fake.Witness(0).OpenStreams == 5 })
		sc.Kill()
		streams.Wait()
		if err := os.Remove(filepath.Join(small, "ballast")); err != nil {
			t.Fatal(err)
		}
		s.restart(sc)
		s.eventually("nothing is in doubt", func() bool {
			b := s.budget("t")
			return b.Suspense == 0 && b.Held == 0 && b.Settled > before && s.usageCLI().cost == b.Settled
		})
		s.served(sc, 5)
		// 100 tokens at $10 per million, and the prompt.
		if each := (s.budget("t").Settled - before) / 5; each < 1_000_000 || each > 1_300_000 {
			t.Errorf("a cut stream counts for %d nano-dollars, want what it had reserved", each)
		}
		if got := s.problems(sc); len(got) != 0 {
			t.Errorf("problems at the end: %v", got)
		}
	})
}

// TestSidecarStartsOnFullDisk: without room for a journal a sidecar serves and says so, and what it used is never lost:
// it is settled, or in suspense.
func TestSidecarStartsOnFullDisk(t *testing.T) {
	long(t)
	withMounts(t, func(t *testing.T) {
		s := start(t, 1, 0, func(base string) string { return org(base, "{ monthly: 100, hard: true }", "{ rpm: 600000 }") })
		small := disk(t, 32<<20)
		dir := filepath.Join(small, "data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		free := fill(t, small)
		sc := s.startSidecar("sidecar-0", dir)
		s.served(sc, 30)
		for _, want := range []string{"no lease journal", "usage events cannot be written", "snapshot"} {
			if !s.problem(sc, want) {
				t.Errorf("problems %v lack %q", s.problems(sc), want)
			}
		}
		if v := s.metric(sc, "sluice_journal_ok"); v != 0 {
			t.Errorf("sluice_journal_ok is %g", v)
		}
		s.exact()
		sc.Kill()
		free()
		s.restart(sc)
		used := s.fake.Witness(0).Totals.CostNano
		s.eventually("what the dead one had is in suspense", func() bool {
			b := s.budget("t")
			return b.Suspense > 0 && b.Settled == used && b.Settled+b.Outstanding+b.Suspense+b.Free == b.Cap
		})
		s.served(sc, 5)
		if got := s.problems(sc); len(got) != 0 {
			t.Errorf("problems at the end: %v", got)
		}
	})
}
