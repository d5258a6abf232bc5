package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/reflect/protoreflect"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// TestEveryKindIsTold: each kind of tokens is in the usage event, and in GET /v1/usage under the name it has there.
func TestEveryKindIsTold(t *testing.T) {
	used := exchange.Tokens{
		Input: 1, CacheRead: 2, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5, Reasoning: 6, InputAudio: 7, OutputAudio: 8, InputImage: 9,
		WebSearches: 10, OutputImage: 11,
	}
	got := protoTokens(used)
	fields := (&usagev1.Tokens{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if v := got.ProtoReflect().Get(fields.Get(i)); v.Int() != int64(fields.Get(i).Number()) {
			t.Errorf("%s: %d", fields.Get(i).Name(), v.Int())
		}
		if fields.Get(i).Kind() != protoreflect.Int64Kind {
			t.Errorf("%s is no count", fields.Get(i).Name())
		}
	}
	want := usageTokens{
		Input: 1, CacheRead: 2, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5, Reasoning: 6, InputAudio: 7, OutputAudio: 8, InputImage: 9,
		WebSearches: 10, OutputImage: 11,
	}
	if row := rowOf(&quotav1.UsageRow{Tokens: got}, nil); row.Tokens != want {
		t.Errorf("told: %+v", row.Tokens)
	}
}

func TestRawUsageIsBounded(t *testing.T) {
	for n, kept := range map[int]bool{0: false, 1: true, rawUsageMax: true, rawUsageMax + 1: false} {
		if got := rawUsage(strings.Repeat("x", n)); len(got) > 0 != kept || kept && len(got) != n {
			t.Errorf("of %d bytes %d are kept", n, len(got))
		}
	}
}

// swift answers as Anthropic does, with more members of usage, whole or streamed.
func swift(more string, stream bool) http.HandlerFunc {
	usage := `{"input_tokens":10,"output_tokens":5` + more + `}`
	whole := `{"id":"m","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":` + usage + `}`
	return func(w http.ResponseWriter, _ *http.Request) {
		if !stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{
			`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"c","content":[],"stop_reason":null,"usage":` + usage + `}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`, `{"type":"message_stop"}`,
		} {
			_, _ = io.WriteString(w, "event: "+gjson.Get(data, "type").Str+"\ndata: "+data+"\n\n")
		}
	}
}

// TestSpeedAndGeography: what Anthropic served fast, or kept in a geography, costs as many times as the price lists, whoever
// asked for it. Where it lists none, nobody is served so: it may cost many times as much.
func TestSpeedAndGeography(t *testing.T) {
	const plain = 10*2_000 + 5*10_000 // nano-dollars
	listed := func(s *quotav1.Snapshot) {
		s.Prices[0].Prices[0].Speeds = []*quotav1.ServiceTier{{Name: "fast", TimesNano: 6_000_000_000}}
		s.Prices[0].Prices[0].InferenceGeos = []*quotav1.ServiceTier{{Name: "us", TimesNano: 1_100_000_000}}
	}
	for name, c := range map[string]struct {
		asked, stated string
		prices        func(*quotav1.Snapshot)
		cost          int64
		param         string // of the refusal
		counted       bool   // among what has no price
	}{
		"as usual":              {``, `,"speed":"standard","inference_geo":"global"`, listed, plain, "", false},
		"fast":                  {`"speed":"fast"`, `,"speed":"fast","inference_geo":"not_available"`, listed, plain * 6, "", false},
		"nothing is said of it": {`"speed":"fast"`, ``, listed, plain * 6, "", false},
		"no room to be fast":    {`"speed":"fast"`, `,"speed":"standard"`, listed, plain, "", false},
		"both":                  {`"speed":"fast","inference_geo":"us"`, `,"speed":"fast","inference_geo":"us"`, listed, plain * 66 / 10, "", false},
		"a setting of theirs":   {``, `,"inference_geo":"us"`, listed, plain * 11 / 10, "", false},
		"one that has no price": {``, `,"inference_geo":"moon"`, listed, plain, "", true},
		"a speed not for sale":  {`"speed":"fast"`, ``, nil, 0, "speed", false},
		"nor a geography":       {`"inference_geo":"us"`, ``, nil, 0, "inference_geo", false},
		"asked for the usual":   {`"speed":"standard","inference_geo":"global"`, ``, nil, plain, "", false},
	} {
		for form, stream := range map[string]bool{"whole": false, "streamed": true} {
			t.Run(name+"/"+form, func(t *testing.T) {
				p := &provider{id: "claude", dialect: "anthropic", model: "claude-x", answer: swift(c.stated, stream)}
				r := newRig(t, []*provider{p}, func(s *quotav1.Snapshot) {
					limited(100, 100_000, 50_000, allMoney)(s)
					if c.prices != nil {
						c.prices(s)
					}
				})
				body := greeting
				if c.asked != "" {
					body = strings.Replace(body, "{", "{"+c.asked+",", 1)
				}
				if stream {
					body = strings.Replace(body, "{", `{"stream":true,`, 1)
				}
				a := r.messages(body)
				if c.param != "" {
					if a.status != 400 || a.get("error.details.param").Str != c.param || p.calls.Load() != 0 {
						t.Errorf("%d after %d calls: %s", a.status, p.calls.Load(), a.body)
					}
					return
				}
				r.eventually("it is settled", func() bool { return r.g.Lease.Stats().OpenHolds == 0 })
				ev := r.attempts()
				if a.status != 200 || len(ev) != 1 || ev[0].Get("cost_nano").Int() != c.cost {
					t.Fatalf("%d %s, events %v, want %d", a.status, a.body, ev, c.cost)
				}
				if left, _, _, _ := r.g.Lease.Remaining(teamMoney); left != allMoney-c.cost {
					t.Errorf("%d of the budget is gone, want %d", allMoney-left, c.cost)
				}
				families, err := r.counts.Gather()
				r.must(err)
				counted := false
				for _, f := range families {
					counted = counted || f.GetName() == "sluice_unpriced_tiers_total"
				}
				if counted != c.counted {
					t.Errorf("counted as without a price: %v", counted)
				}
			})
		}
	}
}
