package messages

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	return append(dst, `{"cost":1}`...), u
}

func TestResponse(t *testing.T) {
	body := `{"id":"c1","object":"chat.completion","created":1,"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":4}}}`
	r := &exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`)}
	got, u, f := Face{openai.New()}.Response(r, []byte(body), note)
	want := `{"content":[{"signature":"sluice1.","thinking":"hm","type":"thinking"},{"text":"hi","type":"text"},{"id":"t1","input":{"a":1},"name":"f","type":"tool_use"},{"id":"t2","input":{},"name":"g","type":"tool_use"}],` +
		`"id":"c1","model":"m","role":"assistant","stop_reason":"tool_use","stop_sequence":null,"type":"message",` +
		`"usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"input_tokens":6,"output_tokens":3},"x_gateway":{"cost":1}}`
	if f != nil || string(got) != want || u.Output != 3 {
		t.Errorf("got %s, %+v, %+v\nwant %s", got, u, f, want)
	}
}

func run(t *testing.T, chunks ...string) string {
	t.Helper()
	out, f := translated(chunks)
	if f != nil {
		t.Fatal(f)
	}
	return out
}

// translated is what the face makes of chunks.
func translated(chunks []string) (string, *exchange.Failure) {
	r := &exchange.Request{
		Operation: exchange.Chat, Model: "m", Stream: true, IncludeUsage: true, Choices: 1, InputEstimate: 88,
	}
	s := Face{openai.New()}.Stream(r, note)
	var out []byte
	for _, c := range chunks {
		var p adapter.Progress
		if out, p = s.Event(out, nil, []byte(c)); p.Failure != nil {
			return "", p.Failure
		}
	}
	out, f := s.End(out)
	return string(out), f
}

// play sends chunks through the face and returns the types of the events, a block's pieces put together.
func play(t *testing.T, chunks ...string) (types, text string, f *exchange.Failure) {
	t.Helper()
	out, f := translated(chunks)
	if f != nil {
		return "", "", f
	}
	var kinds []string
	for _, ev := range adaptertest.Events(t, []byte(out)) {
		name, doc := ev.Name, gjson.Parse(ev.Data)
		if doc.Get("type").Str != name {
			t.Fatalf("event %q is %s", name, ev.Data)
		}
		switch name {
		case "content_block_start":
			name = "start " + doc.Get("content_block.type").Str
		case "content_block_delta":
			d := doc.Get("delta")
			text += d.Get("text").Str + d.Get("partial_json").Str + d.Get("thinking").Str
			continue
		case "message_delta":
			name += " " + doc.Get("delta.stop_reason").Str + " " + doc.Get("usage.output_tokens").Raw
		}
		kinds = append(kinds, name)
	}
	return strings.Join(kinds, ", "), text, nil
}

func chunk(delta, finish string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

const counted = `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}`

func TestStream(t *testing.T) {
	types, text, f := play(t,
		chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{"reasoning_content":"hm "}`, "null"), chunk(`{"content":"so "}`, "null"),
		chunk(`{"content":"it is"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"g","arguments":"[]"}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`), counted, "[DONE]")
	want := "message_start, start thinking, content_block_stop, start text, content_block_stop, start tool_use, content_block_stop, " +
		"start tool_use, content_block_stop, message_delta tool_use 3, message_stop"
	if f != nil || types != want || text != "hm so it is{}[]" {
		t.Errorf("got %s\n%q %+v", types, text, f)
	}
	if _, _, f := play(t, chunk(`{"content":"a"}`, "null")); f == nil || f.Kind != exchange.FailCut {
		t.Errorf("a cut stream: %+v", f)
	}
	if types, _, f := play(t, chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{}`, `"length"`), counted, "[DONE]"); f != nil ||
		types != "message_start, message_delta max_tokens 3, message_stop" {
		t.Errorf("nothing said: %s %+v", types, f)
	}
}

func TestAbort(t *testing.T) {
	s := Face{openai.New()}.Stream(&exchange.Request{Operation: exchange.Chat, Model: "m", Stream: true, Choices: 1}, note)
	got := string(s.Abort(nil, &exchange.Failure{Kind: exchange.FailTimeout, Message: "too slow"}))
	if !strings.HasPrefix(got, "event: error\ndata: ") || gjson.Get(got[len("event: error\ndata: "):], "error.type").Str != "timeout_error" ||
		!strings.Contains(got, "too slow") {
		t.Errorf("got %s", got)
	}
}

// TestForeign: what other vendors want back of their models' thoughts goes to the caller and comes back, whole or in a
// stream, and Claude's own thinking stays as it is.
func TestForeign(t *testing.T) {
	const (
		message = `{"role":"assistant","content":"so","reasoning_content":"hm hm","reasoning_details":[{"type":"reasoning.text","format":"vendor-v1","index":0,"text":"hm hm","signature":"AB"},{"type":"reasoning.encrypted","format":"vendor-v1","index":1,"data":"CD"}],` +
			`"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"EF"}}}]}`
		whole = `{"id":"c1","object":"chat.completion","created":1,"model":"x","choices":[{"index":0,"message":` + message + `,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	)
	r := &exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`)}
	answer, _, f := Face{openai.New()}.Response(r, []byte(whole), note)
	if f != nil {
		t.Fatal(f)
	}
	out := run(t,
		chunk(`{"role":"assistant","content":""}`, "null"),
		chunk(`{"reasoning_content":"hm ","reasoning_details":[{"type":"reasoning.text","format":"vendor-v1","index":0,"text":"hm "}]}`, "null"),
		chunk(`{"reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","format":"vendor-v1","index":0,"text":"hm","signature":"A"},{"type":"reasoning.text","index":0,"signature":"B"}]}`, "null"),
		chunk(`{"reasoning_details":[{"type":"reasoning.encrypted","format":"vendor-v1","index":1,"data":"CD"}]}`, "null"),
		chunk(`{"content":"so"}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"EF"}}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`), counted, "[DONE]")
	for name, content := range map[string]string{"whole": gjson.GetBytes(answer, "content").Raw, "stream": assembled(t, out)} {
		next, f := Chat([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":`+content+
			`},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"r"}]}]}`), nil)
		if f != nil {
			t.Fatalf("%s: %+v", name, f)
		}
		got, want := gjson.GetBytes(next, "messages.1"), gjson.Parse(message)
		for _, path := range []string{
			"content", "reasoning_details.#", "reasoning_details.0.signature", "reasoning_details.0.text", "reasoning_details.0.format",
			"reasoning_details.1.data", "tool_calls.#", "tool_calls.0.extra_content.google.thought_signature", "tool_calls.0.id",
		} {
			if got.Get(path).String() != want.Get(path).String() {
				t.Errorf("%s: %s is %s in %s", name, path, got.Get(path).Raw, got.Raw)
			}
		}
	}
	own := `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"` + adapter.ForeignMark + `"},` +
		`{"type":"redacted_thinking","data":"` + adapter.ForeignMark + `!"},{"type":"thinking","thinking":"b","signature":"S"}]},{"role":"user","content":"c"}]}`
	next, f := Chat([]byte(own), nil)
	if d := gjson.GetBytes(next, "messages.0.reasoning_details"); f != nil || d.Get("#").Int() != 1 || d.Get("0.signature").Str != "S" {
		t.Errorf("%+v %s", f, next)
	}
}

// assembled is the content that a client makes of a stream.
func assembled(t *testing.T, out string) string {
	t.Helper()
	var blocks []string
	var open map[string]any
	input := ""
	for e := range strings.SplitSeq(strings.TrimSuffix(out, "\n\n"), "\n\n") {
		_, data, _ := strings.Cut(e, "\ndata: ")
		doc := gjson.Parse(data)
		switch doc.Get("type").Str {
		case "content_block_start":
			open, _ = doc.Get("content_block").Value().(map[string]any)
			input = ""
		case "content_block_delta":
			d := doc.Get("delta")
			for _, name := range []string{"text", "thinking", "signature"} {
				if v := d.Get(name); v.Exists() {
					before, _ := open[name].(escaped)
					open[name] = before + said(v)
				}
			}
			input += adapter.Inside(d.Get("partial_json"))
		case "content_block_stop":
			if input != "" {
				open["input"] = json.RawMessage(adapter.Said(gjson.Parse(`"` + input + `"`)))
			}
			b, err := json.Marshal(open)
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, string(b))
		}
	}
	return "[" + strings.Join(blocks, ",") + "]"
}

// TestIDs: a call's id is fit for Claude on its way to the caller, and the vendor's own on its way back.
func TestIDs(t *testing.T) {
	for id, plain := range map[string]bool{"toolu_1-A": true, "functions.tide:0": false, "é": false, "": true, idMark + "!": false, idMark + "QQ": false} {
		out := idOut(id)
		if (out == id) != plain || idIn(out) != id || strings.ContainsAny(out, ".:!é") {
			t.Errorf("%s: %s, %s", id, out, idIn(out))
		}
	}
	out := run(t, chunk(`{"role":"assistant","tool_calls":[{"index":0,"id":"functions.tide:0","type":"function","function":{"name":"tide","arguments":"{}"}}]}`, "null"), chunk(`{}`, `"tool_calls"`), counted, "[DONE]")
	next, f := Chat([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":`+assembled(t, out)+`},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+idOut("functions.tide:0")+`"}]}]}`), nil)
	if f != nil || gjson.GetBytes(next, "messages.0.tool_calls.0.id").Str != "functions.tide:0" || gjson.GetBytes(next, "messages.1.tool_call_id").Str != "functions.tide:0" {
		t.Errorf("%+v %s from %s", f, next, out)
	}
}

// TestEnding: why an answer ended, where chat says it in one way or another.
func TestEnding(t *testing.T) {
	r := &exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`), Native: []byte(`{"stop_sequences":["##"]}`)}
	for name, row := range map[string]struct{ choice, reason, sequence string }{
		"plain":              {`"message":{"content":"a"},"finish_reason":"stop"`, "end_turn", ""},
		"of vLLM":            {`"message":{"content":"a"},"finish_reason":"stop","stop_reason":"##"`, "stop_sequence", "##"},
		"of SGLang":          {`"message":{"content":"a"},"finish_reason":"stop","matched_stop":"##"`, "stop_sequence", "##"},
		"a token's number":   {`"message":{"content":"a"},"finish_reason":"stop","stop_reason":128001`, "end_turn", ""},
		"another's sequence": {`"message":{"content":"a"},"finish_reason":"stop","stop_reason":"<eos>"`, "end_turn", ""},
		"cut":                {`"message":{"content":"a"},"finish_reason":"length"`, "max_tokens", ""},
		"refused":            {`"message":{"content":null,"refusal":"no"},"finish_reason":"stop"`, "refusal", ""},
		"filtered":           {`"message":{"content":"a"},"finish_reason":"content_filter"`, "refusal", ""},
		"paused":             {`"message":{"content":"a"},"finish_reason":"stop","stop_reason":"pause_turn"`, "end_turn", ""},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"id":"c","model":"x","choices":[{"index":0,` + row.choice + `}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
			got, _, f := Face{openai.New()}.Response(r, []byte(body), note)
			if f != nil || gjson.GetBytes(got, "stop_reason").Str != row.reason || gjson.GetBytes(got, "stop_sequence").Str != row.sequence {
				t.Errorf("%+v %s", f, got)
			}
		})
	}
}

// TestTells: what an answer's head, usage and citations say.
func TestTells(t *testing.T) {
	body := `{"id":"c","model":"x","service_tier":"default","choices":[{"index":0,"message":{"content":"a","annotations":[{"type":"url_citation","url_citation":{"url":"https://a.test","title":"A","start_index":0,"end_index":1}},{"type":"other"}]},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,"prompt_tokens_details":{"cached_tokens":30,"cache_write_tokens":20},"completion_tokens_details":{"reasoning_tokens":4}}}`
	r := &exchange.Request{ID: "req", Operation: exchange.Chat, Model: "m", Body: []byte(`{}`), InputEstimate: 88}
	got, _, f := Face{openai.New()}.Response(r, []byte(body), note)
	u := gjson.GetBytes(got, "usage")
	if f != nil || u.Get("input_tokens").Int() != 50 || u.Get("cache_read_input_tokens").Int() != 30 || u.Get("cache_creation_input_tokens").Int() != 20 ||
		u.Get("cache_creation.ephemeral_5m_input_tokens").Int() != 20 || u.Get("output_tokens_details.thinking_tokens").Int() != 4 ||
		u.Get("service_tier").Str != "standard" {
		t.Errorf("%+v %s", f, u.Raw)
	}
	if c := gjson.GetBytes(got, "content.0.citations"); c.Get("#").Int() != 1 || c.Get("0.url").Str != "https://a.test" {
		t.Errorf("citations %s", c.Raw)
	}
	out := run(t, chunk(`{"role":"assistant","content":"a"}`, "null"), chunk(`{"annotations":[{"type":"url_citation","url_citation":{"url":"https://a.test"}}]}`, "null"),
		chunk(`{"refusal":"no"}`, "null"), chunk(`{}`, `"stop"`), counted, "[DONE]")
	for _, want := range []string{`"usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":88,"output_tokens":0}`, `"citations_delta"`, `"stop_reason":"refusal"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}

// TestAsSent: the member at fault has the caller's name.
func TestAsSent(t *testing.T) {
	for param, want := range map[string]string{
		"max_completion_tokens": "max_tokens", "stop[1]": "stop_sequences", "messages[3].content[1]": "messages", "response_format": "output_config.format",
		"reasoning_effort": "thinking", "tools[0].function.parameters": "tools[0].input_schema", "tools[1].function.name": "tools[1].name",
		"tools[2].function": "tools[2]", "tool_choice.function.name": "tool_choice", "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
		"temperature": "temperature", "": "",
	} {
		if got := asSent(&exchange.Failure{Param: param}); got.Param != want {
			t.Errorf("%s: got %s, want %s", param, got.Param, want)
		}
	}
}

// FuzzFace: whatever a chat adapter appends becomes whole events of valid JSON, or a failure.
func FuzzFace(f *testing.F) {
	for _, delta := range []string{
		`{"content":"a"}`, `{"reasoning_content":"a","reasoning_details":[{"type":"reasoning.text","format":"x","index":0,"text":"a"}]}`,
		`{"reasoning_details":[{"type":"reasoning.text","format":"anthropic-claude-v1","signature":"s"},{"type":"reasoning.encrypted","data":"d"}]}`,
		`{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{"},"extra_content":{"a":1}}]}`,
		`{"annotations":[{"type":"url_citation","url_citation":{}}],"refusal":"r"}`,
		`{"function_call":{"name":"f","arguments":"{\"a\":\"\ud800"},"content":"\ud83d"}`, `{"function_call":{"arguments":[1]},"reasoning_details":[{"data":"\udc00"},{"data":1},{"data":"b"}],"content":"a"}`,
	} {
		f.Add([]byte(delta), "stop")
	}
	f.Fuzz(func(t *testing.T, delta []byte, finish string) {
		if !adapter.Valid(delta) {
			return
		}
		reason, err := json.Marshal(finish)
		if err != nil {
			t.Fatal(err)
		}
		out, bad := translated([]string{chunk(string(delta), "null"), chunk(string(delta), "null"), chunk(`{}`, string(reason)), counted, "[DONE]"})
		if bad != nil {
			return
		}
		open := 0
		for e := range strings.SplitSeq(strings.TrimSuffix(out, "\n\n"), "\n\n") {
			name, data, ok := strings.Cut(strings.TrimPrefix(e, "event: "), "\ndata: ")
			if !ok || !json.Valid([]byte(data)) || gjson.Get(data, "type").Str != name {
				t.Fatalf("event %q", e)
			}
			switch name {
			case "content_block_start":
				open++
			case "content_block_stop":
				open--
			case "content_block_delta":
				if open != 1 {
					t.Fatalf("a delta outside of a block: %s", out)
				}
			}
		}
		if open != 0 {
			t.Errorf("blocks are open: %s", out)
		}
	})
}

// TestDrawn: an image of the answer is a block as Anthropic's requests have them, whole and streamed.
func TestDrawn(t *testing.T) {
	const images = `"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}},{"image_url":{"url":"https://a.test/b.png"}},{}]`
	const want = `{"source":{"data":"QUJD","media_type":"image/png","type":"base64"},"type":"image"} {"source":{"type":"url","url":"https://a.test/b.png"},"type":"image"}`
	got, _, f := Face{openai.New()}.Response(&exchange.Request{Operation: exchange.Chat, Model: "m", Body: []byte(`{}`)},
		[]byte(`{"id":"c1","choices":[{"message":{"content":"hi",`+images+`},"finish_reason":"stop"}]}`), note)
	if f != nil || gjson.GetBytes(got, "content.1").Raw+" "+gjson.GetBytes(got, "content.2").Raw != want || gjson.GetBytes(got, "content.#").Int() != 3 {
		t.Errorf("whole: %s, %+v", got, f)
	}
	var blocks []string
	for line := range strings.Lines(run(t, chunk(`{"content":"hi"}`, "null"), chunk(`{`+images+`}`, "null"), chunk(`{"content":"there"}`, `"stop"`))) {
		if b := gjson.Get(strings.TrimPrefix(line, "data: "), "content_block"); b.Get("type").Str == "image" {
			blocks = append(blocks, b.Raw)
		}
	}
	if streamed := strings.Join(blocks, " "); streamed != want {
		t.Errorf("streamed: %s", streamed)
	}
}
