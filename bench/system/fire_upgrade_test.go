package system

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// before is the version that clusters come from and go back to.
const before = "4ae9363"

// earlier builds quotad and sidecar of the version before, from the repository's history, once.
var earlier = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(binaries, "earlier")
	source := filepath.Join(dir, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", err
	}
	for _, step := range []string{
		"git -C ../.. cat-file -e " + before + "^{commit}",
		"git -C ../.. archive " + before + " | tar -x -C " + source,
		"cd " + source + " && go build -buildvcs=false -o " + dir + "/ ./sidecar/cmd/sidecar ./quotad/cmd/quotad",
	} {
		if out, err := exec.Command("sh", "-c", step).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", step, err, out)
		}
	}
	return dir, nil
})

// pausedMost is how long a rolling upgrade may leave everybody without a leader: as long as a failover.
const pausedMost = 2500 * time.Millisecond

// orgBefore is fireOrg with a deployment of which the version before keeps the limits, and does not limit by them.
func orgBefore(base, dollars string) string {
	return strings.Replace(fireOrg(base, dollars), "model: m2,", "model: m2, limits: { rpm: 600000 },", 1)
}

// orgAfter has what the version before does not know, and limits of one more deployment.
func orgAfter(base, dollars string) string {
	org := strings.Replace(orgBefore(base, dollars), "model: m1,", "model: m1, limits: { rpm: 600000 },", 1)
	return strings.Replace(org, "  t: { ", "  t: { run_budget: { max: 5 }, ", 1)
}

// refuses sees to it that a node of this version leads, while another is of the one before, and that it refuses what that
// one does not know.
func (c *cluster) refuses(old *node) {
	c.t.Helper()
	if c.awaitLeader(nil) == old {
		old.Signal(c.t, syscall.SIGSTOP)
		c.awaitLeader(old)
		old.Signal(c.t, syscall.SIGCONT)
	}
	for _, args := range [][]string{
		{"apply", "-f", c.written(orgAfter(c.fakeURL, "1000"))},
		{"member", "add", "quotad-9=127.0.0.1:1/127.0.0.1:2/127.0.0.1:3"},
	} {
		said := ""
		c.eventually("a new leader refuses: "+args[0], func() bool {
			leader := c.awaitLeader(nil)
			out, err := exec.Command(filepath.Join(binaries, "quotad"), append(args, "--addr", "http://"+leader.admin)...).CombinedOutput()
			said = string(out)
			return err != nil && !strings.Contains(said, "lead")
		})
		if !strings.Contains(said, "node "+old.id+" runs an older build") {
			c.t.Errorf("%s: %s", strings.Join(args, " "), said)
		}
	}
}

// TestRollingUpgrade brings a cluster of the version before to this one, node by node and then the sidecars, under load.
// Until the last node is upgraded each can go back, and what the version before does not know is refused. After that it
// says that it cannot read what there is.
func TestRollingUpgrade(t *testing.T) {
	long(t)
	old, err := earlier()
	if err != nil {
		t.Skipf("the version before is not there: %v", err)
	}
	c := startClusterOf(t, 2, "1000", old)
	c.apply(orgBefore(c.fakeURL, "1000"))
	w := c.startTraffic()
	lost := c.makeCar("sidecar-lost", filepath.Join(t.TempDir(), "data"))
	c.exe[lost.name] = old
	c.startCar(lost)
	c.await(lost)
	c.pass(time.Second)
	for i, nd := range c.nodes {
		nd.Term(t)
		delete(c.exe, nd.id)
		c.startNode(nd)
		c.awaitLeader(nil)
		if i == 0 {
			// Back again: nothing is written yet that the version before cannot read.
			nd.Term(t)
			c.exe[nd.id] = old
			c.startNode(nd)
			if said := c.caughtUp(nd); nd.Dead() {
				t.Errorf("the version before does not take the node back: %s", said)
			}
			nd.Term(t)
			delete(c.exe, nd.id)
			c.startNode(nd)
			c.awaitLeader(nil)
		}
		c.pass(time.Second)
		if i == len(c.nodes)-2 {
			c.refuses(c.nodes[len(c.nodes)-1])
			// It is silent for good from here on: nothing that is written of it later hides what nodes made differently.
			for range 5 {
				if a := c.chat(lost, say("tokens=5", "")); a.status != http.StatusOK {
					t.Errorf("a sidecar in a mixed cluster: %+v", a)
				}
			}
			lost.Kill()
			c.pass(12 * time.Second) // it lapses after 11.1
		}
	}
	for _, sc := range c.sidecars {
		if sc == lost {
			continue // its journal is for the version before
		}
		delete(c.exe, sc.name)
		sc.Term(t)
		c.startCar(sc)
		c.await(sc)
	}
	// Sidecars too must know what a configuration makes use of.
	c.apply(orgAfter(c.fakeURL, "1000"))
	for _, deployment := range []string{"main", "narrow"} {
		if pools := c.quotad("pool", "show", deployment); !strings.Contains(pools, "540000") {
			t.Errorf("the pool of %s: %s", deployment, pools)
		}
	}
	if a := c.call(t.Context(), c.sidecars[0], "/v1/chat/completions", appKey, say("tokens=5", ""), "x-gw-run-id", "r"); a.status != http.StatusOK {
		t.Errorf("a request of a run: %+v", a)
	}
	c.pass(2 * time.Second)
	c.alike()

	// There is no way back now: the version before says so and changes nothing.
	nd := c.nodes[0]
	nd.Term(t)
	c.exe[nd.id] = old
	nd.process = c.spawn(nd.id, "quotad", nd.args)
	if said := c.caughtUp(nd); !nd.Dead() || !strings.Contains(said, "newer version") {
		t.Errorf("%s with the version before: %s", nd.id, said)
	}
	delete(c.exe, nd.id)
	c.heal()
	w.end()
	c.settled(exact)
	w.linear()
	c.alike()
	c.sound()
	for why, n := range w.refusals() {
		// A sidecar that restarts is away from its callers for a moment and has no lease in the first.
		if !strings.Contains(why, "connect") && !strings.Contains(why, away) && !strings.Contains(why, "no_answer") {
			t.Errorf("%d times %s", n, why)
		}
	}
	if w.gap > pausedMost {
		t.Errorf("for %s nobody was answered", w.gap)
	}
	t.Log("\n" + table([]row{{name: "rolling upgrade and back", times: 9, answers: w.ok["app"] + w.ok["narrow"], refused: w.refusals(),
		gap: w.gap, overshoot: c.overshoot(), settles: int(c.fake.Witness(0).Totals.Completed)}}))
}
