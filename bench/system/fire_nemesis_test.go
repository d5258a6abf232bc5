package system

import (
	"syscall"
	"time"

	"github.com/sluice-gateway/sluice/bench/fire"
)

// nemesis is one way to trouble a cluster under load.
type nemesis struct {
	name    string
	dollars string        // cap of the app's team; 1000 if empty
	always  []string      // faults that every node has all the time, see bench/fault
	refused []string      // what callers may be told because of it, apart from what their limits say
	books   precision     // how exact the books must be in the end
	over    int64         // permille of the limit; overMost if 0
	gap     time.Duration // gapMost if 0
	play    func(c *cluster) (times int)
}

const (
	// often makes snapshots and writes of the state file things of every second.
	often = "often 100"
	// away is what a request is told that needs quotad while it is not there.
	away = "503 quota_unavailable"
)

// killed is what callers of a sidecar see that is killed.
var killed = []string{"connect", "no_answer", "cut"}

// Ways of a link. What is lost one way is held back, see fire.Trouble.
var (
	whole = fire.Trouble{}
	forth = fire.Trouble{CutForth: true}
	back  = fire.Trouble{CutBack: true}
)

// nemeses are played one after another, each with a cluster of its own. One that is new needs a line here.
var nemeses = []nemesis{
	{name: "leader killed", play: rounds(3, func(c *cluster, _ int) {
		old := c.awaitLeader(nil)
		old.Kill()
		c.awaitLeader(old)
		c.pass(time.Second)
		c.startNode(old)
		c.pass(time.Second)
	})},
	{name: "followers killed", play: rounds(3, func(c *cluster, i int) {
		one := c.others(c.awaitLeader(nil))[i%2]
		one.Kill()
		c.pass(2 * time.Second)
		c.startNode(one)
		c.pass(time.Second)
	})},
	{name: "all nodes killed", refused: []string{away}, gap: 8 * time.Second, play: rounds(3, func(c *cluster, _ int) {
		for _, nd := range c.nodes {
			nd.Kill()
		}
		c.revive()
		c.awaitLeader(nil)
		c.pass(2 * time.Second)
	})},
	{name: "leader killed, budget runs out", dollars: "0.1", refused: []string{"budget_exhausted", "budget_reserved"},
		play: rounds(3, func(c *cluster, _ int) {
			old := c.awaitLeader(nil)
			old.Kill()
			c.awaitLeader(old)
			c.startNode(old)
			c.pass(2 * time.Second)
		})},
	{name: "sidecars killed", refused: killed, books: carsDied, play: rounds(4, func(c *cluster, i int) {
		sc := c.sidecars[i%2]
		sc.Kill()
		c.startCar(sc)
		c.pass(2 * time.Second)
	})},

	{name: "leader stopped for 16 s", play: rounds(1, func(c *cluster, _ int) {
		old := c.awaitLeader(nil)
		old.Signal(c.t, syscall.SIGSTOP)
		c.awaitLeader(old)
		c.pass(16 * time.Second)
		old.Signal(c.t, syscall.SIGCONT)
		c.pass(2 * time.Second)
	})},
	{name: "sidecar stopped for 16 s", refused: []string{away}, play: rounds(1, func(c *cluster, _ int) {
		c.sidecars[0].Signal(c.t, syscall.SIGSTOP)
		c.pass(16 * time.Second)
		c.sidecars[0].Signal(c.t, syscall.SIGCONT)
		c.pass(3 * time.Second)
	})},

	{name: "leader cut off", play: parted(fire.Cut, fire.Cut)},
	{name: "leader is not heard", play: parted(back, forth)},
	{name: "leader hears nothing", play: parted(forth, back)},
	{name: "follower cut off", play: rounds(2, func(c *cluster, i int) {
		one := c.others(c.awaitLeader(nil))[i%2]
		c.part(one, fire.Cut, fire.Cut)
		c.pass(3 * time.Second)
		c.part(one, whole, whole)
		c.pass(time.Second)
	})},
	{name: "follower one way, then the other", play: rounds(2, func(c *cluster, i int) {
		one := c.others(c.awaitLeader(nil))[i%2]
		c.part(one, forth, back)
		c.pass(2 * time.Second)
		c.part(one, back, forth)
		c.pass(2 * time.Second)
		c.part(one, whole, whole)
		c.pass(time.Second)
	})},
	{name: "sidecars cut off for 14 s", refused: []string{away}, play: rounds(1, func(c *cluster, _ int) {
		c.pass(5 * time.Second) // standing shares are told
		c.planes(nil, fire.Cut)
		c.pass(14 * time.Second)
		c.planes(nil, whole)
		c.pass(3 * time.Second)
	})},
	{name: "one sidecar cut off, each way", refused: []string{away}, play: rounds(2, func(c *cluster, i int) {
		c.planes(c.sidecars[0], []fire.Trouble{forth, back}[i])
		c.pass(6 * time.Second)
		c.planes(c.sidecars[0], whole)
		c.pass(2 * time.Second)
	})},

	{name: "links slow and narrow", play: rounds(1, func(c *cluster, _ int) {
		for _, l := range c.raft {
			l.Set(fire.Trouble{Delay: 40 * time.Millisecond, PerSec: 500_000})
		}
		c.planes(nil, fire.Trouble{Delay: 80 * time.Millisecond, PerSec: 200_000})
		c.pass(8 * time.Second)
	})},
	{name: "connections torn", play: rounds(20, func(c *cluster, i int) {
		for _, l := range c.raft {
			l.Reset()
		}
		if i%3 == 0 {
			for _, l := range c.plane {
				l.Reset()
			}
		}
		c.pass(400 * time.Millisecond)
	})},

	{name: "slow disks", play: rounds(1, func(c *cluster, _ int) {
		for _, nd := range c.nodes {
			c.faults[nd.id].set(c.t, "slow log 30ms")
		}
		c.pass(8 * time.Second)
	})},
	{name: "leader's disk hangs", refused: []string{away}, gap: 5 * time.Second, play: rounds(2, func(c *cluster, _ int) {
		old := c.awaitLeader(nil)
		c.faults[old.id].set(c.t, "hang log")
		c.awaitLeader(old)
		c.pass(2 * time.Second)
		c.faults[old.id].set(c.t)
		c.pass(2 * time.Second)
	})},
	{name: "follower's disk hangs", play: rounds(2, func(c *cluster, i int) {
		one := c.others(c.awaitLeader(nil))[i%2]
		c.faults[one.id].set(c.t, "hang log")
		c.pass(4 * time.Second)
		c.faults[one.id].set(c.t)
		c.pass(2 * time.Second)
	})},

	{name: "killed at every point", always: []string{often}, play: killedAtPoints},
	{name: "killed while a snapshot arrives", always: []string{"often 200"}, play: killedAtRestore},
	{name: "files damaged", always: []string{often}, play: damaged},
	{name: "power cut", always: []string{often}, refused: []string{away}, gap: 8 * time.Second, play: powerCuts},

	{name: "clocks an hour off, 5% fast and slow", over: 90, play: clocksOff},
	{name: "month ends at one node", play: monthEnds},

	{name: "leader replaced by a new node", play: replaced},

	{name: "a sidecar's disk cloned", play: cloned, books: carsDied},
	{name: "a sidecar's disk put back", play: rolledBack, refused: killed, books: disksLost},
	{name: "300 come back at once", play: herd},
	{name: "liars", play: liars},
}

// rounds plays something so many times.
func rounds(n int, play func(c *cluster, i int)) func(*cluster) int {
	return func(c *cluster) int {
		for i := range n {
			play(c, i)
		}
		return n
	}
}

// parted parts the leader from the others: in on what they dial to it, out on what it dials.
func parted(in, out fire.Trouble) func(*cluster) int {
	return rounds(2, func(c *cluster, _ int) {
		old := c.awaitLeader(nil)
		c.part(old, in, out)
		c.awaitLeader(old)
		c.pass(2 * time.Second)
		c.part(old, whole, whole)
		c.pass(time.Second)
	})
}

// replaced takes a new node in and the leader out; and then, when the new one leads, the old one again, with an empty
// disk, in the new one's place.
func replaced(c *cluster) (times int) {
	old := c.awaitLeader(nil)
	fresh := c.joins("quotad-3")
	c.leaves(old)
	c.pass(2 * time.Second)
	c.lead(fresh)
	c.joins(old.id)
	c.leaves(fresh)
	c.pass(2 * time.Second)
	return 2
}

// joins starts a node on an empty disk and takes it into the cluster.
func (c *cluster) joins(id string) *node {
	c.t.Helper()
	nd := c.makeNode(id)
	nd.args = append(nd.args, "--join")
	c.startNode(nd)
	c.quotad("member", "add", nd.peer())
	c.nodes = append(c.nodes, nd)
	return nd
}

// leaves takes a node out of the cluster and ends it.
func (c *cluster) leaves(nd *node) {
	c.t.Helper()
	c.quotad("member", "remove", nd.id)
	nd.Kill()
	c.nodes = c.others(nd)
	c.awaitLeader(nil)
}
