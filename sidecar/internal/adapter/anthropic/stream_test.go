package anthropic

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	evStart = `{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":9,"output_tokens":1}}}`
	evText  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	evHello = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel\u00e9\n"}}`
	evTool  = `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"tide","input":{}}}`
	evStop  = `{"type":"content_block_stop","index":0}`
	evEnd   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}`
	evDone  = `{"type":"message_stop"}`
)

func chat(stream bool) *exchange.Request { return adaptertest.Chat(stream) }

// guess is what note takes an answer without usage for.
var guess = exchange.Usage{Source: exchange.FromEstimate, Tokens: exchange.Tokens{Input: 40, Output: 2}}

func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	return adaptertest.Note(dst, u, adapter.Delivered{Bytes: guess.Output})
}

// translate gives a stream its events.
func translate(t *testing.T, r *exchange.Request, events ...string) ([]byte, *stream, *exchange.Failure) {
	t.Helper()
	st := newStream(r, note)
	out, f := adaptertest.Translate(t, st, events...)
	return out, st, f
}

func TestStreamBytes(t *testing.T) {
	r := &exchange.Request{ID: "req_1", Model: "smart", Stream: true, CreatedUnix: 1_700_000_000}
	start := `data: {"id":"msg_1","object":"chat.completion.chunk","created":1700000000,"model":"smart","choices":`
	first := start + `[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
		start + `[{"index":0,"delta":{"content":"Hel\u00e9\n"},"finish_reason":null}]}` + "\n\n"
	rest := start + `[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	hello := []string{evStart, evText, evHello, evStop, evEnd, evDone}
	out, st, f := translate(t, r, hello...)
	if f != nil || string(out) != first+rest {
		t.Errorf("%v\n%s", f, out)
	}
	if st.Delivered().Bytes != 6 {
		t.Errorf("delivered %d", st.Delivered().Bytes)
	}
	r.IncludeUsage = true
	out, _, _ = translate(t, r, hello...)
	usage := start + `[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,` +
		`"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":0}},"x_gateway":{"estimated":false}}` + "\n\ndata: [DONE]\n\n"
	if !strings.HasSuffix(string(out), `"finish_reason":"stop"}],"usage":null}`+"\n\n"+usage) {
		t.Errorf("%s", out)
	}
}

// TestFastEqualsSlow: the two ways to read a delta give the same bytes.
func TestFastEqualsSlow(t *testing.T) {
	rows := []string{
		`"text_delta","text":"a\"b\\\/\b\f\n\r\té😀 \u00e9\ud83d\ude00"`, `"text_delta","text":""`,
		`"thinking_delta","thinking":"hm"`, `"input_json_delta","partial_json":"{\"a\":"`,
		`"input_json_delta","partial_json":""`,
	}
	for _, row := range rows {
		fast := `{"type":"content_block_delta","index":1,"delta":{"type":` + row + `}}`
		slow := `{ "type":"content_block_delta","index":1,"delta":{"type":` + row + `}}`
		a, b := newStream(chat(true), note), newStream(chat(true), note)
		a.Event(nil, nil, []byte(evTool))
		b.Event(nil, nil, []byte(evTool))
		if _, ok := newStream(chat(true), note).fast(nil, []byte(slow)); ok {
			t.Fatal("the slow spelling is not slow")
		}
		x, px := a.Event(nil, nil, []byte(fast+"   "))
		y, py := b.Event(nil, nil, []byte(slow))
		if !bytes.Equal(x, y) || px != py || a.Delivered().Bytes != b.Delivered().Bytes || a.callArgs != b.callArgs {
			t.Errorf("%s\nfast %+v %d %s\nslow %+v %d %s", row, px, a.Delivered().Bytes, x, py, b.Delivered().Bytes, y)
		}
	}
}

// TestNativeFinishReason: where a stop reason says more than finish_reason, the choice has it under the name that all
// providers' have, once, and under Anthropic's.
func TestNativeFinishReason(t *testing.T) {
	for own, want := range map[string]string{
		"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls",
		"stop_sequence": "stop", "pause_turn": "stop", "refusal": "content_filter", "model_context_window_exceeded": "length", "novel": "stop",
	} {
		plain := own == "end_turn" || own == "max_tokens" || own == "tool_use"
		whole, _, f := respond(chat(false), []byte(`{"id":"m","content":[],"stop_reason":"`+own+`"}`), note)
		if f != nil {
			t.Fatal(f)
		}
		streamed, _, f := translate(t, chat(true), evStart, evHello, `{"type":"message_delta","delta":{"stop_reason":"`+own+`"},"usage":{"output_tokens":4}}`, evDone)
		if f != nil {
			t.Fatal(f)
		}
		more := `"finish_reason":"` + want + `","native_finish_reason":"` + own + `","stop_reason":"` + own + `"}]`
		if plain {
			more = `"finish_reason":"` + want + `"}]`
		}
		for _, out := range []string{string(whole), string(streamed)} {
			if strings.Count(out, more) != 1 {
				t.Errorf("%s: %s, want %s", own, out, more)
			}
		}
	}
}

func TestStreamOddities(t *testing.T) {
	delta := func(index, d string) string {
		return `{"type":"content_block_delta","index":` + index + `,"delta":` + d + `}`
	}
	end := func(reason string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":4}}`
	}
	rows := []struct {
		name   string
		events []string
		want   adaptertest.Choice
	}{
		{"nothing but an end", []string{evStart, evEnd, evDone}, adaptertest.Choice{Finish: "stop"}},
		{"ping and unknown events", []string{evStart, `{"type":"ping"}`, `{"type":"novel","text":"x"}`, evHello, evEnd, evDone},
			adaptertest.Choice{Content: "Helé\n", Finish: "stop"}},
		{"server tools and unknown blocks are skipped", []string{
			evStart, `{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"w","input":{}}}`,
			delta("0", `{"type":"input_json_delta","partial_json":"{}"}`), evStop,
			`{"type":"content_block_start","index":1,"content_block":{"type":"novel"}}`,
			delta("1", `{"type":"text_delta","text":"hidden"}`), `{"type":"content_block_stop","index":1}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"seen"}}`,
			delta("2", `{"type":"citations_delta","citation":{}}`), end("pause_turn"), evDone,
		}, adaptertest.Choice{Content: "seen", Finish: "stop"}},
		{"thinking without text", []string{
			evStart, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
			delta("0", `{"type":"signature_delta","signature":"s"}`), evStop, end("max_tokens"),
		}, adaptertest.Choice{Finish: "length"}},
		{"call whose end is not announced", []string{evStart, evTool, end("tool_use"), evDone},
			adaptertest.Choice{Calls: []adaptertest.Call{{"t1", "tide", "{}"}}, Finish: "tool_calls"}},
		{"input in the start", []string{
			evStart, strings.Replace(evTool, `"input":{}`, `"input":{"a": "x"}`, 1), `{"type":"content_block_stop"}`, end("tool_use"),
		}, adaptertest.Choice{Calls: []adaptertest.Call{{"t1", "tide", `{"a":"x"}`}}, Finish: "tool_calls"}},
		{"input in the start and in deltas", []string{
			evStart, strings.Replace(evTool, `"input":{}`, `"input":{"a":1}`, 1),
			delta("1", `{"type":"input_json_delta","partial_json":"{}"}`), end("tool_use"),
		}, adaptertest.Choice{Calls: []adaptertest.Call{{"t1", "tide", `{}`}}, Finish: "tool_calls"}},
		{"cut arguments stay cut", []string{evStart, evTool, delta("1", `{"type":"input_json_delta","partial_json":"{\"a"}`), end("max_tokens")},
			adaptertest.Choice{Calls: []adaptertest.Call{{"t1", "tide", `{"a`}}, Finish: "length"}},
		{"refusal keeps the text", []string{evStart, evText, evHello, end("refusal"), evDone},
			adaptertest.Choice{Content: "Helé\n", Finish: "content_filter"}},
		{"a null reason does not clear one", []string{
			evStart, evHello, end("max_tokens"), `{"type":"message_delta","delta":{"stop_reason":null},"usage":null}`, evDone,
		}, adaptertest.Choice{Content: "Helé\n", Finish: "length"}},
		{"a foreign end mark", []string{evStart, evHello, evEnd, `[DONE]`}, adaptertest.Choice{Content: "Helé\n", Finish: "stop"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			out, st, f := translate(t, chat(true), row.events...)
			if f != nil {
				t.Fatalf("%+v", f)
			}
			s := adaptertest.ReadStream(t, out, true)
			if n := st.Delivered().Bytes; s.Text != n {
				t.Errorf("%d bytes of text arrived, %d were counted", s.Text, n)
			}
			got, u := s.First(), st.Usage()
			if got.Null || got.Content != row.want.Content || got.Finish != row.want.Finish || got.Reasoning != "" || len(s.Choices) != 1 {
				t.Errorf("%+v", got)
			}
			if u.Output != 4 || u.Input != 9 {
				t.Errorf("usage %+v", u)
			}
			if !slices.Equal(got.Calls, row.want.Calls) {
				t.Errorf("calls %+v", got.Calls)
			}
		})
	}
}

func TestStreamFailures(t *testing.T) {
	fault := func(kind string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"m"}}`
	}
	rows := []struct {
		name   string
		events []string
		kind   exchange.FailureKind
		status int
	}{
		{"cut", []string{evStart, evHello}, exchange.FailCut, 0},
		{"empty", nil, exchange.FailCut, 0},
		{"stop without a reason", []string{evStart, evHello, evDone}, exchange.FailCut, 0},
		{"overloaded", []string{evStart, evHello, fault("overloaded_error")}, exchange.FailOverloaded, 529},
		{"rate limit", []string{fault("rate_limit_error")}, exchange.FailRateLimited, 429},
		{"request", []string{fault("invalid_request_error")}, exchange.FailRequest, 400},
		{"key", []string{fault("authentication_error")}, exchange.FailCredential, 401},
		{"money", []string{fault("billing_error")}, exchange.FailCredential, 402},
		{"permission", []string{fault("permission_error")}, exchange.FailCredential, 403},
		{"server", []string{fault("api_error")}, exchange.FailOverloaded, 500},
		{"timeout", []string{fault("timeout_error")}, exchange.FailOverloaded, 504},
		{"unknown error", []string{fault("novel_error")}, exchange.FailOverloaded, 500},
		{"bare error", []string{`{"error":{"message":"m"}}`}, exchange.FailOverloaded, 500},
		{"not JSON", []string{evStart, `{"type":`}, exchange.FailInvalid, 0},
		{"too deep", []string{evStart, strings.Repeat("[", 16<<20)}, exchange.FailInvalid, 0},
		{"mixed calls", []string{
			evStart, evTool, `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{"}}`,
		}, exchange.FailInvalid, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			out, st, f := translate(t, chat(true), row.events...)
			if f == nil || f.Kind != row.kind || f.Status != row.status || f.Message == "" {
				t.Fatalf("%+v", f)
			}
			if bytes.Contains(out, []byte("[DONE]")) || bytes.Contains(out, []byte(`"finish_reason":"`)) {
				t.Errorf("a broken stream looks finished: %s", out)
			}
			if again, f := st.End(nil); f == nil || f.Kind != exchange.FailCut || len(again) > 0 {
				t.Errorf("End gave %q, %+v", again, f)
			}
		})
	}
}

func TestStreamUsage(t *testing.T) {
	st := newStream(chat(true), note)
	if u := st.Usage(); u != (exchange.Usage{Source: exchange.FromEstimate}) {
		t.Errorf("before anything: %+v", u)
	}
	st.Event(nil, nil, []byte(evStart))
	if u := st.Usage(); u.Source != exchange.FromProvider || u.Input != 9 {
		t.Errorf("after the start: %+v", u)
	}
	out, st, f := translate(t, chat(true), evStart, evHello, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, evDone)
	if f != nil || st.Usage() != guess {
		t.Errorf("no final count: %+v, %+v", f, st.Usage())
	}
	if !bytes.Contains(out, []byte(`"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,"total_tokens":42,`)) {
		t.Errorf("%s", out)
	}
}

func TestAbort(t *testing.T) {
	rows := []struct {
		name string
		f    exchange.Failure
		want string
	}{
		{"overloaded", exchange.Failure{Kind: exchange.FailOverloaded, Type: "overloaded_error", Message: "O\n\"k"},
			`{"message":"O\n\"k","type":"overloaded_error","param":null,"code":"upstream_overloaded","delivered_bytes":6,"retryable":true}`},
		{"credential stays inside", exchange.Failure{Kind: exchange.FailCredential, Type: "t", Code: "c", Message: "key sk-1"},
			`{"message":"the provider refused the gateway's configuration","type":"server_error","param":null,"code":"upstream_misconfigured","delivered_bytes":6,"retryable":true}`},
		{"cut", exchange.Failure{Kind: exchange.FailCut},
			`{"message":"the provider's stream broke","type":"server_error","param":null,"code":"stream_truncated","delivered_bytes":6,"retryable":true}`},
		{"request", exchange.Failure{Kind: exchange.FailRequest, Type: "invalid_request_error", Param: "top_p", Code: "c", Message: "m"},
			`{"message":"m","type":"invalid_request_error","param":"top_p","code":"c","delivered_bytes":6,"retryable":false}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			st := newStream(chat(true), note)
			st.Event(nil, nil, []byte(evHello))
			if got := string(st.Abort(nil, &row.f)); got != `data: {"error":`+row.want+"}\n\n" {
				t.Error(got)
			}
		})
	}
}

// FuzzEvent: whatever comes, the caller gets whole events of valid JSON, and what is counted is what was sent.
func FuzzEvent(f *testing.F) {
	for _, ev := range []string{evStart, evText, evHello, evTool, evStop, evEnd, evDone} {
		f.Add([]byte(ev), []byte(evHello))
		f.Add([]byte(evTool), []byte(ev))
	}
	f.Add([]byte(evTool), []byte(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}`))
	f.Add([]byte(""), []byte(`{"type":"content_block_start","content_block":{"type":"tool_use"}}`)) // a call that says nothing
	f.Fuzz(func(t *testing.T, one, two []byte) {
		st := newStream(chat(true), note)
		var out []byte
		for _, ev := range [][]byte{one, two} {
			before, was := len(out), st.Delivered()
			next, p := st.Event(out, nil, ev)
			now := st.Delivered()
			if p.Real != (now.Bytes > was.Bytes) || p.Real != (now.Pieces == was.Pieces+1) || p.Real && len(next) == before ||
				p.Failure != nil && len(next) > before && !bytes.Contains(ev, []byte("\n")) {
				t.Fatalf("%+v: %+v became %+v with %q", p, was, now, next[before:])
			}
			if out = next; p.Failure != nil {
				break
			}
		}
		out, _ = st.End(out)
		adaptertest.Events(t, out)
	})
}

func BenchmarkTextDelta(b *testing.B) {
	st := newStream(chat(true), note)
	data := []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" a usual piece of\ntext"}}`)
	dst, _ := st.Event(nil, nil, data)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		dst, _ = st.Event(dst[:0], nil, data)
	}
}
