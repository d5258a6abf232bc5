package main

import (
	"bytes"
	"strings"
	"testing"
	"text/tabwriter"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
)

// TestStatusShowsWhatIsWrong: a node that does not answer, a sidecar that lags, books that do not balance.
func TestStatusShowsWhatIsWrong(t *testing.T) {
	m := &adminv1.StatusResponse{
		ClusterId: "c", NodeId: "q-0", LeaderId: "q-0", Term: 2, Applied: 24, ConfigVersion: 6, ConservationViolations: 3,
		Members: []*adminv1.Member{
			{Id: "q-0", RaftAddress: "a:1", Leader: true, Voter: true},
			{Id: "q-1", RaftAddress: "b:1", Voter: true, LastContactMs: 40},
			{Id: "q-2", RaftAddress: "c:1", Voter: true, LastContactMs: 95_400},
			{Id: "q-3", RaftAddress: "d:1", Lag: -1, LastContactMs: -1},
		},
		Sidecars: []*adminv1.SidecarStatus{
			{Identity: "new", Incarnation: 1, State: "connected", ConfigVersion: 6, LastRenewMs: 1_234, Build: "b"},
			{Identity: "old", Incarnation: 2, State: "connected", ConfigVersion: 5, LastRenewMs: 12_345, Build: "b"},
			{Identity: "gone", Incarnation: 1<<64 - 1, State: "lapsed", LastRenewMs: -1},
		},
	}
	show := func() string {
		var out bytes.Buffer
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		statusTable(w, m)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	columns(t, show(), "cluster c, led by q-0, term 2, applied 24", "configuration 6, in force on 1 of 2 connected sidecars",
		"the books did not balance after 3 entries", "q-0 a:1 leader 0 now", "q-1 b:1 voter 0 now", "q-2 c:1 voter, silent 0 1m35s ago",
		"q-3 d:1 learner - -", "new 1 connected 6 1.2s ago b", "old 2 connected 5 12s ago b",
		"gone 18446744073709551615 lapsed - - -")
	m.LeaderId = ""
	if out := show(); !strings.Contains(out, "no leader at present") || strings.Contains(out, "in force on") {
		t.Errorf("without a leader:\n%s", out)
	}
}
