package system

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-gateway/sluice/bench/fire"
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// copied copies a directory as it is at this moment.
func (c *cluster) copied(dir string) string {
	c.t.Helper()
	to := filepath.Join(c.t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		c.t.Fatal(err)
	}
	return to
}

// cloned starts a second sidecar on a copy of a running one's disk, under the same name, with callers of its own; and
// stops it again.
func cloned(c *cluster) (times int) {
	c.pass(2 * time.Second)
	original := c.sidecars[0]
	twin := c.makeCar("sidecar-twin", c.copied(original.dir))
	for i, arg := range twin.args {
		if arg == "--identity" {
			twin.args[i+1] = original.name
		}
	}
	c.startCar(twin)
	c.await(twin)
	c.traffic.call(twin, appKey, "app", "chat", appRate)
	c.pass(6 * time.Second)
	return 1
}

// rolledBack puts a sidecar's disk back to what it was some seconds ago, twice.
func rolledBack(c *cluster) (times int) {
	sc := c.sidecars[0]
	for range 2 {
		c.pass(time.Second)
		old := c.copied(sc.dir)
		c.pass(4 * time.Second)
		sc.Kill()
		if err := os.RemoveAll(sc.dir); err != nil {
			c.t.Fatal(err)
		}
		if err := os.CopyFS(sc.dir, os.DirFS(old)); err != nil {
			c.t.Fatal(err)
		}
		c.startCar(sc)
		c.await(sc)
		times++
	}
	return times
}

// herdSize is how many clients come back at once.
const herdSize = 300

// herd cuts many clients off until their leases have lapsed, and lets them all come back at the same moment.
func herd(c *cluster) (times int) {
	var links []*fire.Link
	var nodes []string
	for _, nd := range c.nodes {
		l := c.link(nd.plane)
		links, nodes = append(links, l), append(nodes, l.Addr())
	}
	resource, period := c.budgetOf("h")
	history := &fire.History{}
	all := make([]*fire.Account, herdSize)
	for i := range all {
		all[i] = &fire.Account{
			Client:  &fire.Client{Identity: fmt.Sprintf("herd-%d", i), Incarnation: uint64(1000 + i), Nodes: nodes},
			History: history, Number: i, Resource: resource, Period: period,
		}
		defer all[i].Client.Close()
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), wait)
	defer cancel()
	// together has every client do one thing, and returns how long the last one took.
	together := func(do func(a *fire.Account) error) time.Duration {
		began := time.Now()
		var herd sync.WaitGroup
		for _, a := range all {
			herd.Go(func() {
				if err := do(a); err != nil {
					c.traffic.fault("%s: %v", a.Client.Identity, err)
				}
			})
		}
		herd.Wait()
		return time.Since(began)
	}
	ask := func(a *fire.Account) error { return a.Ask(ctx, 1_000_000) }
	c.t.Logf("%d clients ask for the first time: %v", herdSize, together(ask))
	for _, l := range links {
		l.Set(fire.Cut)
	}
	c.pass(12 * time.Second)
	for _, l := range links {
		l.Set(whole)
	}
	took := together(ask)
	c.t.Logf("they come back at once: %v", took)
	if took > 8*time.Second {
		c.t.Errorf("the last of %d clients was answered after %v", herdSize, took)
	}
	together(func(a *fire.Account) error { return a.Finish(ctx) })
	if b := c.budget("h"); b.Settled != 2*herdSize*1_000_000 || b.Settled+b.Outstanding+b.Free+b.Suspense != b.Cap || b.Suspense != 0 {
		c.t.Errorf("after the herd: %+v", b)
	}
	return 1
}

// lie is a message that no honest sidecar sends. What quotad makes of it may cost the liar its life, and nobody else a
// nano-dollar.
type lie struct {
	name string
	tell func(r *quotav1.Renew)
}

var lies = []lie{
	{"negative spent", func(r *quotav1.Renew) { r.Counters[0].Spent = -1_000_000_000 }},
	{"negative returned", func(r *quotav1.Renew) { r.Counters[0].Returned = -1_000_000_000 }},
	{"negative held", func(r *quotav1.Renew) { r.Counters[0].Held = math.MinInt64 }},
	{"negative demand", func(r *quotav1.Renew) { r.Counters[0].Demand = -1 }},
	{"everything spent", func(r *quotav1.Renew) { r.Counters[0].Spent = math.MaxInt64 }},
	{"everything spent and returned", func(r *quotav1.Renew) { r.Counters[0].Spent, r.Counters[0].Returned = math.MaxInt64, math.MaxInt64 }},
	{"more returned than granted", func(r *quotav1.Renew) { r.Counters[0].Returned = 500_000_000 }},
	{"everything held", func(r *quotav1.Renew) { r.Counters[0].Held = math.MaxInt64 }},
	{"endless demand", func(r *quotav1.Renew) { r.Counters[0].Demand = math.MaxInt64 }},
	{"more granted than was", func(r *quotav1.Renew) { r.Counters[0].Granted = math.MaxInt64 }},
	{"closed with a balance", func(r *quotav1.Renew) { r.Counters[0].Close = true }},
	{"left of a budget, as a provider says", func(r *quotav1.Renew) { left := int64(math.MinInt64); r.Counters[0].ProviderLeft = &left }},
	{"totals that fall", func(r *quotav1.Renew) { r.Counters[0].Spent, r.Counters[0].Held = 0, 0 }},
	{"a counter twice", func(r *quotav1.Renew) { r.Counters = append(r.Counters, r.Counters[0]) }},
	{"counters of nothing", func(r *quotav1.Renew) { r.Counters[0].Resource = 12345 }},
	{"another month", func(r *quotav1.Renew) { r.Counters[0].Period = 209912 }},
	{"a negative ask", func(r *quotav1.Renew) { r.Asks = asks(r, -1_000_000_000) }},
	{"an ask for everything", func(r *quotav1.Renew) { r.Asks = asks(r, math.MaxInt64) }},
	{"an ask of an ask", func(r *quotav1.Renew) { r.Asks = asks(r, math.MaxInt64, math.MaxInt64) }},
	{"ten thousand asks", func(r *quotav1.Renew) {
		for range 10_000 {
			r.Asks = append(r.Asks, asks(r, 1_000_000)...)
		}
	}},
	{"an ask with names", func(r *quotav1.Renew) {
		r.Asks = asks(r, 1)
		r.Asks[0].Needs[0].Name = strings.Repeat("x", 1<<16)
	}},
	{"a later seq", func(r *quotav1.Renew) { r.Seq = math.MaxUint64 }},
	{"seq 0", func(r *quotav1.Renew) { r.Seq = 0 }},
	{"an old seq with other totals", func(r *quotav1.Renew) { r.Seq--; r.Counters[0].Spent += 10_000_000 }},
	{"another process", func(r *quotav1.Renew) { r.Incarnation++; r.Counters[0].Spent = 500_000_000 }},
	{"no process", func(r *quotav1.Renew) { r.Incarnation = 0 }},
	{"leaving, and asking", func(r *quotav1.Renew) { r.Leaving = true; r.Asks = asks(r, 100_000_000) }},
	{"shares that nobody gave", func(r *quotav1.Renew) { r.ShareVersion = math.MaxUint64 }},
	{"a later epoch", func(r *quotav1.Renew) { r.Epoch = math.MaxUint64 }},
}

// asks is one ask for so much of the budget, once for each amount.
func asks(r *quotav1.Renew, amounts ...int64) []*quotav1.Ask {
	a := &quotav1.Ask{Id: 77}
	for _, n := range amounts {
		a.Needs = append(a.Needs, &quotav1.Need{Resource: r.Counters[0].Resource, Period: r.Counters[0].Period, Amount: n})
	}
	return []*quotav1.Ask{a}
}

// liars tells every lie, each by a process of its own that was granted and spent something before.
func liars(c *cluster) (times int) {
	var nodes []string
	for _, nd := range c.nodes {
		nodes = append(nodes, nd.plane)
	}
	resource, period := c.budgetOf("h")
	for i, l := range lies {
		client := &fire.Client{Identity: "liar", Incarnation: uint64(5000 + 2*i), Nodes: nodes}
		ctx, cancel := context.WithTimeout(c.t.Context(), wait)
		renew := func(r *quotav1.Renew) *quotav1.Renew {
			r.Incarnation = client.Incarnation
			return r
		}
		counter := func(spent, held int64) []*quotav1.Counter {
			return []*quotav1.Counter{{Resource: resource, Period: period, Spent: spent, Held: held}}
		}
		first := renew(&quotav1.Renew{Seq: 1, Counters: counter(0, 0)})
		first.Asks = asks(first, 1_000_000)
		if _, err := client.Renew(ctx, first); err != nil {
			c.t.Fatalf("%s: %v", l.name, err)
		}
		if _, err := client.Renew(ctx, renew(&quotav1.Renew{Seq: 2, Counters: counter(400_000, 600_000)})); err != nil {
			c.t.Fatalf("%s: %v", l.name, err)
		}
		before := c.budget("h")
		m := renew(&quotav1.Renew{Seq: 3, Counters: counter(400_000, 600_000)})
		l.tell(m)
		// Many a lie is not answered: the session drops it.
		reply, err := client.Once(ctx, m)
		after := c.budget("h")
		told := "not answered"
		if err == nil {
			told = fmt.Sprintf("fenced %v, asks %.60v", reply.GetFenced(), reply.GetAsks())
		}
		c.t.Logf("%-40s %s; settled %+d, out %+d, free %+d", l.name, told, after.Settled-before.Settled,
			after.Outstanding+after.Suspense-before.Outstanding-before.Suspense, after.Free-before.Free)
		if after.Settled+after.Outstanding+after.Suspense+after.Free != after.Cap || after.Settled < before.Settled {
			c.t.Errorf("%s: the books %+v, before %+v", l.name, after, before)
		}
		if got := after.Free - before.Free; got > 600_000 {
			c.t.Errorf("%s: %d came free, the liar had 600,000", l.name, got)
		}
		if lost := before.Free - after.Free; lost > 110_000_000 {
			c.t.Errorf("%s: %d are lost to the others", l.name, lost)
		}
		cancel()
		client.Close()
		times++
	}
	return times
}
