package responses_test

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// weighed asks for logprobs.
func weighed(stream bool) *exchange.Request {
	r := ask(stream)
	r.Native = []byte(`{"model":"smart","input":"hi","include":["reasoning.encrypted_content","message.output_text.logprobs"],"top_logprobs":1}`)
	return r
}

const (
	tokenA = `{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]}`
	tokenB = `{"token":"b","logprob":-1,"bytes":[98],"top_logprobs":[]}`
	tokenC = `{"token":"c","logprob":-2,"bytes":[99],"top_logprobs":[]}`
)

func weighedChunk(delta, tokens string) string {
	return `{"id":"c1","choices":[{"index":0,"delta":` + delta + `,"logprobs":{"content":[` + tokens + `],"refusal":null},"finish_reason":null}]}`
}

// TestLogprobs: the logprobs of chat are those of the text, told with the deltas they belong to and whole at the end.
func TestLogprobs(t *testing.T) {
	const want = "[" + tokenA + "," + tokenB + "," + tokenC + "]"
	whole := `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"abc"},"logprobs":{"content":` + want + `},"finish_reason":"stop"}]}`
	for _, r := range []*exchange.Request{weighed(false), ask(false)} {
		out, _, f := responses.Face{Adapter: openai.New()}.Response(r, []byte(whole), note)
		should := want
		if !strings.Contains(string(r.Native), "include") {
			should = "[]"
		}
		if got := gjson.GetBytes(out, "output.0.content.0.logprobs").Raw; f != nil || got != should {
			t.Errorf("%+v %s", f, out)
		}
	}
	for name, chunks := range map[string][]string{
		"with the text":   {weighedChunk(`{"role":"assistant","content":""}`, ""), weighedChunk(`{"content":"a"}`, tokenA), weighedChunk(`{"content":"bc"}`, tokenB+","+tokenC)},
		"before the text": {weighedChunk(`{"role":"assistant"}`, tokenA), weighedChunk(`{"content":"a"}`, tokenB), weighedChunk(`{"content":"bc"}`, tokenC)},
		"behind the text": {chunk(`{"content":"a"}`, "null"), weighedChunk(`{}`, tokenA), chunk(`{"content":"bc"}`, "null"), weighedChunk(`{}`, tokenB+","+tokenC)},
	} {
		t.Run(name, func(t *testing.T) {
			events := eventsOf(t, weighed(true), append(chunks, chunk(`{}`, `"stop"`), counted, "[DONE]")...)
			told := ""
			for _, raw := range events {
				switch e := gjson.Parse(raw); e.Get("type").Str {
				case "response.output_text.delta":
					if l := e.Get("logprobs").Raw; l != "[]" {
						told += "," + l[1:len(l)-1]
					}
				case "response.output_text.done":
					if e.Get("logprobs").Raw != want {
						t.Errorf("done %s", raw)
					}
				case "response.content_part.done":
					if e.Get("part.logprobs").Raw != want {
						t.Errorf("part %s", raw)
					}
				}
			}
			final := follow(t, events)
			if got := final.Get("output.0.content.0.logprobs").Raw; got != want || told != ","+want[1:len(want)-1] || final.Get("top_logprobs").Int() != 1 {
				t.Errorf("told %s, in the end %s", told, got)
			}
		})
	}
}

// eventsOf are what the face makes of chunks.
func eventsOf(t *testing.T, r *exchange.Request, chunks ...string) []string {
	t.Helper()
	s := responses.Face{Adapter: openai.New()}.Stream(r, note)
	var out []byte
	for _, c := range chunks {
		before, p := s.Event(out, nil, []byte(c))
		if out = before; p.Failure != nil {
			t.Fatal(p.Failure)
		}
	}
	out, f := s.End(out)
	if f != nil {
		t.Fatal(f)
	}
	_, events := read(t, out)
	return events
}

// TestAnnotations: what chat's text cites is cited here.
func TestAnnotations(t *testing.T) {
	const (
		chat = `[{"type":"url_citation","url_citation":{"start_index":0,"end_index":1,"url":"https://a.test","title":"A"}},{"type":"file","file":{}}]`
		want = `{"end_index":1,"start_index":0,"title":"A","type":"url_citation","url":"https://a.test"}`
	)
	out, _, f := responses.Face{Adapter: openai.New()}.Response(ask(false),
		[]byte(`{"id":"c1","choices":[{"index":0,"message":{"content":"a","annotations":`+chat+`},"finish_reason":"stop"}]}`), note)
	if got := gjson.GetBytes(out, "output.0.content.0.annotations").Raw; f != nil || got != "["+want+"]" {
		t.Errorf("%+v %s", f, out)
	}
	for name, chunks := range map[string][]string{
		"behind the text": {chunk(`{"content":"a"}`, "null"), chunk(`{"annotations":`+chat+`}`, "null"), chunk(`{"annotations":`+chat+`}`, `"stop"`)},
		"before the text": {chunk(`{"annotations":`+chat+`}`, "null"), chunk(`{"content":"a","annotations":`+chat+`}`, `"stop"`)},
	} {
		events := eventsOf(t, ask(true), append(chunks, counted, "[DONE]")...)
		added := 0
		for _, raw := range events {
			if e := gjson.Parse(raw); e.Get("type").Str == "response.output_text.annotation.added" {
				if e.Get("annotation").Raw != want || e.Get("annotation_index").Int() != int64(added) || e.Get("item_id").Str == "" || !e.Get("content_index").Exists() {
					t.Errorf("%s: %s", name, raw)
				}
				added++
			}
		}
		if got := follow(t, events).Get("output.0.content.0.annotations").Raw; added != 2 || got != "["+want+","+want+"]" {
			t.Errorf("%s: %d added, in the end %s", name, added, got)
		}
	}
}

// TestCutShort: what was being said when the model had to stop is incomplete, and nothing is added to it.
func TestCutShort(t *testing.T) {
	r := ask(true)
	r.Native = []byte(`{"model":"smart","input":"hi","tools":[{"type":"custom","name":"patch"}]}`)
	call := func(index, id, name, arguments string) string {
		return chunk(`{"tool_calls":[{"index":`+index+`,"id":"`+id+`","function":{"name":"`+name+`","arguments":`+arguments+`}}]}`, "null")
	}
	for want, chunks := range map[string][]string{
		`message incomplete so`:              {chunk(`{"content":"so"}`, "null")},
		`reasoning incomplete `:              {chunk(`{"reasoning_content":"hm"}`, "null")},
		`reasoning  ; message incomplete so`: {chunk(`{"reasoning_content":"hm"}`, "null"), chunk(`{"content":"so"}`, "null")},
		`function_call incomplete `:          {call("0", "t1", "f", `""`)},
		`message completed so; function_call completed {}; custom_tool_call incomplete *** Be`: {
			chunk(`{"content":"so"}`, "null"), call("0", "t1", "f", `""`), call("1", "t2", "patch", `"{\"input\":\"*** Be"`),
		},
	} {
		final := follow(t, eventsOf(t, r, append(chunks, chunk(`{}`, `"length"`), counted, "[DONE]")...))
		var got []string
		for _, item := range final.Get("output").Array() {
			got = append(got, strings.Join([]string{
				item.Get("type").Str, item.Get("status").Str, item.Get("content.0.text").Str + item.Get("arguments").Str + item.Get("input").Str,
			}, " "))
		}
		if strings.Join(got, "; ") != want || final.Get("status").Str != "incomplete" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
