package fakeprovider

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestResponses says that a stream tells, event by event, what its last one and a JSON answer hold.
func TestResponses(t *testing.T) {
	_, url := start(t, Config{})
	const tools = `,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}},{"type":"function","name":"now"},{"type":"custom","name":"patch"}]`
	for name, row := range map[string]struct {
		prompt, more, status, output string
	}{
		"text":      {"[[tokens=3]]", "", "completed", "message " + Text(3, false)},
		"capped":    {"[[tokens=9 reasoning=2]]", `,"max_output_tokens":4`, "incomplete", "reasoning , message " + Text(2, false)},
		"two calls": {"call get_weather and call now", tools, "completed", `function_call get_weather{"city":"example"}, function_call now{}`},
		"a text":    {"call patch", tools, "completed", "custom_tool_call patchexample"},
		"a schema":  {"hi", `,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","properties":{"a":{"type":"integer"}}}}}`, "completed", `message {"a":7}`},
		"logprobs":  {"[[tokens=3]]", `,"include":["message.output_text.logprobs"],"top_logprobs":1`, "completed", "message " + Text(3, false)},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"fake-large","instructions":"abcd","input":[{"role":"user","content":[{"type":"input_text","text":"` + row.prompt + `"}]}]` + row.more
			whole := gjson.Parse(post(t, url+"/v1/responses", body+"}").body)
			all := events(post(t, url+"/v1/responses", body+`,"stream":true}`).body)
			said, tokens := "", ""
			for i, e := range all {
				doc := gjson.Parse(e.data)
				if e.name != doc.Get("type").String() || doc.Get("sequence_number").Int() != int64(i) {
					t.Fatalf("event %d: %+v", i, e)
				}
				said += doc.Get("delta").String()
				tokens += strings.Join(texts(doc.Get("logprobs.#.token")), "")
			}
			last := gjson.Parse(all[len(all)-1].data).Get("response")
			var output []string
			for _, item := range last.Get("output").Array() {
				output = append(output, item.Get("type").String()+" "+item.Get("content.0.text").String()+item.Get("name").String()+item.Get("arguments").String()+item.Get("input").String())
			}
			if all[0].name != "response.created" || all[len(all)-1].name != "response."+row.status || last.Get("status").String() != row.status ||
				strings.Join(output, ", ") != row.output || !strings.Contains(row.output, said[:4]) || last.Get("usage").Raw != whole.Get("usage").Raw ||
				whole.Get("output.#.type").Raw != last.Get("output.#.type").Raw {
				t.Errorf("%v\n%s\n%s", output, last.Raw, whole.Raw)
			}
			for _, r := range []gjson.Result{last, whole} {
				if got := strings.Join(texts(r.Get("output.0.content.0.logprobs.#.token")), ""); name == "logprobs" && (got != said || tokens != said+said) {
					t.Errorf("logprobs of %q, told %q: %s", got, tokens, r.Raw)
				}
			}
			if u := last.Get("usage"); u.Get("total_tokens").Int() != u.Get("input_tokens").Int()+u.Get("output_tokens").Int() || u.Get("output_tokens").Int() == 0 {
				t.Errorf("usage %s", u.Raw)
			}
		})
	}
	if r := post(t, url+"/v1/responses", `{"model":"fake-large","input":[]}`); r.status != 400 {
		t.Errorf("no input: %d %s", r.status, r.body)
	}
	failed := events(post(t, url+"/v1/responses", `{"model":"fake-large","stream":true,"input":"[[tokens=5 fault=error-mid after=2]]"}`).body)
	if last := failed[len(failed)-1]; last.name != "response.failed" || gjson.Get(last.data, "response.error.code").String() != "server_error" {
		t.Errorf("%+v", last)
	}
}

func texts(list gjson.Result) (out []string) {
	for _, one := range list.Array() {
		out = append(out, one.String())
	}
	return out
}
