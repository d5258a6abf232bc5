package relay

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// chunks replays a completion and returns its events.
func chunks(t *testing.T, body string, usage bool) ([]string, *replay) {
	t.Helper()
	p := newReplay([]byte(body), exchange.Usage{Source: exchange.FromProvider}, usage)
	out, f := p.End(nil)
	if f != nil {
		t.Fatalf("got %+v", f)
	}
	var all []string
	var r sse.Reader
	r.Feed(out)
	for {
		ev, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all, p
		}
		if s := string(ev.Data); s != "[DONE]" && !gjson.Valid(s) {
			t.Fatalf("not JSON: %q", s)
		}
		all = append(all, string(ev.Data))
	}
}

func TestReplay(t *testing.T) {
	const base = `{"object":"chat.completion.chunk","id":"c","model":"m"`
	for _, tc := range []struct {
		name, body string
		usage      bool
		want       []string
		delivered  int64
	}{
		{
			"text", `{"id":"c","object":"chat.completion","model":"m","system_fingerprint":null,"choices":[{"index":0,"logprobs":null,` +
				`"message":{"role":"assistant","content":"héllo","refusal":null},"finish_reason":"stop"}],"usage":{"n":1}}`, false,
			[]string{
				base + `,"choices":[{"index":0,"delta":{"role":"assistant","content":"héllo"},"finish_reason":null}]}`,
				base + `,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
				"[DONE]",
			}, 6,
		},
		{
			"usage and our own member, over several lines",
			"{\n \"id\":\"c\",\r\n \"model\":\"m\",\n \"choices\": [\n ], \"usage\": {\"n\": 1},\n \"x_gateway\": {\"cost\": 2}\n}", true,
			[]string{base + `,"choices":[],"usage":{"n":1},"x_gateway":{"cost":2}}`, "[DONE]"}, 0,
		},
		{
			"tools and reasoning", `{"id":"c","model":"m","choices":[{"message":{"content":null,"reasoning_content":"hm","tool_calls":[` +
				`{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"index":5,"id":"b"}]},"finish_reason":"tool_calls"}]}`, true,
			[]string{
				base + `,"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"},"finish_reason":null}],"usage":null}`,
				base + `,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f",` +
					`"arguments":"{\"x\":1}"}},{"index":1,"id":"b"}]},"finish_reason":null}],"usage":null}`,
				base + `,"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null}`,
				"[DONE]",
			}, 9,
		},
		{
			"two choices", `{"id":"c","model":"m","choices":[{"index":1,"message":{"content":"b"},"logprobs":{"content":[]}},` +
				`{"index":0,"message":{"content":"a"},"finish_reason":"length"}]}`, false,
			[]string{
				base + `,"choices":[{"index":1,"delta":{"role":"assistant","content":"b"},"logprobs":{"content":[]},"finish_reason":null}]}`,
				base + `,"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`,
				base + `,"choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}`,
				base + `,"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`,
				"[DONE]",
			}, 2,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, p := chunks(t, tc.body, tc.usage)
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			if p.Delivered().Bytes != tc.delivered {
				t.Fatalf("got %d delivered, want %d", p.Delivered().Bytes, tc.delivered)
			}
		})
	}
}

func FuzzReplay(f *testing.F) {
	f.Add(`{"id":"c","choices":[{"message":{"content":"a","tool_calls":[{"id":"x"}]}}],"usage":{}}`)
	f.Add(`{"choices":[{"message":{"a":"\n"}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if !gjson.Valid(body) {
			return // an adapter's Response gives JSON
		}
		if got, _ := chunks(t, body, true); got[len(got)-1] != "[DONE]" {
			t.Fatalf("got %q", got)
		}
	})
}
