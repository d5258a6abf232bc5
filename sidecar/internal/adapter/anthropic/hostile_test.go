package anthropic

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// playEvents sends the events of a stream, cut in every way, and relays them.
func playEvents(t *testing.T, check func(t *testing.T, got adaptertest.Relayed), events ...string) {
	t.Helper()
	raw := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + strings.Join(events, "\n\ndata: ") + "\n\n"
	adaptertest.Cut(t, []byte(raw), func(t *testing.T, pieces ...[]byte) {
		t.Helper()
		check(t, adaptertest.Relay(t, New(), &exchange.Deployment{Model: "claude-fx-5"}, chat(true), pieces...))
	})
}

// TestHostile: what servers may send that only speak like Anthropic's. Nothing of it may be lost, and nothing made up.
func TestHostile(t *testing.T) {
	delta := func(index, d string) string {
		return `{"type":"content_block_delta","index":` + index + `,"delta":{"type":` + d + `}}`
	}
	begins := func(index, block string) string {
		return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
	}
	ends := func(usage string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + `}`
	}
	said := adaptertest.Choice{Content: "Helé\n", Finish: "stop"}
	used, none := exchange.Tokens{Input: 9, Output: 4}, exchange.Tokens{Input: 40, Output: int64(len("Helé\n"))}
	called := func(c ...adaptertest.Call) adaptertest.Choice {
		return adaptertest.Choice{Calls: c, Finish: "tool_calls"}
	}
	made := adaptertest.Call{"call_1q5xkzirxdlfu", "tide", `{"a":1}`}
	for name, c := range map[string]struct {
		events []string
		want   adaptertest.Choice
		used   exchange.Tokens
	}{
		"thinking between texts, a signature in pieces": {[]string{
			evStart, begins("0", `{"type":"thinking","thinking":"","signature":""}`), delta("0", `"thinking_delta","thinking":"one"`),
			delta("0", `"signature_delta","signature":"s1"`), delta("0", `"signature_delta","signature":"s2"`), evText,
			evHello, begins("2", `{"type":"thinking","thinking":"two"}`), evEnd, evDone,
		}, adaptertest.Choice{Content: "Helé\n", Reasoning: "onetwo", Finish: "stop"}, used},
		"usage as texts":            {[]string{evStart, evHello, ends(`{"output_tokens":"4"}`), evDone}, said, used},
		"usage twice":               {[]string{evStart, evHello, ends(`{"output_tokens":2}`), ends(`{"output_tokens":4}`), evDone}, said, used},
		"usage that ends in zeros":  {[]string{evStart, evHello, ends(`{"input_tokens":0,"output_tokens":4,"cache_read_input_tokens":0}`), evDone}, said, used},
		"usage that begins in them": {[]string{strings.Replace(evStart, "9", "0", 1), evHello, ends(`{"input_tokens":9,"output_tokens":4}`), evDone}, said, used},
		"usage below zero":          {[]string{evStart, evHello, ends(`{"input_tokens":-1,"output_tokens":-4}`), evDone}, said, none},
		"usage beyond any window":   {[]string{evStart, evHello, ends(`{"output_tokens":1e300}`), evDone}, said, none},
		"usage of words":            {[]string{evStart, evHello, ends(`{"input_tokens":true,"output_tokens":"many"}`), evDone}, said, none},
		"usage that is a list":      {[]string{evStart, evHello, ends(`[4]`), evDone}, said, none},
		"no start of the message":   {[]string{evHello, ends(`{"input_tokens":9,"output_tokens":4}`), evDone}, said, used},
		"no start of the block":     {[]string{evStart, evHello, evEnd}, said, used},
		"the end of no block":       {[]string{evStart, `{"type":"content_block_stop","index":7}`, evHello, `{"type":"content_block_stop"}`, evEnd, evDone}, said, used},
		"the end twice":             {[]string{evStart, evHello, evEnd, evEnd, evDone, evDone}, said, used},
		"lines without a blank one": {[]string{evStart + "\ndata: " + evText + "\ndata: " + evHello, evStop, evEnd + "\nevent: message_stop\ndata: " + evDone}, said, used},
		"texts and thoughts that are null": {[]string{
			evStart, begins("0", `{"type":"text","text":null}`), delta("0", `"text_delta","text":null`), delta("0", `"thinking_delta"`),
			`{"type":"content_block_delta","index":0,"delta":null}`, evHello, evEnd, evDone,
		}, said, used},
		"numbers as texts": {[]string{
			evStart, begins(`"1"`, `{"type":"tool_use","id":"t1","name":"tide","input":null}`), delta(`"1"`, `"input_json_delta","partial_json":"{}"`), evEnd, evDone,
		}, called(adaptertest.Call{"t1", "tide", "{}"}), used},
		"a call without an id": {[]string{
			evStart, begins("0", `{"type":"tool_use","name":"tide"}`), delta("0", `"input_json_delta","partial_json":"{\"a\":1}"`), evEnd, evDone,
		}, called(made), used},
		"arguments as an object": {[]string{evStart, evTool, delta("1", `"input_json_delta","partial_json":{"a": "\n"}`), evEnd, evDone}, called(adaptertest.Call{"t1", "tide", `{"a":"\n"}`}), used},
		"arguments as a text in the start": {[]string{
			evStart, strings.Replace(evTool, `"input":{}`, `"input":"{\"a\":1}"`, 1), evEnd, evDone,
		}, called(adaptertest.Call{"t1", "tide", `{"a":1}`}), used},
		"an error of null": {[]string{evStart, strings.Replace(evHello, "{", `{"error":null,`, 1), evEnd, evDone}, said, used},
	} {
		t.Run(name, func(t *testing.T) {
			playEvents(t, func(t *testing.T, p adaptertest.Relayed) {
				if p.Failure != nil {
					t.Fatalf("%+v", p.Failure)
				}
				s := adaptertest.ReadStream(t, p.Body, true)
				if n := p.Outcome.Delivered.Bytes; s.Text != n {
					t.Errorf("%d bytes of text arrived, %d were counted", s.Text, n)
				}
				if got := s.First(); got.Null || got.Content != c.want.Content || got.Reasoning != c.want.Reasoning || got.Finish != c.want.Finish ||
					!slices.Equal(got.Calls, c.want.Calls) || p.Usage.Tokens != c.used {
					t.Errorf("%+v, usage %+v", got, p.Usage)
				}
			}, c.events...)
		})
	}
	playEvents(t, func(t *testing.T, p adaptertest.Relayed) {
		if p.Failure == nil || p.Failure.Kind != exchange.FailInvalid {
			t.Errorf("arguments of no call are lost: %+v", p.Failure)
		}
	}, evStart, evText, delta("0", `"input_json_delta","partial_json":"{}"`), evEnd, evDone)
}

// TestHostileAnswers is the same of answers that come whole.
func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct{ body, content, calls string }{
		"content that is a text":  {`{"content":"H\n","stop_reason":"end_turn"}`, `"H\n"`, ``},
		"parts that are null":     {`{"content":[null,{"type":"text","text":null},{"type":"novel","text":"x"},{"type":"text","text":"H"}],"error":null}`, `"H"`, ``},
		"calls without ids":       {`{"id":"a","content":[{"type":"tool_use","name":"f","input":"{\"a\":1}"},{"type":"tool_use","name":"f","input":[1, 2]},{"type":"tool_use","id":null,"name":"g"}]}`, `null`, `["{\"a\":1}","[1,2]","{}"]`},
		"a stop reason of number": {`{"content":[{"type":"text","text":"H"}],"stop_reason":7,"usage":[]}`, `"H"`, ``},
	} {
		out, u, f := New().Response(chat(false), []byte(c.body), note)
		m := gjson.GetBytes(out, "choices.0.message")
		if m.Get("tool_calls").Exists() != (gjson.GetBytes(out, "choices.0.finish_reason").Str == "tool_calls") {
			t.Errorf("%s: %s", name, out)
		}
		if f != nil || m.Get("content").Raw != c.content || m.Get("tool_calls.#.function.arguments").Raw != c.calls || u != guess || !gjson.ValidBytes(out) {
			t.Errorf("%s: %+v %+v %s", name, f, u, out)
		}
		ids := map[string]bool{"": true}
		for _, id := range m.Get("tool_calls.#.id").Array() {
			if ids[id.Str] {
				t.Errorf("%s: the id %q", name, id.Str)
			}
			ids[id.Str] = true
		}
	}
}

// TestHostileNative: callers of the Messages API get it as it came, each event by itself.
func TestHostileNative(t *testing.T) {
	r := chat(true)
	r.Dialect = exchange.MessagesDialect
	st := newNativeStream(r, note)
	out, p := st.Event(nil, []byte("message_stop"), []byte(evStart+"\n"+evText+"\n"+evHello))
	if !p.Real || p.Failure != nil {
		t.Fatalf("%+v", p)
	}
	out, _ = st.Event(out, nil, []byte(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"output_tokens":4}}`))
	out, p = st.Event(out, nil, []byte(evDone))
	out, f := st.End(out)
	if !p.Done || f != nil || bytes.Count(out, []byte("\n\n")) != 5 || !bytes.Contains(out, []byte("event: content_block_start\ndata: "+evText+"\n\n")) {
		t.Errorf("%+v %s", f, out)
	}
	if u := st.Usage(); u.Input != 9 || u.Output != 4 {
		t.Errorf("%+v", u)
	}
}
