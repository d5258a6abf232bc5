package system

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// backup saves the state to a file.
func (s *stack) backup() string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "backup")
	s.quotad("backup", "-o", file)
	return file
}

// verb runs a verb once and returns what it printed, whatever came of it.
func (s *stack) verb(nd *node, args ...string) (string, error) {
	return runVerb(append(args, "--addr", nd.admin)...)
}

func runVerb(args ...string) (string, error) {
	b, err := exec.Command(filepath.Join(binaries, "quotad"), args...).CombinedOutput()
	return string(b), err
}

// spend has callers spend a budget until each is told that it is spent. It returns at once; wait waits for the end.
func (s *stack) spend(callers int, body string) (wait func()) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for deadline := time.Now().Add(4 * patience); time.Now().Before(deadline); {
				a := s.chat(s.sidecars[i%len(s.sidecars)], body)
				switch {
				case a.code() == "budget_exhausted":
					return
				case a.status == 200:
				case a.status == 429, a.status == 503, a.err != nil: // the hold after a restore; a sidecar that restarts
					<-time.After(100 * time.Millisecond)
				default:
					s.t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
			s.t.Error("the budget is never spent")
		})
	}
	return all.Wait
}

// patience bounds one caller.
const patience = wait

func (s *stack) untilSpent(nano int64) {
	s.t.Helper()
	s.eventually("so much is spent", func() bool { return s.fake.Witness(0).Totals.CostNano >= nano })
}

// TestRestoreUnderLoad restores a backup twice while callers spend a hard budget of $1. What was spent after the backup is
// not spent again: neither what a sidecar that lived on knows, nor what one that was replaced has left in its usage.
func TestRestoreUnderLoad(t *testing.T) {
	long(t)
	s := start(t, 3, 2, func(base string) string { return org(base, "{ monthly: 1, hard: true }", "{ rpm: 1000000 }") })
	done := s.spend(20, say("tokens=300 first=50ms gap=1ms", `,"stream":true,"max_tokens":400`))
	s.untilSpent(100_000_000)
	file := s.backup()
	s.untilSpent(250_000_000)
	s.sidecars[1].Term(t) // its final totals go to a state that will be gone
	s.restart(s.sidecars[1])
	s.untilSpent(400_000_000)
	before := s.fake.Witness(0).Totals.CostNano
	out := s.quotad("restore", file)
	if !strings.Contains(out, "recorded nowhere") || !strings.Contains(out, "team   t") {
		t.Errorf("the bound is not printed:\n%s", out)
	}
	t.Logf("restored at %d:\n%s", before, out)
	s.untilSpent(before + 100_000_000)
	t.Logf("again at %d: %s", s.fake.Witness(0).Totals.CostNano, s.quotad("restore", file))
	done()
	spent := s.fake.Witness(0).Totals.CostNano
	b := s.budget("t")
	t.Logf("spent %d, books %+v", spent, b)
	if spent > 1_010_000_000 {
		t.Errorf("spent %d nano-dollars of 1,000,000,000", spent)
	}
	if spent < 900_000_000 {
		t.Errorf("only %d nano-dollars could be spent", spent)
	}
	if n := s.metric(s.sidecars[0], "sluice_fences_total"); n != 0 {
		t.Errorf("the sidecar that lived through it was fenced %v times", n)
	}
	s.eventually("the books know what was spent", func() bool { return s.budget("t").Settled >= spent })
	for _, nd := range s.nodes {
		s.eventually("the books balance on every node", func() bool {
			b, err := get("http://" + nd.admin + "/metrics")
			return err == nil && readMetric(b, "sluice_conservation_violations_total") == 0
		})
	}
}

// TestNewClusterFromABackup: every node's disk is lost. A new cluster takes the backup over; the sidecar is not
// restarted, and what it spent since the backup is known again. What is not a whole backup of the right cluster is
// refused and changes nothing.
func TestNewClusterFromABackup(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 1, hard: true }", "{ rpm: 600 }") })
	nd, sc := s.nodes[0], s.sidecars[0]
	chat := func() answer { return s.chat(sc, say("tokens=300", `,"max_tokens":400`)) }
	for range 3 {
		if a := chat(); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	file, atBackup := s.backup(), s.fake.Witness(0).Totals.CostNano
	for range 5 {
		if a := chat(); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	s.quotad("key", "create", "later", "--team", "t") // lost with the disks
	spent := s.fake.Witness(0).Totals.CostNano
	nd.Kill()
	if err := os.RemoveAll(nd.dir); err != nil {
		t.Fatal(err)
	}
	nd.process = run(t, nd.id, "quotad", nd.args...)
	s.leader()

	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 0x10
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"cut short", good[:len(good)*2/3], "cut short"},
		{"without its end", good[:len(good)-1], "cut short"},
		{"a bit flipped", flipped, "nothing was restored"},
		{"something else", []byte("version: 1\n"), "does not begin like one"},
		{"empty", nil, "does not begin like one"},
		{"with more at its end", append(bytes.Clone(good), 'x'), "follows its end"},
	} {
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(bad, tt.b, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := s.verb(nd, "restore", bad); err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %v %s", tt.name, err, out)
		}
	}
	if out := s.quotad("get", "team"); strings.Contains(out, "monthly") {
		t.Errorf("a bad backup changed something: %s", out)
	}

	s.quotad("restore", file)
	s.eventually("the sidecar is served again", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })
	s.eventually("requests are answered", func() bool { return chat().status == 200 })
	s.eventually("what was spent since the backup is known", func() bool {
		return s.budget("t").Settled >= s.fake.Witness(0).Totals.CostNano
	})
	if now := s.fake.Witness(0).Totals.CostNano; now <= spent {
		t.Errorf("spent %d, and %d before", now, spent)
	}
	// What was settled before the backup and came in as usage after it counts twice: better than not at all.
	if b, now := s.budget("t"), s.fake.Witness(0).Totals.CostNano; b.Settled > now+atBackup {
		t.Errorf("settled %d, spent %d", b.Settled, now)
	}
	if out := s.quotad("history"); !strings.Contains(out, "restored from a backup") {
		t.Errorf("the history does not tell: %s", out)
	}

	// This cluster has a state of its own now: another's backup needs a word.
	other := start(t, 1, 0, func(base string) string { return org(base, "{ monthly: 2, hard: true }", "{ rpm: 600 }") })
	foreign := other.backup()
	if out, err := s.verb(nd, "restore", foreign); err == nil || !strings.Contains(out, "--other-cluster") {
		t.Errorf("a backup of another cluster: %v %s", err, out)
	}
	if b := s.budget("t"); b.Cap != 1_000_000_000 {
		t.Errorf("it changed the cap to %d", b.Cap)
	}
	s.quotad("restore", "--other-cluster", foreign)
	if b := s.budget("t"); b.Cap != 2_000_000_000 {
		t.Errorf("cap %d", b.Cap)
	}
	s.eventually("the sidecar goes on", func() bool { return chat().status == 200 })
}
