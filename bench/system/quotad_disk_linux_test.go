package system

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// try runs an operator verb at one node, once.
func (s *stack) try(nd *node, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(binaries, "quotad"), append(args, "--addr", "http://"+nd.admin)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// back starts a node again if its full disk has ended it, as a supervisor would.
func (s *stack) back(nd *node) {
	s.t.Helper()
	select {
	case <-nd.Done:
		s.t.Logf("%s had ended", nd.id)
		nd.process = run(s.t, nd.id, "quotad", nd.args...)
	default:
	}
}

// TestQuotadDiskFull fills the disk of the only node: it must not say yes to anything it cannot keep, and must have
// lost nothing once there is room again.
func TestQuotadDiskFull(t *testing.T) {
	withMounts(t, func(t *testing.T) {
		small := disk(t, 16<<20)
		whole := func(base string) string {
			return org(base, "{ monthly: 100, hard: true }", "{ rpm: 600000 }")
		}
		s := startOn(t, []string{filepath.Join(small, "data")}, 1, whole)
		nd, sc := s.nodes[0], s.sidecars[0]
		s.served(sc, 20)
		s.exact()
		free := fill(t, small)
		file := s.written(strings.Replace(whole(s.fakeURL), "monthly: 100", "monthly: 200", 1))
		yes := int64(100)
		s.eventually("the node cannot write", func() bool {
			s.served(sc, 1) // an idle sidecar would have handed its leases back
			out, err := s.try(nd, "apply", "-f", file, "--leader-wait", "0s")
			if err == nil {
				yes = 200 // there was a little room left
				file = s.written(strings.Replace(whole(s.fakeURL), "monthly: 100", "monthly: 300", 1))
			} else {
				t.Logf("apply: %s", out)
			}
			return err != nil
		})
		// The sidecar has leases, and its share once these have ended. In between it may refuse, and what comes faster
		// than the share flows.
		served := 0
		s.eventually("it serves without quotad", func() bool {
			a := s.chat(sc, say("tokens=10", `,"max_tokens":10`))
			if a.status == 200 {
				served++
			} else if a.code() != "quota_unavailable" {
				t.Fatalf("%d %s %v", a.status, a.body, a.err)
			}
			return served == 20
		})
		free()
		s.back(nd)
		s.leader()
		s.eventually("the sidecar is back", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })
		s.served(sc, 20)
		s.exact()
		if got := s.budget("t").Cap; got != yes*1_000_000_000 && got != (yes+100)*1_000_000_000 {
			t.Errorf("the cap is %d: what was acknowledged is lost", got)
		}
		nd.Kill()
		nd.process = run(t, nd.id, "quotad", nd.args...)
		s.leader()
		s.exact()
	})
}

// TestLeaderDiskFull fills the disk of the leader of three: another must lead, and no caller may notice. It is a long one
// for the reason of TestLeaderKilledUnderLoad.
func TestLeaderDiskFull(t *testing.T) {
	long(t)
	withMounts(t, func(t *testing.T) {
		disks := []string{disk(t, 16<<20), disk(t, 16<<20), disk(t, 16<<20)}
		var dirs []string
		for _, d := range disks {
			dirs = append(dirs, filepath.Join(d, "data"))
		}
		s := startOn(t, dirs, 2, func(base string) string {
			return org(base, "{ monthly: 100, hard: true }", "{ rpm: 600000 }")
		})
		serve := func() {
			for _, sc := range s.sidecars {
				s.served(sc, 20)
			}
		}
		serve()
		s.exact()
		old := s.leader()
		var free func()
		for i, nd := range s.nodes {
			if nd == old {
				free = fill(t, disks[i])
			}
		}
		began := time.Now()
		s.eventually("another leads", func() bool { serve(); return s.leader() != old })
		t.Logf("another node leads %s after the disk was full", time.Since(began).Round(10*time.Millisecond))
		serve()
		s.exact()
		free()
		s.back(old)
		serve()
		s.exact()
		// The old one must have caught up: without another it has to carry on.
		for _, nd := range s.nodes {
			if nd != old && nd != s.leader() {
				nd.Kill()
				break
			}
		}
		s.eventually("a leader with the old one's vote", func() bool { _, err := s.try(old, "status"); return err == nil })
		serve()
		s.exact()
	})
}
