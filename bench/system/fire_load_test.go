package system

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/sluice-gateway/sluice/bench/fire"
	"github.com/sluice-gateway/sluice/bench/load"
	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

const (
	appRate    = 30 // requests a second and sidecar
	narrowRate = 10 // the same; the key may use a fifth of it
	accounts   = 4
	askMost    = poolCap / 8
	// stepPause keeps a history short enough to be checked.
	stepPause = 30 * time.Millisecond
)

// traffic is what goes on while faults come: callers at every sidecar, and clients of the sidecar plane that draw on a
// budget of their own and keep a history.
type traffic struct {
	c       *cluster
	nodes   []*node // of the start
	stop    context.CancelFunc
	ctx     context.Context
	work    sync.WaitGroup
	history fire.History
	last    time.Time // when a client of the history was answered last
	mu      sync.Mutex
	ok      map[string]int // good answers by key
	refused map[string]int // others, by key and code or class
	gap     time.Duration  // the longest time without an answer to any client of the history
	faults  []string
}

func (c *cluster) startTraffic() *traffic {
	c.t.Helper()
	w := &traffic{c: c, nodes: slices.Clone(c.nodes), last: time.Now(), ok: map[string]int{}, refused: map[string]int{}}
	c.traffic = w
	w.ctx, w.stop = context.WithCancel(c.t.Context())
	for _, sc := range c.sidecars {
		w.call(sc, appKey, "app", "chat", appRate)
		w.call(sc, narrowKey, "narrow", "narrow", narrowRate)
	}
	resource, period := c.budgetOf("p")
	for i := range accounts {
		w.work.Go(func() { w.account(i, resource, period) })
	}
	w.work.Go(func() { w.look(accounts) })
	return w
}

// call sends requests at a rate until the traffic stops, and lets each end: a slice of a second after another, whatever
// the earlier ones do.
func (w *traffic) call(sc *sidecar, key, name, model string, rate float64) {
	cfg := load.Config{
		URL: sc.url + "/v1", Keys: []string{key}, Rate: rate, Duration: time.Second, Model: model,
		Directive: "tokens=20 first=5ms", PromptTokens: 12, MaxTokens: 40, Timeout: wait,
		Observe: func(r load.Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if r.Class == load.ClassOK {
				w.ok[name]++
				return
			}
			why := string(r.Class)
			if r.Code != "" {
				why = fmt.Sprintf("%d %s", r.Status, r.Code)
			}
			w.refused[name+" "+why]++
		},
	}
	w.work.Go(func() {
		var parts sync.WaitGroup
		defer parts.Wait()
		next := time.NewTicker(time.Second)
		defer next.Stop()
		for {
			parts.Go(func() {
				if _, err := load.Run(context.Background(), cfg); err != nil {
					w.fault("load: %v", err)
				}
			})
			select {
			case <-next.C:
			case <-w.ctx.Done():
				return
			}
		}
	})
}

func (w *traffic) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// answered notes that a client of the history was answered.
func (w *traffic) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.gap, w.last = max(w.gap, now.Sub(w.last)), now
}

// account is one client of the history. Its operations go on until they are answered, also while it should stop: an
// outcome that nobody knows makes a history hard to check.
func (w *traffic) account(i int, resource uint64, period uint32) {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	client := &fire.Client{Identity: fmt.Sprintf("account-%d", i), Incarnation: rand.Uint64() | 1, Follow: true}
	for _, nd := range w.nodes {
		client.Nodes = append(client.Nodes, nd.plane)
	}
	defer client.Close()
	a := &fire.Account{Client: client, History: &w.history, Number: i, Resource: resource, Period: period}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	defer cancel()
	defer context.AfterFunc(w.c.t.Context(), cancel)()
	for w.ctx.Err() == nil {
		if err := a.Step(ctx, random, askMost); err != nil {
			w.fault("account %d: %v", i, err)
			return
		}
		w.answered()
		<-time.After(stepPause)
	}
	if err := a.Finish(ctx); err != nil {
		w.fault("account %d: %v", i, err)
	}
}

// look reads the books and raises and lowers the cap, at whichever node answers.
func (w *traffic) look(number int) {
	random := rand.New(rand.NewPCG(1, 1))
	for n := 0; w.ctx.Err() == nil; n++ {
		nd := w.nodes[random.IntN(len(w.nodes))]
		if n%8 == 0 {
			amount := random.Int64N(poolCap/10) - poolCap/20
			_ = w.history.Do(number, fire.Credit{Amount: amount}, func() (any, error) {
				return nil, w.credit(amount, fmt.Sprintf("fire-%d", n))
			})
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = w.tryShow(ctx, nd, number)
		cancel()
		<-time.After(2 * stepPause)
	}
}

// credit is sent again, as the same one, until it is taken.
func (w *traffic) credit(amount int64, id string) error {
	for end := time.Now().Add(wait); ; {
		for _, nd := range w.nodes {
			ctx, cancel := context.WithTimeout(w.c.t.Context(), time.Second)
			_, err := adminv1connect.NewAdminServiceClient(quick, "http://"+nd.admin).CreditBudget(ctx,
				connect.NewRequest(&adminv1.CreditBudgetRequest{Team: "p", AmountNano: amount, Reason: "fire", Id: id}))
			cancel()
			if err == nil {
				return nil
			}
			if time.Now().After(end) || w.c.t.Context().Err() != nil {
				return err
			}
		}
		<-time.After(stepPause)
	}
}

// tryShow asks one node for the books. A node that does not answer has shown nothing, and leaves no trace.
func (w *traffic) tryShow(ctx context.Context, nd *node, number int) error {
	var books fire.Books
	call := func() error {
		m, err := adminv1connect.NewAdminServiceClient(quick, "http://"+nd.admin).ShowBudgets(ctx,
			connect.NewRequest(&adminv1.ShowBudgetsRequest{Team: "p"}))
		if err != nil {
			return err
		}
		for _, b := range m.Msg.GetBudgets() {
			if b.GetScope() == "team" {
				books = fire.Books{
					Cap: b.GetCapNano() + b.GetCreditsNano(), Settled: b.GetSettledNano(),
					Out: b.GetOutstandingNano() + b.GetSuspenseNano(), Free: b.GetFreeNano(),
				}
			}
		}
		return nil
	}
	return w.history.Look(number, fire.Show{}, func() (any, error) { err := call(); return books, err })
}

// budgetOf is a team's budget, as sidecars know it.
func (c *cluster) budgetOf(team string) (resource uint64, period uint32) {
	c.t.Helper()
	client := &fire.Client{Identity: "looker", Incarnation: 1}
	for _, nd := range c.nodes {
		client.Nodes = append(client.Nodes, nd.plane)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), wait)
	defer cancel()
	snap, err := client.Snapshot(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range snap.GetResources() {
		if r.GetScope() == "team" && r.GetOwner() == team {
			return r.GetId(), r.GetPeriod()
		}
	}
	c.t.Fatalf("no budget of %s in %v", team, snap.GetResources())
	return 0, 0
}

// end stops the traffic, lets all that runs end, and has a last look at the books.
func (w *traffic) end() {
	w.c.t.Helper()
	w.stop()
	w.work.Wait()
	for _, f := range w.faults {
		w.c.t.Error(f)
	}
	w.c.eventually("the books are shown", func() bool {
		for _, nd := range w.c.nodes {
			if w.tryShow(w.c.t.Context(), nd, accounts) == nil {
				return true
			}
		}
		return false
	})
}

// refusals are what callers got instead of answers, apart from the narrow key's own limit.
func (w *traffic) refusals() map[string]int {
	out := map[string]int{}
	for why, n := range w.refused {
		if !strings.HasPrefix(why, "narrow 429 key_tokens_per_minute") {
			out[why] = n
		}
	}
	return out
}
