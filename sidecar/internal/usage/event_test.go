package usage

import (
	"testing"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
)

// TestPlatformPays: a failed attempt counts for its team as an attempt and an error; what it used is on the platform's
// account, and there is no row of the platform's when that is nothing.
func TestPlatformPays(t *testing.T) {
	failed := func(cost, input int64, platform bool) *usagev1.Event {
		e := event(cost)
		e.Billed, e.Status, e.PlatformPays, e.Tokens.Input = false, usagev1.Status_STATUS_FAILED, platform, input
		return e
	}
	sums := func(events ...*usagev1.Event) map[string][5]int64 {
		rs := rows{}
		for _, e := range events {
			rs.add(e)
		}
		out := map[string][5]int64{}
		for k, r := range rs {
			out[k.team] = [5]int64{r.GetAttempts(), r.GetErrors(), r.GetRequests(), r.GetTokens().GetInput(), r.GetCostNano()}
		}
		return out
	}
	for name, c := range map[string]struct {
		events         []*usagev1.Event
		team, platform [5]int64
	}{
		"the platform":        {[]*usagev1.Event{failed(5, 3, true), event(7)}, [5]int64{2, 1, 1, 1, 7}, [5]int64{0, 0, 0, 3, 5}},
		"the team":            {[]*usagev1.Event{failed(5, 3, false), event(7)}, [5]int64{2, 1, 1, 4, 12}, [5]int64{}},
		"nothing to pay":      {[]*usagev1.Event{failed(0, 0, true)}, [5]int64{1, 1, 0, 0, 0}, [5]int64{}},
		"served at no charge": {[]*usagev1.Event{failed(0, 3, true)}, [5]int64{1, 1, 0, 0, 0}, [5]int64{0, 0, 0, 3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := sums(c.events...)
			if got["t"] != c.team || got[platform] != c.platform {
				t.Errorf("got %v, want %v and %v", got, c.team, c.platform)
			}
			if _, row := got[platform]; row != (c.platform != [5]int64{}) {
				t.Errorf("rows %v", got)
			}
		})
	}
}
