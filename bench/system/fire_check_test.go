package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
	"github.com/sluice-gateway/sluice/bench/fire"
	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

const (
	gapMost  = 3 * time.Second // without an answer to any client of the history
	overMost = 30              // permille of its limit that the narrow key may use beyond it
	lostMost = 100_000_000     // nano-dollars that the requests of killed sidecars may have reserved, in all
)

// checkLimit bounds the search for an order of a history; one that needs longer is reported as not checked.
const checkLimit = 20 * time.Second

// alike waits until all nodes stand at one index, and says that their states are the same there.
func (c *cluster) alike() {
	c.t.Helper()
	c.alikeNow(c.nodes...)
}

// alikeNow is alike for some nodes and the leader; load may go on.
func (c *cluster) alikeNow(some ...*node) {
	c.t.Helper()
	nodes := slices.Clone(some)
	if len(some) < len(c.nodes) {
		nodes = append(nodes, c.awaitLeader(nil))
	}
	type state struct {
		index uint64
		hash  string
	}
	states := make([]state, len(nodes))
	c.eventually("all nodes stand at one index", func() bool {
		var asked sync.WaitGroup
		for i, nd := range nodes {
			asked.Go(func() {
				states[i] = state{}
				ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
				defer cancel()
				m, err := adminv1connect.NewAdminServiceClient(client, "http://"+nd.admin).Status(ctx,
					connect.NewRequest(&adminv1.StatusRequest{Hash: true}))
				if err == nil {
					states[i] = state{m.Msg.GetApplied(), m.Msg.GetStateHash()}
				}
			})
		}
		asked.Wait()
		return !slices.ContainsFunc(states, func(s state) bool { return s.index == 0 || s.index != states[0].index })
	})
	for i, s := range states {
		if s != states[0] || s.hash == "" {
			c.t.Errorf("at %d the state of %s is %s, of %s it is %s", s.index, nodes[i].id, s.hash, nodes[0].id, states[0].hash)
		}
	}
}

// sound looks for what must never happen in any process, also in one that is gone.
func (c *cluster) sound() {
	c.t.Helper()
	for _, nd := range c.nodes {
		b, err := get("http://" + nd.admin + "/metrics")
		if v := readMetric(b, "sluice_conservation_violations_total"); err != nil || v != 0 {
			c.t.Errorf("%s: %g violations of conservation, %v", nd.id, v, err)
		}
	}
	for name, files := range c.logs {
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				c.t.Error(err)
			}
			for line := range strings.Lines(string(b)) {
				for _, never := range []string{"the books do not balance", "BUG:", "panic:", "DATA RACE", "fatal error:"} {
					if strings.Contains(line, never) {
						c.t.Errorf("%s said: %s", name, line)
					}
				}
			}
		}
	}
}

// paid is what the provider counted for a model.
func (c *cluster) paid(model string) int64 { return c.fake.Witness(0).Models[model].CostNano }

// spent is what a team's budgets of all periods say in sum.
func (c *cluster) spent(team string) (b budget) {
	c.t.Helper()
	for _, p := range c.budgets(team) {
		b = budget{b.Cap + p.Cap, b.Settled + p.Settled, b.Outstanding + p.Outstanding, b.Held + p.Held, b.Suspense + p.Suspense, b.Free + p.Free}
	}
	return b
}

// precision is how exact budgets and usage must be in the end, which depends on what sidecars lost.
type precision int

const (
	exact     precision = iota // to the nano-dollar
	carsDied                   // what ran in a killed sidecar counts in full
	disksLost                  // what a lost disk knew stays in suspense, which counts as spent, and its usage is unknown
)

// settled waits until nothing is open any more and budgets and usage are what the provider says.
func (c *cluster) settled(how precision) {
	c.t.Helper()
	w := c.fake.Witness(0).Totals
	want := usage{w.Completed, w.PromptTokens, w.OutputTokens, w.CostNano}
	var got usage
	var app, narrow budget
	defer func() {
		if c.t.Failed() {
			c.t.Logf("witness %+v, usage %+v, budgets: app %+v narrow %+v, paid %d and %d", want, got, app, narrow, c.paid("m1"), c.paid("m2"))
		}
	}()
	done := func(b budget, paid int64) bool {
		if b.Held != 0 || b.Settled+b.Outstanding+b.Suspense+b.Free != b.Cap {
			return false
		}
		switch how {
		case exact:
			return b.Settled == paid && b.Suspense == 0
		case carsDied:
			return b.Settled >= paid && b.Settled-paid < lostMost && b.Suspense == 0
		}
		return b.Settled+b.Suspense >= paid
	}
	c.eventually("usage and budgets agree with the witness", func() bool {
		got, app, narrow = c.usageCLI(), c.spent("t"), c.spent("n")
		return done(app, c.paid("m1")) && done(narrow, c.paid("m2")) &&
			(got == want || how == carsDied && got.cost >= want.cost || how == disksLost)
	})
	if c.paid("m1") > app.Cap+app.Cap/500 {
		c.t.Errorf("the budget of %d was passed: the provider counted %d", app.Cap, c.paid("m1"))
	}
}

// overshoot is by how many thousandths of the limit the narrow key was passed, in the window that was worst: what the
// provider served of requests that began in it, against burst and refill.
func (c *cluster) overshoot() (permille int64) {
	type use struct{ at, tokens int64 }
	var uses []use
	for _, r := range c.fake.Witness(100_000).Records {
		if r.Model == "m2" && r.Outcome == fakeprovider.OutcomeCompleted {
			uses = append(uses, use{r.StartedNS, r.Served.Input + r.Served.Output})
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return int(a.at - b.at) })
	// The worst window ends with a request: what is above the bound then, less what was above it before its start.
	over, most := int64(0), int64(-narrowLimit)
	for i, u := range uses {
		if i > 0 {
			over = max(0, over-narrowLimit*((u.at-uses[i-1].at)/1_000_000)/60_000)
		}
		over += u.tokens
		most = max(most, over-narrowLimit)
	}
	return most * 1000 / narrowLimit
}

// row is what became of one nemesis.
type row struct {
	name      string
	times     int
	answers   int
	refused   map[string]int
	gap       time.Duration
	overshoot int64 // permille of the narrow limit
	settles   int
	history   int
	took      time.Duration
}

// table prints what the nemeses did and what was checked.
func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s %5s %7s %7s %9s %7s %7s %6s  %s\n", "nemesis", "times", "answers", "gap", "overshoot", "settles", "history", "took", "refusals")
	for _, r := range rows {
		refused := "none"
		if len(r.refused) > 0 {
			refused = strings.TrimPrefix(fmt.Sprint(r.refused), "map")
		}
		fmt.Fprintf(&b, "%-34s %5d %7d %7s %8.1f%% %7d %7d %6s  %s\n", r.name, r.times, r.answers, r.gap.Round(10*time.Millisecond),
			float64(r.overshoot)/10, r.settles, r.history, r.took.Round(time.Second), refused)
	}
	return b.String()
}

// picturesIn is where the pictures of histories that failed are kept.
func picturesIn() string {
	if dir := os.Getenv("SLUICE_PICTURES"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "sluice-histories")
}

// linear says that the history is one that a single budget could have.
func (w *traffic) linear() {
	w.c.t.Helper()
	first := fire.Books{Cap: poolCap, Free: poolCap}
	if err := w.history.Check(first, picturesIn(), checkLimit); err != nil {
		w.c.t.Error(err)
	}
}
