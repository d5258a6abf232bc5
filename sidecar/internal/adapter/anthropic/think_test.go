package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestMindOf(t *testing.T) {
	for model, want := range map[string]mind{
		"claude-instant-1.2": mindNone, "claude-2.1": mindNone, "claude-3-opus-20240229": mindNone,
		"claude-3-5-sonnet-20241022": mindNone, "claude-3-haiku-20240307": mindNone,
		"claude-3-7-sonnet-20250219": mindBudget, "claude-sonnet-4-20250514": mindBudget, "claude-opus-4": mindBudget,
		"claude-opus-4-0": mindBudget, "claude-opus-4-1-20250805": mindBudget, "claude-sonnet-4@20250514": mindBudget,
		"claude-haiku-4-5": mindBudget, "anthropic.claude-sonnet-4-5-20250929-v1:0": mindBudget,
		"claude-opus-4-6": mindAdaptive, "claude-sonnet-4-6-20260101": mindAdaptive, "claude-opus-4-10": mindAdaptive,
		"claude-opus-5-5": mindAdaptive, "claude-fx-5": mindAdaptive, "": mindAdaptive,
	} {
		if got := mindOf(model); got != want {
			t.Errorf("%q: got %d, want %d", model, got, want)
		}
	}
}

// TestBudget: models that take a number get one of at least 1,024 that is below max_tokens.
func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		effort       string
		cap, byAlias int64
		max, budget  int64
	}{
		"as wished":             {"low", 10_000, 0, 10_000, 2_048},
		"the least":             {"minimal", 10_000, 0, 10_000, 1_024},
		"the answer has room":   {"high", 6_000, 0, 6_000, 4_976},
		"a small cap is raised": {"high", 100, 0, 2_048, 1_024},
		"the alias's cap":       {"medium", 0, 9_216, 9_216, 8_192},
		"no cap at all":         {"medium", 0, 0, 4_096 + 8_192, 8_192},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{
				Operation: exchange.Chat, Body: []byte(`{` + hi + `,"reasoning_effort":"` + c.effort + `"}`),
				MaxOutput: c.cap, DefaultOutput: c.byAlias,
			}
			call, f := New().Request(r, &exchange.Deployment{Model: "claude-sonnet-4-5"}, nil)
			if f != nil {
				t.Fatal(f)
			}
			b := gjson.ParseBytes(call.Body)
			if b.Get("max_tokens").Int() != c.max || b.Get("thinking.budget_tokens").Int() != c.budget ||
				b.Get("thinking.type").Str != "enabled" || b.Get("output_config").Exists() {
				t.Errorf("%s", call.Body)
			}
		})
	}
}

func TestOldModels(t *testing.T) {
	for body, param := range map[string]string{
		`"reasoning_effort":"low"`: "reasoning_effort",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}`: "response_format",
	} {
		r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{` + hi + `,` + body + `}`)}
		_, f := New().Request(r, &exchange.Deployment{Model: "claude-3-5-sonnet-20241022"}, nil)
		if f == nil || f.Kind != exchange.FailUnsupported || f.Param != param {
			t.Errorf("%s: %+v", body, f)
		}
	}
	r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{` + hi + `,"reasoning_effort":"none"}`)}
	call, f := New().Request(r, &exchange.Deployment{Model: "claude-3-5-sonnet-20241022"}, nil)
	if f != nil || gjson.GetBytes(call.Body, "thinking").Exists() {
		t.Errorf("%+v %s", f, call.Body)
	}
}

// TestAllowDropped: what an alias names may go, and nothing else.
func TestAllowDropped(t *testing.T) {
	r := &exchange.Request{
		Operation: exchange.Chat, AllowDropped: []string{"seed", "temperature", "tool_choice", "messages"},
		Body: []byte(`{` + hi + `,"seed":1,"temperature":0.3,"reasoning_effort":"low","tool_choice":"required","tools":[` + tideIn + `]}`),
	}
	d := &exchange.Deployment{Model: "claude-fx-5"}
	call, f := New().Request(r, d, nil)
	want := head + hiOut + `,"tools":[` + tideOut + `],"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`
	if f != nil || string(call.Body) != want {
		t.Errorf("%v\ngot  %s\nwant %s", f, call.Body, want)
	}
	for body, param := range map[string]string{
		`{` + hi + `,"seed":1,"n":2}`: "n",
		`{"messages":[{"role":"user","content":[{"type":"input_audio"}]}],"seed":1}`: "messages[0].content[0]",
		`{` + hi + `,"temperature":"hot"}`:                                           "temperature",
	} {
		r.Body = []byte(body)
		if _, f := New().Request(r, d, nil); f == nil || f.Param != param {
			t.Errorf("%s: %+v", body, f)
		}
	}
}

const (
	thinkText = `Is 1 \u003c 2? \"é\"\n`
	thinkSig  = `EqFX+/sig==`
	blocksIn  = `{"type":"thinking","thinking":"` + thinkText + `","signature":"` + thinkSig + `"},` +
		`{"type":"redacted_thinking","data":"OPAQUE+/=="},{"type":"thinking","thinking":"","signature":"omitted"}`
)

// nextTurn sends a message back and returns the blocks the provider then gets of it.
func nextTurn(t *testing.T, message string) string {
	t.Helper()
	r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{"messages":[{"role":"user","content":"q"},` + message + `,{"role":"user","content":"r"}]}`)}
	call, f := New().Request(r, &exchange.Deployment{Model: "claude-fx-5"}, nil)
	if f != nil {
		t.Fatalf("%+v for %s", f, message)
	}
	return gjson.GetBytes(call.Body, "messages.1.content").Raw
}

// TestThinkingComesBack: what a model thought goes to the caller and comes back as the blocks it was, byte for byte.
func TestThinkingComesBack(t *testing.T) {
	want := `[` + blocksIn + `,{"type":"text","text":"Yes."}]`
	t.Run("complete", func(t *testing.T) {
		body := `{"id":"m","type":"message","content":[` + blocksIn + `,{"type":"text","text":"Yes."}],"stop_reason":"end_turn"}`
		out, _, f := New().Response(chat(false), []byte(body), note)
		if f != nil {
			t.Fatal(f)
		}
		m := gjson.GetBytes(out, "choices.0.message")
		if got := m.Get("reasoning_content").Raw; got != `"`+thinkText+`"` {
			t.Errorf("reasoning_content %s", got)
		}
		if got := nextTurn(t, m.Raw); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
	piece := func(i, kind, member, text string) string {
		return `{"type":"content_block_delta","index":` + i + `,"delta":{"type":"` + kind + `","` + member + `":"` + text + `"}}`
	}
	start := func(i, block string) string {
		return `{"type":"content_block_start","index":` + i + `,"content_block":` + block + `}`
	}
	const empty = `{"type":"thinking","thinking":"","signature":""}`
	out, _, f := translate(t, chat(true), evStart,
		start("0", empty), piece("0", "thinking_delta", "thinking", `Is 1 \u003c`), piece("0", "thinking_delta", "thinking", ` 2? \"é\"\n`),
		piece("0", "signature_delta", "signature", thinkSig), evStop,
		start("1", `{"type":"redacted_thinking","data":"OPAQUE+/=="}`), evStop,
		start("2", empty), piece("2", "signature_delta", "signature", "omitted"), evStop,
		start("3", `{"type":"text","text":""}`), piece("3", "text_delta", "text", "Yes."), evStop, evEnd, evDone)
	if f != nil {
		t.Fatal(f)
	}
	for name, join := range map[string]func(list []map[string]any, e map[string]any) []map[string]any{
		// openai-python puts pieces of one index together by joining their strings.
		"pieces joined by a client": func(list []map[string]any, e map[string]any) []map[string]any {
			n := len(list)
			if n == 0 || list[n-1]["index"] != e["index"] {
				return append(list, e)
			}
			for k, v := range e {
				if was, ok := list[n-1][k].(string); ok && k != "type" {
					v = was + v.(string)
				}
				list[n-1][k] = v
			}
			return list
		},
		"pieces as they came": func(list []map[string]any, e map[string]any) []map[string]any { return append(list, e) },
	} {
		t.Run(name, func(t *testing.T) {
			var list []map[string]any
			for _, ev := range adaptertest.Events(t, out) {
				gjson.Get(ev.Data, "choices.0.delta.reasoning_details").ForEach(func(_, e gjson.Result) bool {
					m := map[string]any{}
					if err := json.Unmarshal([]byte(e.Raw), &m); err != nil {
						t.Fatal(err)
					}
					list = join(list, m)
					return true
				})
			}
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(list); err != nil {
				t.Fatal(err)
			}
			got := nextTurn(t, `{"role":"assistant","content":"Yes.","reasoning_details":`+b.String()+`}`)
			if want := strings.Replace(want, `\u003c`, "<", 1); got != want { // the client decoded it
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestThinkingFromElsewhere(t *testing.T) {
	for name, c := range map[string]struct{ member, want string }{
		"LiteLLM's name":    {`"thinking_blocks":[` + blocksIn + `]`, blocksIn + `,`},
		"no signature":      {`"reasoning_details":[{"type":"reasoning.text","text":"hm"}]`, ``},
		"of another vendor": {`"reasoning_details":[{"type":"reasoning.encrypted","data":"x","format":"openai-responses-v1"}]`, ``},
		"a summary":         {`"reasoning_details":[{"type":"reasoning.summary","summary":"x","signature":"s"}]`, ``},
		"null":              {`"reasoning_details":null,"thinking_blocks":null`, ``},
		"text alone":        {`"reasoning_content":"hm"`, ``},
		"two of the same, apart": {`"reasoning_details":[{"type":"reasoning.text","text":"a","signature":"1"},{"type":"reasoning.text","text":"b","signature":"2"}]`,
			`{"type":"thinking","thinking":"a","signature":"1"},{"type":"thinking","thinking":"b","signature":"2"},`},
	} {
		t.Run(name, func(t *testing.T) {
			got := nextTurn(t, `{"role":"assistant","content":"Yes.",`+c.member+`}`)
			if want := `[` + c.want + `{"type":"text","text":"Yes."}]`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{"messages":[{"role":"assistant","content":"a","reasoning_details":"x"}]}`)}
	if _, f := New().Request(r, &exchange.Deployment{}, nil); f == nil || f.Param != "messages[0].reasoning_details" {
		t.Errorf("%+v", f)
	}
}

// TestSignatureIsNotReal: a signature or encrypted thinking alone must not end the time in which another deployment
// may be tried.
func TestSignatureIsNotReal(t *testing.T) {
	s := newStream(chat(true), note)
	for _, ev := range []string{
		evStart, `{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x"}}`, evStop,
		`{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":"s"}}`, evStop,
	} {
		if _, p := s.Event(nil, nil, []byte(ev)); p.Real || p.Failure != nil {
			t.Errorf("%s: %+v", ev, p)
		}
	}
	if _, p := s.Event(nil, nil, []byte(evHello)); !p.Real {
		t.Error("text is not real")
	}
}
