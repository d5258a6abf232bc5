package bedrock

import (
	"slices"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestHostile: streams that no documentation promises. Nothing of them may be lost, and nothing made up.
func TestHostile(t *testing.T) {
	call := func(members string) event {
		return event{"contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{` + members + `}}}`}
	}
	meter := func(usage string) event { return event{"metadata", `{"usage":` + usage + `}`} }
	text, end := delta(0, `{"text":"Hé"}`), stopped("end_turn")
	stated, none := exchange.Tokens{Input: 1, Output: 2}, exchange.Tokens{Input: 40, Output: int64(len("Hé"))}
	for name, c := range map[string]struct {
		events             []event
		content, reasoning string
		calls              []adaptertest.Call
		used               exchange.Tokens
	}{
		"usage as texts":               {[]event{start, text, end, meter(`{"inputTokens":"1","outputTokens":"2"}`)}, "Hé", "", nil, stated},
		"usage below zero":             {[]event{start, text, end, meter(`{"inputTokens":-1,"outputTokens":-2}`)}, "Hé", "", nil, none},
		"usage beyond any window":      {[]event{start, text, end, meter(`{"inputTokens":1,"outputTokens":1e30}`)}, "Hé", "", nil, none},
		"no usage":                     {[]event{start, text, end, meter(`null`)}, "Hé", "", nil, none},
		"no metadata":                  {[]event{start, text, end}, "Hé", "", nil, none},
		"metadata before the end":      {[]event{start, text, metadata, end}, "Hé", "", nil, stated},
		"more cached than it says":     {[]event{start, text, end, meter(`{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":-7,"cacheWriteInputTokens":3,"cacheDetails":[{"inputTokens":5,"ttl":"1h"},{"ttl":null}]}`)}, "Hé", "", nil, exchange.Tokens{Input: 1, Output: 2, CacheWrite1h: 5}},
		"the end twice":                {[]event{start, text, end, end, metadata, metadata}, "Hé", "", nil, stated},
		"an end without a reason":      {[]event{start, text, {"messageStop", `{}`}, metadata}, "Hé", "", nil, stated},
		"no start":                     {[]event{text, end, metadata}, "Hé", "", nil, stated},
		"new events, without a body":   {[]event{{"initial-response", ``}, start, {"novel", `not JSON`}, text, end, metadata}, "Hé", "", nil, stated},
		"a padding and nothing else":   {[]event{{"messageStart", ``}, text, {"contentBlockDelta", `{"p":"abcdefgh"}`}, {"contentBlockStop", `{"p":"a"}`}, end, metadata}, "Hé", "", nil, stated},
		"deltas that are null":         {[]event{start, delta(0, `null`), delta(0, `{"text":null}`), delta(0, `{"reasoningContent":null}`), delta(0, `{"reasoningContent":{"text":null}}`), text, end, metadata}, "Hé", "", nil, stated},
		"thinking between texts":       {[]event{start, delta(0, `{"reasoningContent":{"text":"one"}}`), delta(0, `{"reasoningContent":{"signature":"s1"}}`), delta(0, `{"reasoningContent":{"signature":"s2"}}`), delta(1, `{"text":"H"}`), delta(2, `{"reasoningContent":{"text":"two"}}`), delta(3, `{"text":"é"}`), end, metadata}, "Hé", "onetwo", nil, stated},
		"a call without an id":         {[]event{start, call(`"name":"f"`), delta(1, `{"toolUse":{"input":"{}"}}`), end, metadata}, "", "", []adaptertest.Call{{"call_1s92hc4bjx7rc", "f", "{}"}}, stated},
		"nothing between arguments":    {[]event{start, call(`"toolUseId":"t","name":"f"`), delta(1, `{"toolUse":{"input":"{"}}`), delta(1, `{"text":""}`), delta(1, `{"toolUse":{"input":null}}`), delta(1, `{"toolUse":{"input":"}"}}`), end, metadata}, "", "", []adaptertest.Call{{"t", "f", "{}"}}, stated},
		"arguments as an object":       {[]event{start, call(`"toolUseId":"t","name":"f"`), delta(1, `{"toolUse":{"input":{"a": "\n"}}}`), end, metadata}, "", "", []adaptertest.Call{{"t", "f", `{"a":"\n"}`}}, stated},
		"a text in the midst of calls": {[]event{start, call(`"toolUseId":"t","name":"f"`), text, call(`"toolUseId":"u","name":"f"`), end, metadata}, "Hé", "", []adaptertest.Call{{"t", "f", "{}"}, {"u", "f", "{}"}}, stated},
	} {
		t.Run(name, func(t *testing.T) {
			finish := "stop"
			if c.calls != nil {
				finish = "tool_calls"
			}
			adaptertest.Cut(t, frames(t, c.events...), func(t *testing.T, pieces ...[]byte) {
				p := play(t, pieces...)
				if p.Failure != nil {
					t.Fatalf("%+v", p.Failure)
				}
				s := adaptertest.ReadStream(t, p.Body, true)
				if n := p.Outcome.Delivered.Bytes; s.Text != n {
					t.Errorf("%d bytes of text arrived, %d were counted", s.Text, n)
				}
				if got := s.First(); got.Content != c.content || got.Reasoning != c.reasoning || got.Finish != finish ||
					!slices.Equal(got.Calls, c.calls) || p.Usage.Tokens != c.used {
					t.Errorf("%+v, usage %+v", got, p.Usage)
				}
			})
		})
	}
}

// TestHostileAnswers is the same of answers that come whole.
func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct{ content, message string }{
		"parts that are null":    {`[null,{"text":null},{"novel":{"text":"x"}},{"text":"H"},{"toolUse":null},{"reasoningContent":null}]`, `{"role":"assistant","content":"H","refusal":null}`},
		"arguments of all kinds": {`[{"toolUse":{"toolUseId":"t","name":"f","input":"{\"a\":1}"}},{"toolUse":{"toolUseId":"u","name":"f","input":[1, 2]}}]`, `{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"u","type":"function","function":{"name":"f","arguments":"[1,2]"}}]}`},
		"a call of nobody":       {`[{"toolUse":{}}]`, `{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"call_1s92hc4bjx7rc","type":"function","function":{"name":"","arguments":"{}"}}]}`},
	} {
		out, u, f := New().Response(chat(false), []byte(`{"output":{"message":{"content":`+c.content+`}},"stopReason":"end_turn","usage":{"outputTokens":"x"}}`), note)
		if got := gjson.GetBytes(out, "choices.0.message").Raw; f != nil || got != c.message || u.Source != exchange.FromEstimate {
			t.Errorf("%s: %+v %s", name, f, got)
		}
	}
}
