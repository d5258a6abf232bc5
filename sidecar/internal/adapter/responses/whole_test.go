package responses_test

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
)

func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"id":"c1","model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":{"a":1}}},{"id":"t2"}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`))
	f.Add([]byte(`{"id":"r","model":"m","x_gateway":{},"output":[{"type":"message","content":[{"text":"a"}]}],"usage":{"input_tokens":1,"output_tokens":2,"input_tokens_details":{"cached_tokens":9}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, ad := range []adapter.Adapter{responses.Face{Adapter: openai.New()}, native(t)} {
			out, u, failure := ad.Response(ask(false), body, note)
			if (failure == nil) != adapter.Valid(out) {
				t.Fatalf("%+v %q", failure, out)
			}
			for _, n := range [...]int64{u.Input, u.CacheRead, u.CacheWrite5m, u.InputAudio, u.Output, u.OutputAudio, u.Reasoning} {
				if n < 0 {
					t.Fatalf("usage %+v", u)
				}
			}
			if failure == nil {
				if out, failure = native(t).(adapter.Replayer).Replay(nil, out, u).End(nil); failure != nil || len(out) == 0 {
					t.Fatalf("%+v %q", failure, out)
				}
			}
		}
	})
}
