package fakeprovider

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestChatJSON(t *testing.T) {
	s, url := start(t, Config{})
	r := post(t, url+"/v1/chat/completions", chatBody("[[tokens=5 reasoning=2 cache-read=4 cache-write=1]]", `,"n":2`))
	got := r.json()
	record, _ := ended(t, s)
	prompt := ceilDiv(int64(len("[[tokens=5 reasoning=2 cache-read=4 cache-write=1]]")), 4) + 3
	for path, want := range map[string]any{
		"object": "chat.completion", "model": "fake-large", "choices.#": 2.0, "choices.1.index": 1.0,
		"choices.0.message.role": "assistant", "choices.0.message.content": Text(5, false),
		"choices.0.finish_reason": "stop", "usage.prompt_tokens": float64(prompt), "usage.completion_tokens": 14.0,
		"usage.total_tokens": float64(prompt + 14), "usage.prompt_tokens_details.cached_tokens": 4.0,
		"usage.prompt_tokens_details.cache_write_tokens":             1.0,
		"usage.completion_tokens_details.reasoning_tokens":           4.0,
		"usage.completion_tokens_details.audio_tokens":               0.0,
		"usage.completion_tokens_details.no_such_member":             nil,
		"choices.0.message.tool_calls":                               nil,
		"choices.0.message.refusal":                                  nil,
		"usage.prompt_tokens_details.audio_tokens":                   0.0,
		"usage.completion_tokens_details.rejected_prediction_tokens": 0.0,
	} {
		if value := got.Get(path).Value(); value != want {
			t.Errorf("%s = %v, want %v", path, value, want)
		}
	}
	if r.status != 200 || r.header.Get("Content-Type") != "application/json" || r.header.Get("X-Request-Id") != record.ID {
		t.Errorf("status %d header %v, record %s", r.status, r.header, record.ID)
	}
	want := Usage{Input: prompt - 5, CacheRead: 4, CacheWrite5m: 1, Output: 14, Reasoning: 4}
	if record.Served != want || record.Outcome != OutcomeCompleted || record.TokensSent != 14 {
		t.Errorf("record = %+v, want served %+v", record, want)
	}
}

func TestChatStream(t *testing.T) {
	_, url := start(t, Config{})
	tests := []struct {
		name      string
		directive string
		more      string
		tokens    int64
		unicode   bool
		finish    string
		usage     bool
	}{
		{"with usage", "tokens=5", streamOn, 5, false, "stop", true},
		{"without usage", "tokens=5", `,"stream":true`, 5, false, "stop", false},
		{"capped", "tokens=5", streamOn + `,"max_completion_tokens":3`, 3, false, "length", true},
		{"reasoning is hidden and inside the cap", "tokens=5 reasoning=2", streamOn + `,"max_tokens":4`, 2, false, "length", true},
		{"odd framing", "tokens=9 text=unicode sse=crlf,nospace,comment,split", streamOn, 9, true, "stop", true},
		{"in bursts", "tokens=9 burst=4", streamOn, 9, false, "stop", true},
		{"no tokens", "tokens=0", streamOn, 0, false, "stop", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := post(t, url+"/v1/chat/completions", chatBody("[["+tt.directive+"]]", tt.more))
			if r.err != nil || !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
				t.Fatalf("header %v error %v", r.header, r.err)
			}
			all := events(r.body)
			if last := all[len(all)-1].data; last != "[DONE]" {
				t.Fatalf("last event %q", last)
			}
			var text, finish strings.Builder
			usages, ids := 0, map[string]bool{}
			for i, e := range all[:len(all)-1] {
				chunk := gjson.Parse(e.data)
				ids[chunk.Get("id").String()] = true
				if e.name != "" || !gjson.Valid(e.data) || chunk.Get("object").String() != "chat.completion.chunk" || chunk.Get("error").Exists() {
					t.Fatalf("event %+v", e)
				}
				if i == 0 && chunk.Get("choices.0.delta.role").String() != "assistant" {
					t.Errorf("first event %s has no role", e.data)
				}
				text.WriteString(chunk.Get("choices.0.delta.content").String())
				finish.WriteString(chunk.Get("choices.0.finish_reason").String())
				if chunk.Get("usage").Exists() != tt.usage {
					t.Errorf("usage member of %s, want %v", e.data, tt.usage)
				}
				if chunk.Get("usage").IsObject() {
					usages++
					if i != len(all)-2 || chunk.Get("choices.#").Int() != 0 {
						t.Errorf("usage in event %d of %d: %s", i, len(all), e.data)
					}
				}
			}
			if text.String() != Text(tt.tokens, tt.unicode) || finish.String() != tt.finish || len(ids) != 1 {
				t.Errorf("text %q finish %q ids %d, want %q %q and one id", text.String(), finish.String(), len(ids),
					Text(tt.tokens, tt.unicode), tt.finish)
			}
			if (usages == 1) != tt.usage {
				t.Errorf("%d usage chunks, want usage %v", usages, tt.usage)
			}
		})
	}
}

const twoTools = `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}},{"type":"function","function":{"name":"now"}}]`

func TestChatStreamTools(t *testing.T) {
	s, url := start(t, Config{})
	r := post(t, url+"/v1/chat/completions", chatBody("call get_weather and call now", streamOn+twoTools))
	names, ids, arguments := [2]string{}, [2]string{}, [2]string{}
	finish, fragments := "", 0
	var usage gjson.Result
	for _, e := range events(r.body) {
		chunk := gjson.Parse(e.data)
		for _, call := range chunk.Get("choices.0.delta.tool_calls").Array() {
			i := call.Get("index").Int()
			names[i] += call.Get("function.name").String()
			ids[i] += call.Get("id").String()
			arguments[i] += call.Get("function.arguments").String()
			fragments++
		}
		finish += chunk.Get("choices.0.finish_reason").String()
		if chunk.Get("usage").IsObject() {
			usage = chunk.Get("usage")
		}
	}
	if names != [2]string{"get_weather", "now"} || arguments != [2]string{`{"city":"example"}`, `{}`} || ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("calls %v %v %v", names, ids, arguments)
	}
	record, _ := ended(t, s)
	if finish != "tool_calls" || usage.Get("completion_tokens").Int() != int64(fragments) || record.Served.Output != int64(fragments) {
		t.Errorf("finish %q, usage %s, %d fragments, served %d", finish, usage.Raw, fragments, record.Served.Output)
	}
	body := post(t, url+"/v1/chat/completions", chatBody("call now", twoTools)).json()
	if got := body.Get("choices.0.message.tool_calls.0.function.name").String(); got != "now" || body.Get("choices.0.message.content").Value() != nil {
		t.Errorf("JSON answer %s", body.Raw)
	}
}

func TestMessagesJSON(t *testing.T) {
	_, url := start(t, Config{})
	got := post(t, url+"/v1/messages", messagesBody("[[tokens=3 reasoning=2 call=now cache-read=5 cache-write=2 cache-write-1h=1]]",
		`,"tools":[{"name":"now","input_schema":{"type":"object","properties":{"zone":{"enum":["UTC"]}}}}]`)).json()
	for path, want := range map[string]any{
		"type": "message", "role": "assistant", "model": "fake-large", "content.#": 3.0,
		"content.0.type": "thinking", "content.1.text": Text(3, false), "content.2.type": "tool_use",
		"content.2.input.zone": "UTC", "stop_reason": "tool_use", "stop_sequence": nil,
		"usage.cache_read_input_tokens": 5.0, "usage.cache_creation_input_tokens": 3.0,
		"usage.cache_creation.ephemeral_1h_input_tokens": 1.0, "usage.output_tokens_details.thinking_tokens": 2.0,
	} {
		if value := got.Get(path).Value(); value != want {
			t.Errorf("%s = %v, want %v", path, value, want)
		}
	}
	if got.Get("usage.output_tokens").Int() != 2+3+1+int64(len(splitArguments(`{"zone":"UTC"}`))) {
		t.Errorf("usage %s", got.Get("usage").Raw)
	}
	count := post(t, url+"/v1/messages/count_tokens", messagesBody("hello", "")).json()
	if count.Get("input_tokens").Int() != 5 {
		t.Errorf("count_tokens = %s, want 5", count.Raw)
	}
}

func TestMessagesStream(t *testing.T) {
	_, url := start(t, Config{})
	r := post(t, url+"/v1/messages", messagesBody("[[tokens=2 reasoning=1]] call now",
		`,"stream":true,"tools":[{"name":"now","input_schema":{"type":"object"}}]`))
	var order []string
	var text, partial string
	var last gjson.Result
	for _, e := range events(r.body) {
		data := gjson.Parse(e.data)
		if data.Get("type").String() != e.name {
			t.Errorf("event %q holds %s", e.name, e.data)
		}
		step := e.name
		if e.name == "content_block_delta" {
			step = data.Get("delta.type").String()
		}
		if index := data.Get("index"); index.Exists() {
			step += index.String()
		}
		if len(order) == 0 || order[len(order)-1] != step {
			order = append(order, step)
		}
		text += data.Get("delta.text").String()
		partial += data.Get("delta.partial_json").String()
		if e.name == "message_delta" {
			last = data
		}
	}
	want := []string{"message_start", "ping",
		"content_block_start0", "thinking_delta0", "signature_delta0", "content_block_stop0",
		"content_block_start1", "text_delta1", "content_block_stop1",
		"content_block_start2", "input_json_delta2", "content_block_stop2", "message_delta", "message_stop"}
	if !slices.Equal(order, want) {
		t.Errorf("events\n%v, want\n%v", order, want)
	}
	if text != Text(2, false) || partial != "{}" || last.Get("delta.stop_reason").String() != "tool_use" ||
		last.Get("usage.output_tokens").Int() != 1+2+2 {
		t.Errorf("text %q arguments %q end %s", text, partial, last.Raw)
	}
}

func TestEmbeddings(t *testing.T) {
	s, url := start(t, Config{})
	path := url + "/v1/embeddings"
	floats := post(t, path, `{"model":"fake-embed","input":["abcd","abcde"],"dimensions":8}`).json()
	coded := post(t, path, `{"model":"fake-embed","input":"abcde","dimensions":8,"encoding_format":"base64"}`).json()
	want := Vector("abcde", 8)
	raw, err := base64.StdEncoding.DecodeString(coded.Get("data.0.embedding").String())
	if err != nil || len(raw) != 32 {
		t.Fatalf("base64 of %s: %d bytes, %v", coded.Raw, len(raw), err)
	}
	var length float64
	for i, v := range want {
		length += float64(v) * float64(v)
		if got := float32(floats.Get("data.1.embedding").Array()[i].Float()); got != v {
			t.Errorf("float %d = %v, want %v", i, got, v)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != v {
			t.Errorf("base64 %d = %v, want %v", i, got, v)
		}
	}
	if math.Abs(length-1) > 1e-5 {
		t.Errorf("squared length %v, want 1", length)
	}
	if slices.Equal(want, Vector("abcd", 8)) {
		t.Error("two texts have one vector")
	}
	if floats.Get("usage.prompt_tokens").Int() != 3 || floats.Get("data.#").Int() != 2 || floats.Get("data.1.index").Int() != 1 {
		t.Errorf("answer %s", floats.Raw)
	}
	ids := post(t, path, `{"model":"fake-embed","input":[1,2,3]}`).json()
	if ids.Get("data.#").Int() != 1 || ids.Get("usage.prompt_tokens").Int() != 3 || len(ids.Get("data.0.embedding").Array()) != dimensionsDefault {
		t.Errorf("token ids: %s", ids.Raw)
	}
	if record, _ := ended(t, s); record.Served != (Usage{Input: 3}) || record.Endpoint != EndpointEmbeddings {
		t.Errorf("record %+v", record)
	}
}

func TestModels(t *testing.T) {
	_, url := start(t, Config{Models: []string{"a/b:c", "d"}, StrictModels: true})
	get := func(path string, headers ...string) reply {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{status: res.StatusCode, header: res.Header, body: string(body)}
	}
	if got := get("/v1/models").json(); got.Get("object").String() != "list" || got.Get("data.0.id").String() != "a/b:c" {
		t.Errorf("list %s", got.Raw)
	}
	if got := get("/v1/models", "Anthropic-Version", "2023-06-01").json(); got.Get("has_more").Type != gjson.False || got.Get("data.1.type").String() != "model" {
		t.Errorf("Anthropic list %s", got.Raw)
	}
	if got := get("/v1/models/a%2Fb:c"); got.status != 200 || got.json().Get("id").String() != "a/b:c" {
		t.Errorf("one model: %+v", got)
	}
	if got := get("/v1/models/zzz"); got.status != 404 || got.json().Get("error.code").String() != "model_not_found" {
		t.Errorf("unknown model: %+v", got)
	}
	if got := post(t, url+"/v1/chat/completions", chatBody("hi", "")); got.status != 404 {
		t.Errorf("chat with an unknown model: %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name, path, body string
		status           int
		param            string
	}{
		{"not JSON", "/v1/chat/completions", `{"model":`, 400, ""},
		{"not an object", "/v1/chat/completions", `[]`, 400, ""},
		{"no model", "/v1/chat/completions", `{"messages":[]}`, 400, "model"},
		{"no messages", "/v1/chat/completions", `{"model":"m","messages":[]}`, 400, "messages"},
		{"unknown role", "/v1/chat/completions", `{"model":"m","messages":[{"role":"robot","content":"x"}]}`, 400, "messages"},
		{"cap of zero", "/v1/chat/completions", chatBody("hi", `,"max_tokens":0`), 400, "max_tokens"},
		{"n of zero", "/v1/chat/completions", chatBody("hi", `,"n":0`), 400, "n"},
		{"stream options without stream", "/v1/chat/completions", chatBody("hi", `,"stream_options":{"include_usage":true}`), 400, "stream_options"},
		{"unknown setting", "/v1/chat/completions", chatBody("[[tokns=5]]", ""), 400, ""},
		{"unfit setting", "/v1/chat/completions", chatBody("[[tokens=many]]", ""), 400, ""},
		{"no max_tokens", "/v1/messages", chatBody("hi", ""), 400, ""},
		{"empty input", "/v1/embeddings", `{"model":"m","input":""}`, 400, "input"},
		{"too many dimensions", "/v1/embeddings", `{"model":"m","input":"x","dimensions":5000}`, 400, "dimensions"},
		{"odd format", "/v1/embeddings", `{"model":"m","input":"x","encoding_format":"hex"}`, 400, "encoding_format"},
	}
	s, url := start(t, Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := post(t, url+tt.path, tt.body)
			if r.status != tt.status || r.json().Get("error.param").String() != tt.param || r.json().Get("error.message").String() == "" {
				t.Errorf("%d %s, want %d and param %q", r.status, r.body, tt.status, tt.param)
			}
			if record, _ := ended(t, s); record.Outcome != OutcomeInvalid || record.Served != (Usage{}) {
				t.Errorf("record %+v", record)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	s, url := start(t, Config{Keys: []Key{{"old", "secret"}, {"other", "else"}}})
	body := chatBody("hi", "")
	if r := post(t, url+"/v1/chat/completions", body); r.status != 200 {
		t.Fatalf("status %d", r.status)
	}
	if err := s.Apply(Control{Keys: &[]Key{{"new", "fresh"}}}); err != nil {
		t.Fatal(err)
	}
	r := post(t, url+"/v1/chat/completions", body)
	if r.status != 401 || r.json().Get("error.code").String() != "invalid_api_key" {
		t.Errorf("withdrawn key: %d %s", r.status, r.body)
	}
	r = post(t, url+"/v1/messages", messagesBody("hi", ""))
	if r.status != 401 || r.json().Get("type").String() != "error" || r.json().Get("error.type").String() != "authentication_error" {
		t.Errorf("Anthropic, withdrawn key: %d %s", r.status, r.body)
	}
	for _, header := range [][2]string{{"Authorization", "Bearer fresh"}, {"Authorization", "bearer fresh"}, {"X-Api-Key", "fresh"}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header[0], header[1])
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%v: status %d", header, res.StatusCode)
		}
	}
	_, w := ended(t, s)
	if w.Totals.Unauthorized != 2 || w.Keys["old"].Completed != 1 || w.Keys["new"].Completed != 3 || w.Totals.Received != 6 {
		t.Errorf("witness %+v keys %+v", w.Totals, w.Keys)
	}
}

// A JSON schema that is asked for is answered in full, however it is cut.
func TestStructuredText(t *testing.T) {
	const schema = `{"type":"object","properties":{"kind":{"type":"string"},"count":{"type":"integer"}}}`
	const want = `{"kind":"example","count":7}`
	_, url := start(t, Config{})
	chat := chatBody("[[tokens=2]] hello", `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":`+schema+`}}`)
	if got := post(t, url+"/v1/chat/completions", chat).json().Get("choices.0.message.content").Str; got != want {
		t.Errorf("chat: %q", got)
	}
	got := post(t, url+"/v1/messages", messagesBody("[[tokens=2]] hello", `,"output_config":{"format":{"type":"json_schema","schema":`+schema+`}}`)).json()
	if text := got.Get("content.0.text").Str; text != want {
		t.Errorf("messages: %q", text)
	}
	chat = chatBody("[[tokens=2]] hello", `,"response_format":{"type":"json_object"}`)
	if got := post(t, url+"/v1/chat/completions", chat).json().Get("choices.0.message.content").Str; got != `{"answer":"example"}` {
		t.Errorf("chat, without a schema: %q", got)
	}
	body := `{"model":"fake-large","input":"[[tokens=2]] hello","text":{"format":{"type":"json_schema","name":"n","schema":` + schema + `}}`
	if text := post(t, url+"/v1/responses", body+"}").json().Get("output.0.content.0.text").Str; text != want {
		t.Errorf("responses: %q", text)
	}
	all := events(post(t, url+"/v1/responses", body+`,"stream":true}`).body)
	if text := gjson.Get(all[len(all)-1].data, "response.output.0.content.0.text").Str; text != want {
		t.Errorf("responses, at the end of a stream: %q", text)
	}
}
