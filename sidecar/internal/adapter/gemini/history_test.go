package gemini_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// sent is the contents that go out for such messages.
func sent(t *testing.T, model, messages string) string {
	t.Helper()
	call, f := gemini.New().Request(chat(`{"messages":[`+messages+`]}`, false), &exchange.Deployment{Model: model}, nil)
	if f != nil {
		t.Fatalf("%+v", f)
	}
	if !json.Valid(call.Body) {
		t.Fatalf("%s", call.Body)
	}
	return string(call.Body)
}

const twoCalls = `{"responseId":"r1","candidates":[{"content":{"role":"model","parts":[{"text":"Let me see.","thoughtSignature":"sigT+/="},` +
	`{"functionCall":{"name":"f","args":{"a": 1, "b": "x y"}},"thoughtSignature":"sig+/A=="},{"functionCall":{"name":"f"}}]},` +
	`"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"totalTokenCount":7}}`

// TestCallsRoundTrip: what the model called goes back to it as it came, with its signature: from extra_content, and from
// the id alone. Results stand in the order of their calls.
func TestCallsRoundTrip(t *testing.T) {
	for name, s := range map[string]seen{"whole": whole(t, twoCalls), "stream": streamed(t, twoCalls)} {
		t.Run(name, func(t *testing.T) {
			if s.failure != nil {
				t.Fatal(s.failure)
			}
			a, _ := s.read(t)
			if a.Finish != "tool_calls" || len(a.Calls) != 2 || a.Content != "Let me see." || len(a.Details) != 1 {
				t.Fatalf("%+v", a)
			}
			c, d := a.Calls[0], a.Calls[1]
			if c.ID == d.ID || c.Name != "f" || c.Arguments != `{"a":1,"b":"x y"}` || d.Name != "f" || d.Arguments != "{}" ||
				a.Extras[0] != `{"google":{"thought_signature":"sig+/A=="}}` || a.Extras[1] != "" {
				t.Fatalf("%+v", a)
			}
			if strings.Trim(c.ID, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
				t.Errorf("id %q would not pass with other providers", c.ID)
			}
			call := func(c adaptertest.Call, extra string) string {
				return fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":%q}%s}`, c.ID, c.Arguments, extra)
			}
			results := fmt.Sprintf(`,{"role":"tool","tool_call_id":%q,"content":"two"},{"role":"tool","tool_call_id":%q,"content":"{\"n\": 1}"},{"role":"user","content":"go"}`, d.ID, c.ID)
			want := contents(`{"role":"model","parts":[{"text":"Let me see.","thoughtSignature":"sigT+/="},` +
				`{"functionCall":{"name":"f","args":{"a":1,"b":"x y"}},"thoughtSignature":"sig+/A=="},{"functionCall":{"name":"f","args":{}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"n": 1}}},{"functionResponse":{"name":"f","response":{"output":"two"}}}]},` +
				`{"role":"user","parts":[{"text":"go"}]}`)
			head := `{"role":"assistant","content":"Let me see.","reasoning_details":[` + a.Details[0] + `],"tool_calls":[`
			kept := head + call(c, `,"extra_content":{"google":{"thought_signature":"sig+/A=="}}`) + "," + call(d, "") + "]}" + results
			if got := sent(t, "gemini-3", kept); got != want {
				t.Errorf("kept:\ngot  %s\nwant %s", got, want)
			}
			dropped := head + call(c, "") + "," + call(d, "") + "]}" + results
			if got := sent(t, "gemini-3", dropped); got != want {
				t.Errorf("dropped:\ngot  %s\nwant %s", got, want)
			}
		})
	}
}

// TestGivenIDs: an id that the provider gave is the caller's, and goes back.
func TestGivenIDs(t *testing.T) {
	const answer = `{"candidates":[{"content":{"parts":[{"functionCall":{"id":"fc-1","name":"f","args":{}}%s}]},"finishReason":"STOP"}]}`
	if a, _ := whole(t, fmt.Sprintf(answer, "")).read(t); len(a.Calls) != 1 || a.Calls[0].ID != "fc-1" {
		t.Errorf("%+v", a.Calls)
	}
	a, _ := whole(t, fmt.Sprintf(answer, `,"thoughtSignature":"s"`)).read(t)
	got := sent(t, "gemini-3", fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":%q,"type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":%q,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
		a.Calls[0].ID, a.Calls[0].ID))
	want := contents(`{"role":"model","parts":[{"functionCall":{"name":"f","id":"fc-1","args":{}},"thoughtSignature":"s"}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"f","id":"fc-1","response":{"output":["a","b"]}}}]}`)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestForeignCalls: newer models would refuse calls of another vendor's model, since these have no signature. They are
// told not to look for one. Older ones know nothing of it.
func TestForeignCalls(t *testing.T) {
	const messages = `{"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f"}},{"id":"call_2","type":"function","function":{"name":"g"}}],` +
		`"reasoning_details":[{"type":"reasoning.encrypted","format":"anthropic-claude-v1","data":"x"}]}`
	const calls = `{"role":"model","parts":[{"functionCall":{"name":"f","id":"call_1","args":{}}%s},{"functionCall":{"name":"g","id":"call_2","args":{}}}]}`
	if got, want := sent(t, "gemini-3-pro", messages), contents(fmt.Sprintf(calls, `,"thoughtSignature":"skip_thought_signature_validator"`)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := sent(t, "gemini-2.5-pro", messages), contents(fmt.Sprintf(calls, "")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestImagesOfTools: newer models see images in results, and others behind all of these.
func TestImagesOfTools(t *testing.T) {
	const messages = `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]},` +
		`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}]}`
	const want = `{"functionResponse":{"name":"f","id":"c","response":{"output":"see"},"parts":[{"inlineData":{"mimeType":"image/png","data":"QQ=="}}]}}`
	if got := sent(t, "gemini-3", messages); !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	const behind = `{"role":"user","parts":[{"functionResponse":{"name":"f","id":"c","response":{"output":"see"}}},{"functionResponse":{"name":"f","id":"d","response":{"output":""}}}]},` +
		`{"role":"user","parts":[{"text":"From the result of f"},{"inlineData":{"mimeType":"image/png","data":"QQ=="}},{"text":"From the result of f"},{"inlineData":{"mimeType":"image/png","data":"Qg=="}}`
	two := strings.Replace(messages, `"function":{"name":"f"}}`, `"function":{"name":"f"}},{"id":"d","type":"function","function":{"name":"f"}}`, 1) +
		`,{"role":"tool","tool_call_id":"d","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,Qg=="}}]}`
	for next, then := range map[string]string{
		``:                                       `]}`,
		`,{"role":"user","content":"go"}`:        `,{"text":"go"}]}`,
		`,{"role":"system","content":"s"}`:       `]}`,
		`,{"role":"assistant","content":"done"}`: `]},{"role":"model","parts":[{"text":"done"}]}`,
	} {
		if got := sent(t, "gemini-2.5-pro", two+next); !strings.Contains(got, behind+then) {
			t.Errorf("got  %s\nwant %s", got, behind+then)
		}
	}
}
