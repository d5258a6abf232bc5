package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// pausedMost is how long a rolling upgrade may leave everybody without a leader. Nodes of the version before do not know
// the greeting of this one, so from the moment that the second node is stopped until it is back there is no majority.
const pausedMost = 10 * time.Second

// TestRollingUpgrade brings a cluster of the version before to this one, node by node and then the sidecars, under load;
// and back again, node by node, as far as the version before can read what there is then. Where it cannot it must say so
// and change nothing.
func TestRollingUpgrade(t *testing.T) {
	long(t)
	old, err := earlier()
	if err != nil {
		t.Skipf("the version before is not there: %v", err)
	}
	c := startClusterOf(t, 2, "1000", old)
	w := c.startTraffic()
	c.pass(time.Second)
	for _, nd := range c.nodes {
		nd.term(t)
		delete(c.exe, nd.id)
		c.startNode(nd)
		c.awaitLeader(nil)
		c.pass(time.Second)
	}
	for _, sc := range c.sidecars {
		delete(c.exe, sc.name)
		sc.term(t)
		c.startCar(sc)
		c.await(sc)
	}
	c.pass(2 * time.Second)
	c.alike()

	for _, nd := range c.nodes {
		nd.term(t)
		c.exe[nd.id] = old
		nd.process = c.spawn(nd.id, "quotad", nd.args)
		said := c.caughtUp(nd)
		t.Logf("%s with the version before: %s", nd.id, said)
		if nd.dead() {
			if !strings.Contains(said, "newer version") {
				t.Errorf("%s does not say that the state is of a newer version", nd.id)
			}
			delete(c.exe, nd.id)
			c.startNode(nd)
			break
		}
		c.pass(time.Second)
	}
	c.pass(2 * time.Second)
	for _, nd := range c.nodes {
		nd.term(t)
		delete(c.exe, nd.id)
		c.startNode(nd)
		c.awaitLeader(nil)
	}
	c.heal()
	w.end()
	c.settled(exact)
	w.linear()
	c.alike()
	c.sound()
	for why, n := range w.refusals() {
		// A sidecar that restarts is away from its callers for a moment and has no lease in the first; and see pausedMost.
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
