package system

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fire"
)

// nemesis is one way to trouble a cluster under load.
type nemesis struct {
	name    string
	dollars string   // cap of the app's team; 1000 if empty
	always  []string // faults that every node has all the time, see bench/fault
	refused []string // what callers may be told because of it, apart from what their limits say
	over    int64    // by how many permille the narrow key may pass its limit; 30 if 0
	play    func(c *cluster) (times int)
}

// often makes snapshots and writes of the state file things of every second.
const often = "often 100"

// nemeses are played one after another, each with a cluster of its own. One that is new needs a line here.
var nemeses = []nemesis{
	{name: "leader killed", play: func(c *cluster) int {
		return c.times(4, func(int) {
			old := c.awaitLeader(nil)
			old.kill()
			c.awaitLeader(old)
			c.pass(time.Second)
			c.startNode(old)
			c.pass(time.Second)
		})
	}},
	{name: "followers killed", play: func(c *cluster) int {
		return c.times(4, func(i int) {
			followers := c.others(c.awaitLeader(nil))
			one := followers[i%2]
			one.kill()
			c.pass(2 * time.Second)
			c.startNode(one)
			c.pass(time.Second)
		})
	}},
	{name: "leader cut off", play: func(c *cluster) int {
		return c.times(3, func(int) {
			old := c.awaitLeader(nil)
			c.part(old, fire.Cut, fire.Cut)
			c.awaitLeader(old)
			c.pass(2 * time.Second)
			c.part(old, fire.Trouble{}, fire.Trouble{})
			c.pass(time.Second)
		})
	}},
}

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
	if n.dollars == "" {
		n.dollars = "1000"
	}
	c := startCluster(t, 2, n.dollars, n.always...)
	w := c.startTraffic()
	c.pass(time.Second)
	times := n.play(c)
	c.heal()
	w.end()

	c.settled()
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
	if n.over == 0 {
		n.over = 30
	}
	if r.overshoot > n.over {
		t.Errorf("the narrow key passed its limit by %d permille", r.overshoot)
	}
	t.Log("\n" + table([]row{r}))
	return r
}

// times does something so many times.
func (c *cluster) times(n int, do func(i int)) int {
	for i := range n {
		do(i)
	}
	return n
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
