package quota

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// TestBooksAgree: what the driver's sidecars say they spent is what quotad settled, so that the operations that are
// counted were done.
func TestBooksAgree(t *testing.T) {
	c, err := startCluster(t.Context(), "", t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.apply(t.Context(), org(2)); err != nil {
		t.Fatal(err)
	}
	const sidecars = sidecarsInTeam + 3
	d, err := startDriver(t.Context(), c.planes(), sidecars)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.during(t.Context(), func() *phase { return newPhase(0, 3, true) }, 300*time.Millisecond, nil)
	d.close()
	if err != nil {
		t.Fatal(err)
	}
	if m.Latency.Count < sidecars || m.Asked != 3*m.Latency.Count || m.Granted != m.Asked || m.Reconnects > 0 {
		t.Errorf("measured %+v", m)
	}
	if ops := m.OpsPerSecond * m.Seconds; int64(ops+0.5) != 18*m.Latency.Count {
		t.Errorf("%.0f operations in %d renews of 15 counters and 3 asks", ops, m.Latency.Count)
	}
	for team := range 2 {
		spent, granted := int64(0), int64(0)
		for _, s := range d.cars {
			if s.identity != identity(team) {
				continue
			}
			for _, total := range s.totals {
				if total.need == askNano {
					spent, granted = spent+total.counter.Spent, granted+total.granted
				}
			}
		}
		settled, out := int64(0), int64(0)
		for _, b := range budgets(t, c, identity(team)) {
			settled, out = settled+b.SettledNano, out+b.OutstandingNano
		}
		// The last renew of each may have been under way when the driver stopped.
		if lag := int64(sidecars * 2 * 5 * askNano * 4); spent == 0 || settled > spent || settled < spent-lag || settled+out < granted {
			t.Errorf("team %d: the sidecars spent %d of %d, quotad settled %d, %d are out", team, spent, granted, settled, out)
		}
	}
}

func budgets(t *testing.T, c *cluster, team string) []*adminv1.Budget {
	t.Helper()
	admin := adminv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+c.nodes[0].AdminAddress)
	resp, err := admin.ShowBudgets(context.Background(), connect.NewRequest(&adminv1.ShowBudgetsRequest{Team: team}))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Msg.Budgets
}

func TestHistogram(t *testing.T) {
	var h histogram
	if got := h.latency(); got != (Latency{}) {
		t.Errorf("empty: %+v", got)
	}
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	got := h.latency()
	near := func(d, want time.Duration) bool { return d >= want*98/100 && d <= want*103/100 }
	if got.Count != 1000 || got.Max != time.Second || !near(got.P50, 500*time.Millisecond) || !near(got.P99, 990*time.Millisecond) ||
		!near(got.P999, 999*time.Millisecond) {
		t.Errorf("%+v", got)
	}
	var edge histogram
	for _, d := range []time.Duration{-1, 0, time.Microsecond, time.Hour} {
		edge.add(d)
	}
	if got := edge.latency(); got.Count != 4 || got.P50 > time.Microsecond || got.Max != time.Hour {
		t.Errorf("edges: %+v", got)
	}
}

// TestJudge: an aim is met, missed, or missed so much that no other work explains it.
func TestJudge(t *testing.T) {
	r := Report{
		Lease:    []Lease{{Nodes: 1}, {Nodes: 3}},
		Control:  []Control{{}, {Ratio: 0.4}},
		Failover: &Failover{Killed: []time.Duration{time.Second, 2 * time.Second}, Transfer: []time.Duration{50 * time.Millisecond}},
		Local:    &Local{PerRequest: time.Microsecond, Allocs: 1},
	}
	r.Lease[0].Open.Latency.P99 = 26 * time.Millisecond
	r.Lease[1].Closed.OpsPerSecond = 20_000
	got := map[string]string{}
	for _, j := range r.Judge() {
		got[j.What] = j.verdict()
	}
	want := map[string]string{
		"1 node(s), open loop, p99":                   "MISSED",
		"3 node(s), closed loop, operations a second": "MISSED grossly",
		"3 node(s), closed loop / bare raft":          "met",
		"no grants after kill -9":                     "MISSED",
		"no grants after SIGTERM":                     "met",
		"admission in a sidecar":                      "met",
		"admission in a sidecar, allocations":         "MISSED grossly",
	}
	for what, verdict := range want {
		if got[what] != verdict {
			t.Errorf("%s: %q, want %q", what, got[what], verdict)
		}
	}
	if len(got) != len(want) || len(r.Gross()) != 2 {
		t.Errorf("%v, gross %v", got, r.Gross())
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{}).WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Parts: []string{"lunch"}, Nodes: []int{0}, Sidecars: -1, Asks: -1}.WithDefaults()
	if err := bad.Validate(); err == nil {
		t.Error("bad settings are taken")
	}
}
