package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func chunk(delta, finish string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

const counted = `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`

// play sends chunks through the face and reads the events as a client would: every delta belongs to an item that was
// added and is not done, and what is done is what the deltas said.
func play(t *testing.T, r *exchange.Request, chunks ...string) (names []string, final gjson.Result, f *exchange.Failure) {
	t.Helper()
	s := responses.Face{Adapter: openai.New()}.Stream(r, note)
	var out []byte
	for _, c := range chunks {
		var p adapter.Progress
		if out, p = s.Event(out, nil, []byte(c)); p.Failure != nil {
			return nil, final, p.Failure
		}
	}
	if out, f = s.End(out); f != nil {
		return nil, final, f
	}
	names, events := read(t, out)
	final = follow(t, events)
	if final.Get("usage.total_tokens").Int() != s.Usage().Total() {
		t.Errorf("told %s, settled %+v", final.Get("usage").Raw, s.Usage())
	}
	return names, final, nil
}

// follow checks the order of events and returns the response of the last one.
func follow(t *testing.T, events []string) gjson.Result {
	t.Helper()
	said, done := map[string]string{}, map[int64]string{}
	var added int64
	for i, raw := range events {
		e := gjson.Parse(raw)
		at := e.Get("output_index").Int()
		place := e.Get("item_id").Str + "/" + e.Get("content_index").Raw + e.Get("summary_index").Raw
		if e.Get("sequence_number").Int() != int64(i) {
			t.Fatalf("event %d is %s", i, raw)
		}
		switch kind := e.Get("type").Str; {
		case i == 0 && kind != "response.created", i == 1 && kind != "response.in_progress":
			t.Fatalf("event %d is %s", i, raw)
		case kind == "response.output_item.added":
			if at != added || e.Get("item.id").Str == "" {
				t.Fatalf("item %d is %s", added, raw)
			}
			added++
		case kind == "response.output_item.done":
			if done[at] != "" || at >= added {
				t.Fatalf("done twice: %s", raw)
			}
			done[at] = e.Get("item").Raw
		case strings.HasSuffix(kind, ".delta"):
			if at >= added || done[at] != "" {
				t.Fatalf("a delta of no item: %s", raw)
			}
			said[place] += e.Get("delta").Str
		case kind == "response.output_text.done", kind == "response.reasoning_summary_text.done":
			if said[place] != e.Get("text").Str {
				t.Fatalf("%q was said: %s", said[place], raw)
			}
		case kind == "response.custom_tool_call_input.done":
			if said[place] != e.Get("input").Str {
				t.Fatalf("%q was said: %s", said[place], raw)
			}
		case kind == "response.function_call_arguments.done":
			if said[place] != e.Get("arguments").Str || e.Get("name").Str == "" {
				t.Fatalf("%q was said: %s", said[place], raw)
			}
		}
	}
	final := gjson.Parse(events[len(events)-1]).Get("response")
	output := final.Get("output").Array()
	if len(output) != len(done) || int64(len(done)) != added {
		t.Fatalf("%d items added, %d done, %d in the end", added, len(done), len(output))
	}
	for i, item := range output {
		if done[int64(i)] != item.Raw {
			t.Fatalf("item %d was %s and is %s", i, done[int64(i)], item.Raw)
		}
	}
	return final
}

// brief is an output in a few words.
func brief(output gjson.Result) string {
	var all []string
	for _, item := range output.Array() {
		all = append(all, item.Get("type").Str+" "+item.Get("summary.#.text").String()+item.Get("content.#.text").String()+
			item.Get("content.#.refusal").String()+item.Get("call_id").Str+item.Get("name").Str+item.Get("arguments").Str+item.Get("input").Str)
	}
	return strings.Join(all, "; ")
}

func TestStream(t *testing.T) {
	r := ask(true)
	r.Native = []byte(`{"model":"smart","input":"hi","instructions":"short","tools":[{"type":"custom","name":"patch"},{"type":"function","name":"f"}],"metadata":{"a":"b"}}`)
	names, final, f := play(t, r,
		chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{"reasoning_content":"h\"m "}`, "null"), chunk(`{"reasoning_content":"ok"}`, "null"),
		chunk(`{"content":"so "}`, "null"), chunk(`{"content":"it \u00e9 is"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"patch","arguments":"{\"input\":"}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"\"a\\nb\"}"}},{"index":0,"function":{"arguments":"1}"}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":2,"id":"t3","type":"function","function":{"name":"f","arguments":""}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`), counted, "[DONE]")
	want := `reasoning ["h\"m ok"][][]; message []["so it \u00e9 is"][]; function_call t1f{"a":1}; custom_tool_call t2patch` + "a\nb" + `; function_call t3f{}`
	if got := brief(final.Get("output")); f != nil || strings.ReplaceAll(got, "[]", "") != strings.ReplaceAll(want, "[]", "") {
		t.Errorf("%+v\ngot  %s\nwant %s", f, got, want)
	}
	if final.Get("status").Str != "completed" || final.Get("model").Str != alias || final.Get("instructions").Str != "short" ||
		final.Get("tools.#").Int() != 2 || final.Get("x_gateway.estimated").Raw != "false" || final.Get("error").Raw != "null" ||
		final.Get("usage.input_tokens_details.cached_tokens").Int() != 4 || final.Get("usage.output_tokens_details.reasoning_tokens").Int() != 2 ||
		!strings.HasPrefix(final.Get("id").Str, "resp_") || final.Get("created_at").Int() != r.CreatedUnix {
		t.Errorf("final %s", final.Raw)
	}
	wantNames := "created in_progress " +
		"output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.delta reasoning_summary_text.done reasoning_summary_part.done output_item.done " +
		"output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done " +
		"output_item.added output_item.added function_call_arguments.delta custom_tool_call_input.delta function_call_arguments.delta output_item.added " +
		"function_call_arguments.done output_item.done custom_tool_call_input.done output_item.done " +
		"function_call_arguments.delta function_call_arguments.done output_item.done completed"
	if got := strings.ReplaceAll(strings.Join(names, " "), "response.", ""); got != wantNames {
		t.Errorf("got  %s\nwant %s", got, wantNames)
	}
}

func TestStreamEnds(t *testing.T) {
	for finish, want := range map[string]string{
		"stop": "completed ", "length": "incomplete max_output_tokens", "content_filter": "incomplete content_filter",
	} {
		names, final, f := play(t, ask(true), chunk(`{"role":"assistant","content":"a"}`, "null"), chunk(`{"refusal":"no"}`, `"`+finish+`"`), counted, "[DONE]")
		got := final.Get("status").Str + " " + final.Get("incomplete_details.reason").Str
		if f != nil || got != want || names[len(names)-1] != "response."+final.Get("status").Str || final.Get("output.0.content.1.refusal").Str != "no" {
			t.Errorf("%s: %+v %s %s", finish, f, got, final.Raw)
		}
	}
	if _, _, f := play(t, ask(true), chunk(`{"content":"a"}`, "null")); f == nil || f.Kind != exchange.FailCut {
		t.Errorf("a cut stream: %+v", f)
	}
	if _, _, f := play(t, ask(true), `{"id":"c1","choices":[{"index":0,"delta":{"content":"`+strings.Repeat("a", 16<<20)+`b"}}]}`); f == nil || f.Code != "upstream_invalid_response" {
		t.Errorf("too much is not what ended too early: %+v", f)
	}
	if names, final, f := play(t, ask(true), chunk(`{"role":"assistant","content":""}`, `"stop"`), "[DONE]"); f != nil || len(names) != 3 || final.Get("output").Raw != "[]" {
		t.Errorf("nothing said: %v %s %+v", names, final.Raw, f)
	}
	s := responses.Face{Adapter: openai.New()}.Stream(ask(true), note)
	out, _ := s.Event(nil, nil, []byte(chunk(`{"content":"a"}`, "null")))
	before := len(out)
	out = s.Abort(out, &exchange.Failure{Kind: exchange.FailTimeout, Message: "too slow"})
	names, events := read(t, out)
	e := gjson.Parse(events[len(events)-1])
	if names[len(names)-1] != "response.failed" || e.Get("sequence_number").Int() != int64(len(names)-1) || before == len(out) ||
		e.Get("response.error.message").Str != "too slow" || e.Get("response.error.code").Str != "upstream_timeout" ||
		e.Get("response.error.delivered_bytes").Int() != 1 || e.Get("response.id").Str != gjson.Get(events[0], "response.id").Str {
		t.Errorf("got %s", e.Raw)
	}
}

// TestOldForm: the one call of servers that know no list of calls is a call, whole and streamed.
func TestOldForm(t *testing.T) {
	_, final, f := play(t, ask(true), chunk(`{"role":"assistant","function_call":{"name":"f","arguments":""}}`, "null"), chunk(`{"function_call":{"arguments":"{\"a\":"}}`, "null"),
		chunk(`{"function_call":{"arguments":"1}"}}`, "null"), chunk(`{}`, `"function_call"`), counted, "[DONE]")
	streamed := brief(final.Get("output"))
	if f != nil || !strings.HasPrefix(streamed, "function_call call_") || !strings.HasSuffix(streamed, `f{"a":1}`) || final.Get("status").Str != "completed" {
		t.Errorf("streamed: %+v %s", f, streamed)
	}
	whole, _, f := responses.Face{Adapter: openai.New()}.Response(ask(false),
		[]byte(`{"id":"c1","choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}},"finish_reason":"function_call"}]}`), note)
	if got := brief(gjson.GetBytes(whole, "output")); f != nil || got != streamed {
		t.Errorf("whole: %+v got %s, streamed %s", f, got, streamed)
	}
}

// TestThoughtsComeBack: what a model signed reaches it again by way of a client that sends items back as they are.
func TestThoughtsComeBack(t *testing.T) {
	message := `{"type":"message","id":"msg_1","role":"assistant","model":"c","content":[` +
		`{"type":"thinking","thinking":"hm","signature":"sig1"},{"type":"redacted_thinking","data":"zzz"},{"type":"text","text":"so"},` +
		`{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":5}}`
	out, _, f := responses.Face{Adapter: anthropic.New()}.Response(ask(false), []byte(message), note)
	if f != nil {
		t.Fatal(f)
	}
	back(t, gjson.GetBytes(out, "output"))

	s := responses.Face{Adapter: anthropic.New()}.Stream(ask(true), note)
	var events []byte
	for _, e := range []string{
		`{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":10,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig1"}}`, `{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"zzz"}}`, `{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"so"}}`, `{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`, `{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}`, `{"type":"message_stop"}`,
	} {
		var p adapter.Progress
		if events, p = s.Event(events, []byte(gjson.Get(e, "type").Str), []byte(e)); p.Failure != nil {
			t.Fatal(p.Failure)
		}
	}
	if events, f = s.End(events); f != nil {
		t.Fatal(f)
	}
	_, list := read(t, events)
	back(t, follow(t, list).Get("output"))
}

// back sends the items of an answer to the provider again.
func back(t *testing.T, output gjson.Result) {
	t.Helper()
	items := []json.RawMessage{json.RawMessage(`{"role":"user","content":"hi"}`)}
	for _, item := range output.Array() {
		items = append(items, json.RawMessage(item.Raw))
	}
	items = append(items, json.RawMessage(`{"type":"function_call_output","call_id":"t1","output":"1"}`))
	body, err := json.Marshal(map[string]any{"model": "m", "input": items, "tools": []any{map[string]any{"type": "function", "name": "f"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := ask(false)
	var f *exchange.Failure
	if r.Body, f = responses.Chat(body, nil); f != nil {
		t.Fatal(f)
	}
	call, f := responses.Face{Adapter: anthropic.New()}.Request(r, &exchange.Deployment{Provider: "anthropic", Model: "c"}, nil)
	if f != nil {
		t.Fatalf("%+v: %s", f, r.Body)
	}
	got := gjson.GetBytes(call.Body, "messages.1.content").Raw
	want := `[{"type":"thinking","thinking":"hm","signature":"sig1"},{"type":"redacted_thinking","data":"zzz"},{"type":"text","text":"so"},{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]`
	if got != want {
		t.Errorf("from %s\ngot  %s\nwant %s", output.Raw, got, want)
	}
}

// TestCallsComeBack: Gemini signs calls, which no item has a member for.
func TestCallsComeBack(t *testing.T) {
	const extra = `{"google":{"thought_signature":"c2ln"}}`
	_, final, f := play(t, ask(true),
		chunk(`{"role":"assistant","tool_calls":[{"index":0,"id":"t1","type":"function","extra_content":`+extra+`,"function":{"name":"f","arguments":"{}"}}]}`, `"tool_calls"`), counted, "[DONE]")
	if f != nil {
		t.Fatal(f)
	}
	chat, f := responses.Chat([]byte(`{"model":"m","input":`+final.Get("output").Raw+`}`), nil)
	if got := gjson.GetBytes(chat, "messages.0.tool_calls.0.extra_content").Raw; f != nil || got != extra {
		t.Errorf("%+v %s from %s", f, chat, final.Get("output").Raw)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(chunk(`{"reasoning_content":"a","reasoning_details":[{"type":"reasoning.text","text":"\ud83d","index":0},{"index":0,"type":"reasoning.text","text":"\ude00"}]}`, "null")), []byte(chunk(`{"content":"a","refusal":"b"}`, `"length"`)))
	f.Add([]byte(chunk(`{"tool_calls":[{"id":"x","function":{"name":"patch","arguments":"{\"input\""}},{"id":"y","extra_content":{"a":1},"function":{"name":"f"}}]}`, "null")), []byte(counted))
	f.Add([]byte(`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","content":[{"text":"a"}]}}`), []byte(`{"type":"response.failed","response":{"model":"m","error":{"code":"x"}}}`))
	f.Add([]byte(`{"type":"response.created","response":{"id":"r","model":"m","x_gateway":1}}`), []byte(`{"type":"response.completed","response":{"model":"m","usage":{"input_tokens":1,"output_tokens":"2"},"output":[{"type":"web_search_call"}]}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		r := ask(true)
		r.Native = []byte(`{"tools":[{"type":"custom","name":"patch"}]}`)
		for _, ad := range []adapter.Adapter{responses.Face{Adapter: openai.New()}, native(t)} {
			s := ad.Stream(r, note)
			var out []byte
			for _, c := range [][]byte{a, b, []byte(chunk(`{}`, `"stop"`)), []byte(`{"type":"response.completed","response":{}}`)} {
				before := len(out)
				var p adapter.Progress
				if out, p = s.Event(out, nil, c); p.Failure != nil && len(out) != before {
					t.Fatalf("a failure wrote %q", out[before:])
				}
				if p.Failure != nil || p.Done {
					break
				}
			}
			out, failure := s.End(out)
			if failure != nil {
				out = s.Abort(out, failure)
			}
			for e := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
				if _, data, ok := strings.Cut(e, "data: "); !ok || !adapter.Valid([]byte(data)) {
					t.Fatalf("event %q", e)
				}
			}
		}
	})
}
