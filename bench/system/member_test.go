package system

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestDeadNodeIsReplaced: the machine of one of three nodes is lost under load. The node is removed, another one joins
// elsewhere and takes part; then the leader is removed too. No request fails, the sidecar finds nodes that it was never
// told of, and a removed node says so and stops, also when it is started again.
func TestDeadNodeIsReplaced(t *testing.T) {
	long(t)
	s := start(t, 3, 1, func(base string) string { return org(base, "{ monthly: 1000 }", "{ rpm: 600000 }") })
	sc := s.sidecars[0]
	var stop atomic.Bool
	var callers sync.WaitGroup
	var served atomic.Int64
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				if a := s.chat(sc, say("tokens=3 first=10ms", "")); a.status != 200 {
					t.Errorf("a request failed: %d %s %v", a.status, a.body, a.err)
					return
				}
				served.Add(1)
			}
		})
	}
	leader := s.leader()
	var dead *node
	for _, nd := range s.nodes {
		if nd != leader {
			dead = nd
		}
	}
	dead.Kill()
	if out, err := s.verb(leader, "member", "remove", "nobody"); err == nil || !strings.Contains(out, `called "nobody"`) {
		t.Errorf("an unknown node: %v %s", err, out)
	}
	s.quotad("member", "remove", dead.id)
	s.quotad("member", "remove", dead.id) // again
	nd := &node{id: "quotad-3", raft: freePort(t), plane: freePort(t), admin: freePort(t), dir: filepath.Join(t.TempDir(), "data")}
	nd.args = []string{
		"serve", "--dev", "--id", nd.id, "--data-dir", nd.dir, "--listen", nd.plane, "--raft-listen", nd.raft, "--admin-listen", nd.admin,
		"--key-file", flag(leader.args, "--key-file"), "--join",
	}
	nd.process = run(t, nd.id, "quotad", nd.args...)
	where := nd.id + "=" + nd.raft + "/" + nd.plane + "/" + nd.admin
	if out := s.quotad("member", "add", where); !strings.Contains(out, "voter") {
		t.Errorf("it does not vote: %s", out)
	}
	s.quotad("member", "add", where) // again
	if out, err := s.verb(leader, "member", "add", "quotad-9="+nd.raft+"/127.0.0.1:1/127.0.0.1:2"); err == nil || !strings.Contains(out, "another node is at that address") {
		t.Errorf("an address that is taken: %v %s", err, out)
	}
	s.nodes = append(s.nodes, nd)
	list := s.quotad("member", "list")
	if strings.Contains(list, dead.id) || !strings.Contains(list, nd.id) {
		t.Errorf("members:\n%s", list)
	}

	// The dead machine comes back: it is told, and stops.
	back := launch(t, dead.id, "quotad", dead.args...)
	<-back.Done
	b, err := os.ReadFile(back.Log)
	if err != nil || !strings.Contains(string(b), "removed from the cluster") {
		t.Errorf("the removed node says: %s", b)
	}
	s.nodes = without(s.nodes, dead)

	s.quotad("member", "remove", leader.id)
	<-leader.Done
	if b, err := os.ReadFile(leader.Log); err != nil || !strings.Contains(string(b), "removed from the cluster") {
		t.Errorf("the leader says: %s", b)
	}
	s.nodes = without(s.nodes, leader)
	s.leader()
	s.eventually("the sidecar is served by who is left", func() bool { return s.metric(sc, "sluice_quotad_connected") == 1 })
	n := served.Load()
	s.eventually("requests go on", func() bool { return served.Load() > n+50 })
	stop.Store(true)
	callers.Wait()
	t.Logf("%d requests", served.Load())

	// Of the two that are left none can go while the other does not answer.
	gone := s.leader()
	other := without(s.nodes, gone)[0]
	other.Kill()
	<-time.After(3 * time.Second) // until its silence shows
	if out, _ := s.verb(gone, "member", "remove", gone.id); !strings.Contains(out, "too few") && !strings.Contains(out, "leader") {
		t.Errorf("the last one that answers is removed: %s", out)
	}
}

func without(nodes []*node, gone *node) (out []*node) {
	for _, nd := range nodes {
		if nd != gone {
			out = append(out, nd)
		}
	}
	return out
}

// flag returns the value of a flag.
func flag(args []string, name string) string {
	for i := range args {
		if args[i] == name {
			return args[i+1]
		}
	}
	return ""
}
