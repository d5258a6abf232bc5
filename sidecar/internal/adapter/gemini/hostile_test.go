package gemini_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestHostile: answers that no documentation promises. Nothing of them may be lost, and nothing made up.
func TestHostile(t *testing.T) {
	part := func(parts string) string { return `{"candidates":[{"content":{"parts":` + parts + `}}]}` }
	ends := func(usage string) string {
		return `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":` + usage + `}`
	}
	const (
		hello = `{"candidates":[{"content":{"role":"model","parts":[{"text":"Hé"}]},"index":0}]}`
		used  = `{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13}`
	)
	stated, none := exchange.Tokens{Input: 9, Output: 4}, exchange.Tokens{Input: 40, Output: 3}
	for name, c := range map[string]struct {
		events          []string
		text, reasoning string
		calls           string // names and arguments
		used            exchange.Tokens
	}{
		"usage that grows, and falls at the end": {[]string{hello, strings.Replace(hello, `]}`, `]},"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":99}`, 1), ends(used)}, "HéHé", "", "", stated},
		"usage of the prompt alone":              {[]string{`{"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9}}`, hello, ends(`{"promptTokenCount":9,"totalTokenCount":9}`)}, "Hé", "", "", none},
		"usage of the output alone":              {[]string{hello, ends(`{"candidatesTokenCount":4}`)}, "Hé", "", "", none},
		"usage as texts":                         {[]string{hello, ends(`{"promptTokenCount":"9","candidatesTokenCount":"4"}`)}, "Hé", "", "", stated},
		"usage below zero":                       {[]string{hello, ends(`{"promptTokenCount":9,"candidatesTokenCount":-4}`)}, "Hé", "", "", none},
		"usage beyond any window":                {[]string{hello, ends(`{"promptTokenCount":9,"candidatesTokenCount":1e30}`)}, "Hé", "", "", none},
		"more cached than there was":             {[]string{hello, ends(`{"promptTokenCount":9,"candidatesTokenCount":4,"cachedContentTokenCount":99}`)}, "Hé", "", "", exchange.Tokens{CacheRead: 9, Output: 4}},
		"the end twice, and usage behind it":     {[]string{hello, ends(`null`), ends(`{}`), `{"usageMetadata":` + used + `}`}, "Hé", "", "", stated},
		"an end that is said to be none":         {[]string{strings.Replace(hello, `"index"`, `"finishReason":"FINISH_REASON_UNSPECIFIED","index"`, 1), ends(used)}, "Hé", "", "", stated},
		"candidates that are null":               {[]string{`{"candidates":null}`, `{"candidates":[]}`, hello, `{"candidates":[{"content":null}]}`, part("null"), part("[null,7]"), ends(used)}, "Hé", "", "", stated},
		"texts that are null":                    {[]string{part(`[{"text":null},{"text":null,"thought":true},{"thoughtSignature":null}]`), hello, ends(used)}, "Hé", "", "", stated},
		"kinds of parts that nobody knows":       {[]string{part(`[{"novel":{"text":"x"}},{"text":"Hé","novel":1}]`), ends(used)}, "Hé", "", "", stated},
		"thoughts between texts, signed twice": {[]string{
			part(`[{"text":"one","thought":true},{"text":"","thoughtSignature":"s1"},{"text":"Hé"},{"text":"two","thought":true,"thoughtSignature":"s2"}]`), ends(used),
		}, "Hé", "onetwo", "", stated},
		"arguments as a text, a list, and none": {[]string{
			part(`[{"functionCall":{"name":"f","args":"{\"a\":1}"}},{"functionCall":{"name":"g","args":[1, 2]}},{"functionCall":{"name":"h","args":null}},{"functionCall":{"args":{}}}]`), ends(used),
		}, "", "", `f{"a":1} g[1,2] h{} {}`, stated},
		"an id that is null, and one that is not": {[]string{
			part(`[{"functionCall":{"id":null,"name":"f","args":{}}},{"functionCall":{"id":"x","name":"f","args":{}}}]`), ends(used),
		}, "", "", `f{} f{}`, stated},
	} {
		t.Run(name, func(t *testing.T) {
			s := streamed(t, c.events...)
			if s.failure != nil {
				t.Fatalf("%+v", s.failure)
			}
			a, _ := s.read(t)
			var calls []string
			ids := map[string]bool{"": true}
			for _, x := range a.Calls {
				if ids[x.ID] {
					t.Errorf("the id %q", x.ID)
				}
				ids[x.ID] = true
				calls = append(calls, x.Name+x.Arguments)
			}
			want := "stop"
			if c.calls != "" {
				want = "tool_calls"
			}
			if c.used == none { // one for each byte that was delivered
				c.used.Output = int64(len(c.text) + len(c.reasoning))
			}
			if a.Content != c.text || a.Reasoning != c.reasoning || strings.Join(calls, " ") != c.calls || a.Finish != want || s.usage.Tokens != c.used {
				t.Errorf("%+v, usage %+v", a, s.usage)
			}
		})
	}
	for name, events := range map[string][]string{
		"an error behind the text":   {hello, `{"error":{"code":"503","message":"busy","status":"UNAVAILABLE"}}`},
		"an error beside the text":   {strings.Replace(hello, "{", `{"error":{"code":503,"message":"busy"},`, 1)},
		"an end that is none at all": {strings.Replace(hello, `"index"`, `"finishReason":"FINISH_REASON_UNSPECIFIED","index"`, 1)},
	} {
		if s := streamed(t, events...); s.failure == nil || !slices.Contains([]exchange.FailureKind{exchange.FailOverloaded, exchange.FailCut}, s.failure.Kind) {
			t.Errorf("%s: %+v", name, s.failure)
		}
	}
}

// TestHostileAnswers is the same of answers that come whole.
func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct{ body, message string }{
		"no end":                   {`{"candidates":[{"content":{"parts":[{"text":"H"}]}}]}`, `{"role":"assistant","content":"H","refusal":null}`},
		"an end that is none":      {`{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED","content":{"parts":[{"text":"H"}]}}]}`, `{"role":"assistant","content":"H","refusal":null}`},
		"nothing where parts are":  {`{"candidates":[{"content":{"parts":null,"role":null},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9}}`, `{"role":"assistant","content":"","refusal":null}`},
		"wrapped in a list":        {`[{"candidates":[{"content":{"parts":[{"text":"H"}]},"finishReason":"STOP"}]}]`, `{"role":"assistant","content":"H","refusal":null}`},
		"an error that is nothing": {`{"error":null,"candidates":[{"content":{"parts":[{"text":"H"}]},"finishReason":"STOP"}]}`, `{"role":"assistant","content":"H","refusal":null}`},
	} {
		s := whole(t, c.body)
		if got := gjson.Get(s.body, "choices.0"); s.failure != nil || got.Get("message").Raw != c.message || got.Get("finish_reason").Str != "stop" {
			t.Errorf("%s: %+v %s", name, s.failure, s.body)
		}
	}
}
