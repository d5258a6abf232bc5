package usage

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// TestKindsAreKeptAndSummed: an event comes back from its line as it was, and a row sums every kind of tokens there is.
func TestKindsAreKeptAndSummed(t *testing.T) {
	e := event(7)
	e.ServiceTier, e.RawUsage = "flex", []byte(`{"prompt_tokens":"3"}`)
	e.Tokens = &usagev1.Tokens{}
	fields := e.GetTokens().ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		e.Tokens.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfInt64(int64(i+1)))
	}
	line, err := encode(3, e)
	if err != nil {
		t.Fatal(err)
	}
	seq, again, err := decode(line)
	if err != nil || seq != 3 || !proto.Equal(e, again) {
		t.Errorf("written %v, read %v, %v", e, again, err)
	}
	rs := rows{}
	rs.add(e)
	rs.add(again)
	for _, r := range rs {
		for i := range fields.Len() {
			if got := r.GetTokens().ProtoReflect().Get(fields.Get(i)).Int(); got != 2*int64(i+1) {
				t.Errorf("%s: %d, want %d", fields.Get(i).Name(), got, 2*(i+1))
			}
		}
	}
	// The platform pays for whatever was used, whichever kind it was of.
	for i := range fields.Len() {
		lone := event(0)
		lone.PlatformPays, lone.Tokens = true, &usagev1.Tokens{}
		lone.GetTokens().ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfInt64(1))
		rs := rows{}
		rs.add(lone)
		if name := fields.Get(i).Name(); (len(rs) == 2) != (name != "reasoning") { // which is a part of the output
			t.Errorf("%s alone made %d rows", name, len(rs))
		}
	}
}
