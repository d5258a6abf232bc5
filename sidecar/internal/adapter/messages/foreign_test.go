package messages

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// both is the content of one answer, whole and as a client puts its stream together.
func both(t *testing.T, message, finish string, deltas ...string) map[string]string {
	t.Helper()
	body := `{"id":"c1","object":"chat.completion","created":1,"model":"x","choices":[{"index":0,"message":` + message + `,"finish_reason":` + finish + `}]}`
	whole, _, f := Face{openai.New()}.Response(&exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`)}, []byte(body), note)
	if f != nil {
		t.Fatal(f)
	}
	var chunks []string
	for _, d := range deltas {
		chunks = append(chunks, chunk(d, "null"))
	}
	streamed := run(t, append(chunks, chunk(`{}`, finish), counted, "[DONE]")...)
	return map[string]string{"whole": gjson.GetBytes(whole, "content").Raw, "streamed": assembled(t, streamed)}
}

// back is the assistant's message that the provider gets when a caller sends the content back.
func back(t *testing.T, content string) gjson.Result {
	t.Helper()
	next, f := Chat([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":`+content+`},{"role":"user","content":"r"}]}`), nil)
	if f != nil {
		t.Fatalf("%s: %+v", content, f)
	}
	return gjson.GetBytes(next, "messages.1")
}

// TestUnsigned: what was thought and signed by nobody goes back under the name it came by. Some vendors refuse a turn with
// calls without it.
func TestUnsigned(t *testing.T) {
	const call = `"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}}]`
	for name, content := range both(t, `{"content":"so","reasoning_content":"h\"m",`+call+`}`, `"tool_calls"`,
		`{"reasoning_content":"h\""}`, `{"reasoning_content":"m"}`, `{"content":"so"}`, `{`+call+`}`) {
		m := back(t, content)
		if m.Get("reasoning_content").Raw != `"h\"m"` || m.Get("reasoning_details").Exists() || m.Get("content").Str != "so" {
			t.Errorf("%s: %s from %s", name, m.Raw, content)
		}
	}
}

// TestLate: signatures may come when the thinking is over, and must not cut texts and calls in two.
func TestLate(t *testing.T) {
	const (
		sealed = `{"type":"reasoning.encrypted","format":"vendor-v1","index":1,"data":"CD"}`
		signed = `{"type":"reasoning.text","format":"vendor-v1","index":2,"text":"","signature":"EF"}`
		list   = `"reasoning_details":[` + sealed + `,` + signed + `]`
		begin  = `{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}`
		end    = `{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`
		whole  = `"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]`
	)
	for name, row := range map[string]struct {
		message, finish string
		deltas          []string
	}{
		"behind a text": {`{"content":"so",` + list + `}`, `"stop"`, []string{`{"content":"so"}`, `{"reasoning_details":[` + sealed + `]}`, `{"reasoning_details":[` + signed + `]}`}},
		"within one":    {`{"content":"so",` + list + `}`, `"stop"`, []string{`{"content":"s"}`, `{` + list + `}`, `{"content":"o"}`}},
		"within a call": {`{"content":null,` + list + `,` + whole + `}`, `"tool_calls"`, []string{begin, `{` + list + `}`, end}},
		"between thoughts": {`{"content":"so",` + list + `,"reasoning_content":"hm"}`, `"stop"`,
			[]string{`{"reasoning_details":[` + sealed + `]}`, `{"content":"so"}`, `{"reasoning_content":"hm","reasoning_details":[` + signed + `]}`}},
	} {
		for way, content := range both(t, row.message, row.finish, row.deltas...) {
			m, want := back(t, content), gjson.Parse(row.message)
			for _, path := range []string{"content", "reasoning_details.#", "reasoning_details.0.data", "reasoning_details.1.signature", "tool_calls.0.function.arguments"} {
				if m.Get(path).String() != want.Get(path).String() {
					t.Errorf("%s, %s: %s is %s in %s", name, way, path, m.Get(path).Raw, content)
				}
			}
			if texts := gjson.Get(content, `#(type!="thinking")#`); texts.Get("#").Int() != 1 {
				t.Errorf("%s, %s: cut in two: %s", name, way, content)
			}
		}
	}
}

// TestHalves: half of a surrogate pair, which is no character, passes as it stands, and two that come apart are one.
func TestHalves(t *testing.T) {
	const message = `{"content":"a\ud800b","reasoning_content":"c\udc00","reasoning_details":[{"type":"reasoning.text","index":0,"text":"c\udc00","signature":"\ud83d\ude00"}],` +
		`"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":"{\"x\":\"y\ud800\\\\z\ud83d\ude00\"}"}}]}`
	for way, content := range both(t, message, `"tool_calls"`,
		`{"reasoning_content":"c\udc00","reasoning_details":[{"type":"reasoning.text","index":0,"text":"c\udc00","signature":"\ud83d"}]}`,
		`{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"\ude00"}]}`, `{"content":"a\ud800"}`, `{"content":"b"}`,
		`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":"{\"x\":\"y\ud800\\\\z\ud83d"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}`) {
		m := back(t, content)
		if m.Get("content").Raw != `"a\ud800b"` || m.Get("reasoning_details.0.text").Raw != `"c\udc00"` || m.Get("reasoning_details.0.signature").Str != "😀" ||
			m.Get("tool_calls.0.function.arguments").Str != `{"x":"y\ud800\\z\ud83d\ude00"}` && m.Get("tool_calls.0.function.arguments").Str != `{"x":"y\ud800\\z😀"}` {
			t.Errorf("%s: %s from %s", way, m.Raw, content)
		}
	}
}
