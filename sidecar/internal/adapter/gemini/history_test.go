package gemini_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
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

// whole asks with a complete answer.
func whole(t *testing.T, body string) seen {
	t.Helper()
	out, u, f := gemini.New().Response(chat("{}", false), []byte(body), note)
	return seen{failure: f, body: string(out), usage: u}
}

// streamed asks with the events of a stream.
func streamed(t *testing.T, events ...string) seen {
	t.Helper()
	st := gemini.New().Stream(chat("{}", true), note)
	var out []byte
	for _, e := range events {
		was := st.Delivered()
		next, p := st.Event(out, nil, []byte(e))
		now := st.Delivered()
		if p.Real != (now.Bytes > was.Bytes) || p.Real != (now.Pieces > was.Pieces) || p.Failure != nil && len(next) > len(out) {
			t.Fatalf("%+v: %+v became %+v and %q was appended", p, was, now, next[len(out):])
		}
		if out = next; p.Failure != nil {
			return seen{failure: p.Failure, body: string(out), usage: st.Usage(), streamed: true}
		}
	}
	out, f := st.End(out)
	return seen{failure: f, body: string(out), usage: st.Usage(), streamed: true}
}

const twoCalls = `{"responseId":"r1","candidates":[{"content":{"role":"model","parts":[{"text":"Let me see.","thoughtSignature":"sigT+/="},` +
	`{"functionCall":{"name":"f","args":{"a": 1, "b": "x y"}},"thoughtSignature":"sig+/A=="},{"functionCall":{"name":"f"}}]},` +
	`"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"totalTokenCount":7}}`

// TestCallsRoundTrip: what the model called goes back to it as it came, with its signature: from extra_content, and from
// the id alone. Results stand in the order of their calls.
func TestCallsRoundTrip(t *testing.T) {
	for name, s := range map[string]seen{"whole": whole(t, twoCalls), "stream": streamed(t, twoCalls)} {
		t.Run(name, func(t *testing.T) {
			a := readAnswer(t, s)
			if s.failure != nil || a.finish != "tool_calls" || len(a.calls) != 2 || a.text != "Let me see." || len(a.details) != 1 {
				t.Fatalf("%+v %+v", s.failure, a)
			}
			c, d := a.calls[0], a.calls[1]
			if c.ID == d.ID || c.Type != "function" || c.Function.Name != "f" || c.Function.Arguments != `{"a":1,"b":"x y"}` ||
				d.Function.Arguments != "{}" || c.Extra.Google.Signature != "sig+/A==" || d.Extra.Google.Signature != "" {
				t.Fatalf("%+v", a.calls)
			}
			if strings.Trim(c.ID, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
				t.Errorf("id %q would not pass with other providers", c.ID)
			}
			call := func(c callJSON, extra string) string {
				return fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"f","arguments":%q}%s}`, c.ID, c.Function.Arguments, extra)
			}
			results := fmt.Sprintf(`,{"role":"tool","tool_call_id":%q,"content":"two"},{"role":"tool","tool_call_id":%q,"content":"{\"n\": 1}"},{"role":"user","content":"go"}`, d.ID, c.ID)
			want := contents(`{"role":"model","parts":[{"text":"Let me see.","thoughtSignature":"sigT+/="},` +
				`{"functionCall":{"name":"f","args":{"a":1,"b":"x y"}},"thoughtSignature":"sig+/A=="},{"functionCall":{"name":"f","args":{}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"n": 1}}},{"functionResponse":{"name":"f","response":{"output":"two"}}}]},` +
				`{"role":"user","parts":[{"text":"go"}]}`)
			head := `{"role":"assistant","content":"Let me see.","reasoning_details":[` + a.details[0] + `],"tool_calls":[`
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
	if a := readAnswer(t, whole(t, fmt.Sprintf(answer, ""))); len(a.calls) != 1 || a.calls[0].ID != "fc-1" {
		t.Errorf("%+v", a.calls)
	}
	a := readAnswer(t, whole(t, fmt.Sprintf(answer, `,"thoughtSignature":"s"`)))
	got := sent(t, "gemini-3", fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":%q,"type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":%q,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
		a.calls[0].ID, a.calls[0].ID))
	want := contents(`{"role":"model","parts":[{"functionCall":{"name":"f","id":"fc-1","args":{}},"thoughtSignature":"s"}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"f","id":"fc-1","response":{"output":"ab"}}}]}`)
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

// TestImagesOfTools: only newer models see images in results.
func TestImagesOfTools(t *testing.T) {
	const messages = `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]},` +
		`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}]}`
	const want = `{"functionResponse":{"name":"f","id":"c","response":{"output":"see"},"parts":[{"inlineData":{"mimeType":"image/png","data":"QQ=="}}]}}`
	if got := sent(t, "gemini-3", messages); !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	_, f := gemini.New().Request(chat(`{"messages":[`+messages+`]}`, false), &exchange.Deployment{Model: "gemini-2.5-pro"}, nil)
	if f == nil || f.Kind != exchange.FailUnsupported || f.Param != "messages[1].content" {
		t.Errorf("%+v", f)
	}
}
