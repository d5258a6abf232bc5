package system

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

const (
	outageCars  = 2
	outageEvery = 2 * time.Second // between calls of each row at each sidecar: 60 a minute in all
	outageRPM   = 30
	outageTime  = 10 * time.Minute
	leaseTime   = 10 * time.Second // that a lease is usable
	// outageBudgetNano is so small that what may lie on lease of it does not last for ten minutes.
	outageBudgetNano = 6_000_000_000
	unavailable      = "503 quota_unavailable"
)

// outageRow is one key of the table: a mode, and what limits it. Its team, key, alias, deployment and model have its
// name, so that the witness and the books can be asked for each row.
type outageRow struct {
	mode, limit string
	team, key   string   // of org.yaml: what both have beside their names
	header      []string // of its calls
}

func (r outageRow) name() string   { return r.mode + "-" + strings.ReplaceAll(r.limit, " ", "-") }
func (r outageRow) secret() string { return "sk-" + r.name() }

// bucket reports whether the row is limited by the minute.
func (r outageRow) bucket() bool { return r.limit == "bucket" || r.limit == "end user" }

func outageRows() (rows []outageRow) {
	const plenty = "budget: { monthly: 1000 }"
	small := fmt.Sprintf("monthly: %.2f", outageBudgetNano/1e9)
	for _, mode := range []string{"share", "open", "closed"} {
		rows = append(rows,
			outageRow{mode, "bucket", plenty, fmt.Sprintf("limits: { rpm: %d }", outageRPM), nil},
			outageRow{mode, "end user", plenty + fmt.Sprintf(", end_user_limits: { rpm: %d }", outageRPM), "app: a", []string{"x-gw-user", "ann"}},
			outageRow{mode, "hard budget", "budget: { " + small + " }", "app: a", nil},
			outageRow{mode, "soft budget", "budget: { " + small + ", hard: false }", "app: a", nil},
			outageRow{mode, "run budget", plenty + fmt.Sprintf(", run_budget: { max: %.2f }", outageBudgetNano/1e9), "app: a", []string{"x-gw-run-id", "r1"}},
		)
	}
	return rows
}

func outageTableOrg(rows []outageRow) string {
	var deployments, aliases, teams, keys strings.Builder
	for _, r := range rows {
		n := r.name()
		fmt.Fprintf(&deployments, "  - { id: %s, provider: openai, base_url: %q, model: %s, credential: main, price: chat }\n", n, provider, n)
		fmt.Fprintf(&aliases, "  %s: { reserve: cap, targets: [ { deployment: %s } ] }\n", n, n)
		fmt.Fprintf(&teams, "  %s: { %s }\n", n, r.team)
		fmt.Fprintf(&keys, "  - { id: %s, team: %s, secret_sha256: %s, outage: %s, %s }\n", n, n, sum(r.secret()), r.mode, r.key)
	}
	return `version: 1
currency: USD
prices:
  - id: p1
    valid_from: 2026-01-01T00:00:00Z
    per_million_usd: { chat: { input: 2.00, output: 10.00 } }
credentials: { main: { provider: openai } }
deployments:
` + deployments.String() + "aliases:\n" + aliases.String() + "teams:\n" + teams.String() + "keys:\n" + keys.String()
}

// outageCall is one answer in the table.
type outageCall struct {
	at    time.Time // when it was sent
	car   int
	said  string // status and code
	after bool   // it says when to try again
}

// outageBook collects calls by row.
type outageBook struct {
	mu    sync.Mutex
	calls map[string][]outageCall
}

// load calls with every row's key, and with one nobody knows, at every sidecar until a moment.
func (b *outageBook) load(w *world, rows []outageRow, until time.Time) {
	var callers sync.WaitGroup
	one := func(row, key string, header []string, car int, delay time.Duration) {
		callers.Go(func() {
			w.pass(delay)
			for at := time.Now(); at.Before(until); at = at.Add(outageEvery) {
				w.passUntil(at)
				callers.Go(func() {
					body := strings.Replace(say("tokens=20", `,"max_tokens":20`), `"chat"`, `"`+row+`"`, 1)
					a := w.call(w.cars[car], key, body, header...)
					c := outageCall{at, car, fmt.Sprint(a.status), a.header.Get("retry-after") != "" && retryAfter(a) > 0}
					if a.status != 200 {
						c.said += " " + a.code()
					}
					b.mu.Lock()
					defer b.mu.Unlock()
					b.calls[row] = append(b.calls[row], c)
				})
			}
		})
	}
	for car := range w.cars {
		for i, r := range rows {
			one(r.name(), r.secret(), r.header, car, time.Duration(i*len(w.cars)+car)*outageEvery/time.Duration((len(rows)+1)*len(w.cars)))
		}
		one("unknown", "sk-nobody", nil, car, outageEvery-time.Millisecond*time.Duration(50*(car+1)))
	}
	callers.Wait()
}

// said counts answers of a row in a half-open interval.
func (b *outageBook) said(row string, from, to time.Time) map[string]int {
	out := map[string]int{}
	for _, c := range b.calls[row] {
		if !c.at.Before(from) && c.at.Before(to) {
			out[c.said]++
		}
	}
	return out
}

// perMinute prints the answers of an interval, per minute.
func perMinute(said map[string]int, d time.Duration) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(said)) {
		parts = append(parts, fmt.Sprintf("%.3g × %s", float64(said[k])/d.Minutes(), k))
	}
	return strings.Join(parts, ", ")
}

// TestOutageTable: quotad is gone for ten minutes. What callers see then, by their key's outage mode and by what limits
// them, is the table in docs/outage.md; and all that was spent is in the books afterwards, to the nano-dollar.
func TestOutageTable(t *testing.T) {
	rows := outageRows()
	inWorld(t, 1, outageCars, outageTableOrg(rows), func(t *testing.T, w *world) {
		b := &outageBook{calls: map[string][]outageCall{}}
		began := time.Now()
		gone := began.Add(3 * time.Minute)
		back := gone.Add(outageTime)
		end := back.Add(2 * time.Minute)
		var load sync.WaitGroup
		load.Go(func() { b.load(w, rows, end) })
		w.passUntil(gone)
		w.nodes[0].stop()
		w.passUntil(back)
		w.startNode(w.nodes[0])
		load.Wait()

		b.print(t, rows, []outagePhase{
			{"before", gone.Add(-time.Minute), gone},
			{"first 10 s", gone, gone.Add(leaseTime)},
			{"the rest", gone.Add(leaseTime), back},
			{"first 10 s back", back, back.Add(10 * time.Second)},
			{"after", end.Add(-time.Minute), end},
		})
		models := w.fake.Witness(0).Models
		for _, r := range rows {
			saw := models[r.name()]
			b.judge(t, r, saw.CostNano/max(1, saw.Completed), gone, back, end)
		}
		b.only(t, "unknown", gone.Add(-time.Minute), gone, "401 invalid_api_key")
		b.only(t, "unknown", gone, back, unavailable)
		b.only(t, "unknown", back.Add(10*time.Second), end, "401 invalid_api_key")
		w.booked(rows)
	})
}

type outagePhase struct {
	name     string
	from, to time.Time
}

// print prints the table.
func (b *outageBook) print(t *testing.T, rows []outageRow, phases []outagePhase) {
	var table strings.Builder
	table.WriteString("| `outage` | limited by |")
	for _, p := range phases {
		table.WriteString(" " + p.name + " |")
	}
	table.WriteString("\n|" + strings.Repeat("---|", len(phases)+2) + "\n")
	line := func(mode, limit, row string) {
		fmt.Fprintf(&table, "| %s | %s |", mode, limit)
		for _, p := range phases {
			fmt.Fprintf(&table, " %s |", perMinute(b.said(row, p.from, p.to), p.to.Sub(p.from)))
		}
		table.WriteString("\n")
	}
	for _, r := range rows {
		line(r.mode, r.limit, r.name())
	}
	line("any", "unknown key", "unknown")
	t.Log("answers a minute\n" + table.String())
}

// only checks that a row was told nothing else in an interval.
func (b *outageBook) only(t *testing.T, row string, from, to time.Time, may ...string) {
	t.Helper()
	said := b.said(row, from, to)
	for k, n := range said {
		if !slices.Contains(may, k) {
			t.Errorf("%s: %d × %s, only %v may be", row, n, k, may)
		}
	}
	if len(said) == 0 {
		t.Errorf("%s: no answers at all", row)
	}
}

// judge holds what a row saw against the contract. cost is that of one request.
func (b *outageBook) judge(t *testing.T, r outageRow, cost int64, gone, back, end time.Time) {
	t.Helper()
	row := r.name()
	near := []string{"200"} // while quotad is there
	switch r.limit {
	case "bucket":
		near = append(near, "429 key_requests_per_minute")
	case "end user":
		near = append(near, "429 end_user_requests_per_minute")
	}
	b.only(t, row, gone.Add(-time.Minute), gone, near...)
	b.only(t, row, gone, gone.Add(leaseTime), append(near, unavailable)...)
	b.only(t, row, back.Add(10*time.Second), end, near...)
	for _, c := range b.calls[row] {
		if c.said == unavailable && !c.after {
			t.Errorf("%s at %v: a refusal without a time to come back", row, c.at)
		}
	}
	for _, when := range [][2]time.Time{{gone.Add(-time.Minute), gone}, {end.Add(-time.Minute), end}} {
		if n := b.said(row, when[0], when[1])["200"]; n < outageRPM*95/100 {
			t.Errorf("%s: only %d served in a minute with quotad", row, n)
		}
	}

	rest := gone.Add(leaseTime)
	switch alone := b.said(row, rest, back); {
	case r.mode == "closed":
		b.only(t, row, rest, back, unavailable)
	case r.bucket():
		b.only(t, row, rest, back, "200", unavailable)
		most := int(outageRPM * back.Sub(rest).Minutes() / outageCars)
		for car := range outageCars {
			n := 0
			for _, c := range b.calls[row] {
				if c.car == car && c.said == "200" && !c.at.Before(rest) && c.at.Before(back) {
					n++
				}
			}
			if n > most+1 || n < most*95/100 {
				t.Errorf("%s: sidecar %d admitted %d, its share is %d", row, car, n, most)
			}
		}
	case r.mode == "open" && r.limit == "soft budget":
		b.only(t, row, rest, back, "200")
	default: // what was on lease, at most half a percent of the cap, and no more
		b.only(t, row, rest, back, "200", unavailable)
		n := alone["200"] + b.said(row, gone, rest)["200"]
		if most := int(outageBudgetNano / 200 / cost); n > most || n < most*80/100 || b.said(row, back.Add(-time.Minute), back)["200"] > 0 {
			t.Errorf("%s: %d served in ten minutes, %d are on lease", row, n, most)
		}
	}
}

// booked waits until each row's budget and usage are what the witness saw for it.
func (w *world) booked(rows []outageRow) {
	w.t.Helper()
	var wrong []string
	for end := time.Now().Add(wait); ; w.pass(time.Second) {
		wrong = nil
		models := w.fake.Witness(0).Models
		for _, r := range rows {
			saw := models[r.name()].CostNano
			w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
				shown, err := c.ShowBudgets(ctx, connect.NewRequest(&adminv1.ShowBudgetsRequest{Team: r.name()}))
				if err != nil {
					return err
				}
				usage, err := c.QueryUsage(ctx, connect.NewRequest(&adminv1.QueryUsageRequest{Team: r.name(), From: "1999-01-01", GroupBy: "team"}))
				if err != nil {
					return err
				}
				runs, err := c.ListRuns(ctx, connect.NewRequest(&adminv1.ListRunsRequest{Team: r.name()}))
				if err != nil {
					return err
				}
				for _, run := range runs.Msg.Runs {
					if run.SettledNano != saw || run.SuspenseNano != 0 || run.HeldNano != 0 {
						wrong = append(wrong, fmt.Sprintf("%s: the witness saw %d, %v", r.name(), saw, run))
					}
				}
				if (r.limit == "run budget") != (len(runs.Msg.Runs) == 1) {
					wrong = append(wrong, fmt.Sprintf("%s: runs %v", r.name(), runs.Msg.Runs))
				}
				used := int64(0)
				for _, row := range usage.Msg.Rows {
					used += row.CostNano
				}
				for _, b := range shown.Msg.Budgets {
					if b.SettledNano != saw || b.SuspenseNano != 0 || b.HeldNano != 0 || used != saw || saw == 0 {
						wrong = append(wrong, fmt.Sprintf("%s: the witness saw %d, usage %d, %v", r.name(), saw, used, b))
					}
				}
				return nil
			})
		}
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal(strings.Join(wrong, "\n"))
		}
	}
}
