package system

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// modelWait bounds one answer of a model on a slow machine.
const modelWait = 5 * time.Minute

// modelOrg has the server's model as alias own, and as alias wrong under a name that it does not have.
func modelOrg(base, model, vendor, key string) string {
	quoted, own, credential := fmt.Sprintf("%q", model), "", ""
	if vendor != "" {
		own += ", vendor: " + vendor
	}
	if key != "" {
		own, credential = own+", credential: own", "  own: { provider: compatible }\n"
	}
	return strings.NewReplacer(
		"credentials: { main: { provider: openai } }\n", "credentials:\n  main: { provider: openai }\n"+credential,
		"deployments:\n", "deployments:\n"+
			"  - { id: own, provider: compatible, base_url: \""+base+"\", model: "+quoted+", price: chat"+own+" }\n"+
			"  - { id: wrong, provider: compatible, base_url: \""+base+"\", model: no-such-model, price: chat"+own+" }\n",
		"aliases:\n", "aliases:\n"+
			"  own: { timeouts: { connect: 2s, first_token: 5m, idle: 5m, total: 10m }, max_attempts: 1, targets: [ { deployment: own } ] }\n"+
			"  wrong: { max_attempts: 1, targets: [ { deployment: wrong } ] }\n",
	).Replace(org("http://127.0.0.1:9/v1", "{ monthly: 1000 }", "{ rpm: 60000 }"))
}

// TestModelServer puts the sidecar before a model server that is already running, and prints what it saw: make
// test-model. What a server need not be able to do is told, not judged; what it does must come out right.
func TestModelServer(t *testing.T) {
	upstream, model := os.Getenv("SLUICE_UPSTREAM"), os.Getenv("SLUICE_MODEL")
	if upstream == "" || model == "" {
		t.Skip("needs a model server: make test-model UPSTREAM=http://127.0.0.1:8080/v1 MODEL=my-model")
	}
	at, err := url.Parse(upstream)
	if err != nil || at.Host == "" {
		t.Fatalf("UPSTREAM=%s is no URL", upstream)
	}
	vendor, key := os.Getenv("SLUICE_VENDOR"), os.Getenv("UPSTREAM_API_KEY")
	p := newTap(t, at)
	s := start(t, 1, 1, func(string) string { return modelOrg(p.URL+at.Path, model, vendor, key) })
	if key != "" {
		s.quotadIn(key, "credential", "set", "own")
	}
	m := &modelServer{t: t, stack: s, tap: p, root: at.Scheme + "://" + at.Host}
	if a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":1,"messages":[{"role":"user","content":"Hello"}]}`); a.status != 200 {
		t.Fatalf("the model server at UPSTREAM=%s does not serve MODEL=%s: %d %s", upstream, model, a.status, a.body)
	}
	m.count(t)
	t.Run("json", m.json)
	t.Run("stream", m.stream)
	t.Run("stream of who does not ask for usage", m.quiet)
	t.Run("messages API", m.messages)
	t.Run("responses API", m.responses)
	t.Run("schema", m.schema)
	t.Run("tools", m.tools)
	t.Run("embeddings", m.embeddings)
	t.Run("books", m.books)
	t.Run("unknown model", m.unknown)
	t.Run("prompt too long", m.tooLong)
	t.Run("abort", m.abort)
}

// modelServer is a model server behind a sidecar.
type modelServer struct {
	t      *testing.T
	stack  *stack
	tap    *tap
	root   string // of the server, without a path
	all    said   // what the server stated in all
	cached int64  // of that
	asked  int64  // requests in that
	silent int64  // requests of which it stated nothing
}

func (m *modelServer) ask(t *testing.T, path, body string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), modelWait)
	defer cancel()
	a := m.stack.call(ctx, m.stack.sidecars[0], path, appKey, body)
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a
}

// count adds up what the server stated in its newest answer.
func (m *modelServer) count(t *testing.T) (u said, ok bool) {
	t.Helper()
	u, cached, ok := m.tap.stated()
	if !ok {
		m.silent++
		t.Log("the server states no usage")
		return u, false
	}
	m.all.in, m.all.out, m.cached, m.asked = m.all.in+u.in, m.all.out+u.out, m.cached+cached, m.asked+1
	return u, true
}

// equal holds that the caller was told the usage that the server stated; an estimate, where it stated none.
func (m *modelServer) equal(t *testing.T, told said) {
	t.Helper()
	if stated, ok := m.count(t); ok && told != stated || told.in == 0 {
		t.Errorf("the caller was told %+v, the server stated %+v, %v", told, stated, ok)
	}
}

// until polls until something is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(modelWait); !so(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

const question = `[{"role":"user","content":"What is the capital of France?"}]`

func (m *modelServer) json(t *testing.T) {
	a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":24,"temperature":0,"messages":`+question+`}`)
	v := gjson.Parse(a.body)
	if a.status != 200 || v.Get("model").Str != "own" || v.Get("choices.0.finish_reason").Str == "" || v.Get("x_gateway.deployment").Str != "own" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	m.equal(t, said{v.Get("usage.prompt_tokens").Int(), v.Get("usage.completion_tokens").Int()})
	t.Logf("%q, %s, usage %s", v.Get("choices.0.message.content").Str, v.Get("choices.0.finish_reason").Str, v.Get("usage").Raw)
}

// chunks reads a chat stream: its text, why it ended, and its usage.
func chunks(t *testing.T, body string) (text, finish string, usage gjson.Result, n int) {
	t.Helper()
	list, err := events(strings.NewReader(body))
	if err != nil || len(list) == 0 || list[len(list)-1] != "[DONE]" {
		t.Fatalf("no whole stream: %v %s", err, body)
	}
	for _, data := range list[:len(list)-1] {
		c := gjson.Parse(data)
		if !gjson.Valid(data) || c.Get("model").Str != "own" {
			t.Errorf("chunk %s", data)
		}
		text += c.Get("choices.0.delta.content").Str
		if f := c.Get("choices.0.finish_reason").Str; f != "" {
			finish = f
		}
		if u := c.Get("usage"); u.IsObject() {
			usage = u
		}
	}
	return text, finish, usage, len(list) - 1
}

func (m *modelServer) stream(t *testing.T) {
	began := time.Now()
	a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":48,"temperature":0,"stream":true,"stream_options":{"include_usage":true},"messages":`+question+`}`)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	text, finish, usage, n := chunks(t, a.body)
	if finish == "" {
		t.Errorf("no finish_reason: %s", a.body)
	}
	m.equal(t, said{usage.Get("prompt_tokens").Int(), usage.Get("completion_tokens").Int()})
	t.Logf("%d chunks in %v, %q, %s, usage %s", n, time.Since(began).Round(time.Millisecond), text, finish, usage.Raw)
}

func (m *modelServer) quiet(t *testing.T) {
	a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":8,"stream":true,"messages":`+question+`}`)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if _, _, usage, n := chunks(t, a.body); usage.Exists() {
		t.Errorf("usage that nobody asked for: %s", usage.Raw)
	} else {
		stated, _ := m.count(t)
		t.Logf("%d chunks without usage; the server stated %+v", n, stated)
	}
}

// lastEvent is the data of a stream's last event of a kind.
func lastEvent(body, kind string) (data gjson.Result) {
	for _, ev := range strings.Split(body, "\n\n") {
		if name, rest, ok := strings.Cut(ev, "\n"); ok && name == "event: "+kind {
			data = gjson.Parse(strings.TrimPrefix(rest, "data: "))
		}
	}
	return data
}

func (m *modelServer) messages(t *testing.T) {
	body := `{"model":"own","max_tokens":16,"messages":` + question
	a := m.ask(t, "/v1/messages", body+`}`)
	v := gjson.Parse(a.body)
	if a.status != 200 || v.Get("type").Str != "message" || v.Get("stop_reason").Str == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	prompt := func(u gjson.Result) int64 {
		return u.Get("input_tokens").Int() + u.Get("cache_read_input_tokens").Int() + u.Get("cache_creation_input_tokens").Int()
	}
	m.equal(t, said{prompt(v.Get("usage")), v.Get("usage.output_tokens").Int()})
	t.Logf("%q, %s, usage %s", v.Get("content.0.text").Str, v.Get("stop_reason").Str, v.Get("usage").Raw)
	a = m.ask(t, "/v1/messages", body+`,"stream":true}`)
	end := lastEvent(a.body, "message_delta")
	if a.status != 200 || !lastEvent(a.body, "message_stop").Exists() || end.Get("delta.stop_reason").Str == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	m.equal(t, said{prompt(end.Get("usage")), end.Get("usage.output_tokens").Int()})
	t.Logf("a stream with %d deltas, %s, usage %s", strings.Count(a.body, "event: content_block_delta"), end.Get("delta.stop_reason").Str, end.Get("usage").Raw)
}

func (m *modelServer) responses(t *testing.T) {
	body := `{"model":"own","max_output_tokens":16,"store":false,"input":"What is the capital of France?"`
	a := m.ask(t, "/v1/responses", body+`}`)
	v := gjson.Parse(a.body)
	if a.status != 200 || v.Get("object").Str != "response" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	m.equal(t, said{v.Get("usage.input_tokens").Int(), v.Get("usage.output_tokens").Int()})
	t.Logf("%q, %s, usage %s", v.Get("output.0.content.0.text").Str, v.Get("status").Str, v.Get("usage").Raw)
	a = m.ask(t, "/v1/responses", body+`,"stream":true}`)
	end := lastEvent(a.body, "response.completed")
	if !end.Exists() {
		end = lastEvent(a.body, "response.incomplete")
	}
	if a.status != 200 || !end.Exists() {
		t.Fatalf("%d %s", a.status, a.body)
	}
	u := end.Get("response.usage")
	m.equal(t, said{u.Get("input_tokens").Int(), u.Get("output_tokens").Int()})
	t.Logf("a stream with %d deltas, %s, usage %s", strings.Count(a.body, "event: response.output_text.delta"), end.Get("type").Str, u.Raw)
}

// able reports whether the server did what it need not be able to do, and tells if it did not. What it was asked must at
// least have an error of OpenAI's dialect.
func (m *modelServer) able(t *testing.T, a answer) bool {
	t.Helper()
	if a.status == 200 {
		return true
	}
	if a.status < 400 || gjson.Get(a.body, "error.message").Str == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	t.Logf("the server cannot: %d %s", a.status, gjson.Get(a.body, "error.message").Str)
	return false
}

func (m *modelServer) schema(t *testing.T) {
	a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":64,"temperature":0,"messages":`+question+`,"response_format":{"type":"json_schema",`+
		`"json_schema":{"name":"answer","strict":true,"schema":{"type":"object","properties":{"city":{"type":"string","enum":["Paris","London"]},"sure":{"type":"boolean"}},"required":["city","sure"],"additionalProperties":false}}}}`)
	if !m.able(t, a) {
		return
	}
	v := gjson.Parse(a.body)
	m.equal(t, said{v.Get("usage.prompt_tokens").Int(), v.Get("usage.completion_tokens").Int()})
	text := v.Get("choices.0.message.content").Str
	var out struct {
		City string
		Sure *bool
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.Sure == nil || out.City != "Paris" && out.City != "London" {
		t.Logf("the server does not hold to the schema: %s", text)
		return
	}
	t.Logf("%s", text)
}

func (m *modelServer) tools(t *testing.T) {
	a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":96,"temperature":0,"messages":[{"role":"user","content":"What is the weather in Paris?"}],`+
		`"tools":[{"type":"function","function":{"name":"get_weather","description":"The weather in a city","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}],"tool_choice":"required"}`)
	if !m.able(t, a) {
		return
	}
	v := gjson.Parse(a.body)
	m.equal(t, said{v.Get("usage.prompt_tokens").Int(), v.Get("usage.completion_tokens").Int()})
	call := v.Get("choices.0.message.tool_calls.0")
	if !call.Exists() {
		t.Logf("the server calls no tool: %s", v.Get("choices.0.message").Raw)
		return
	}
	if call.Get("id").Str == "" || call.Get("type").Str != "function" || call.Get("function.arguments").Type != gjson.String {
		t.Errorf("call %s", call.Raw)
	}
	t.Logf("%s(%s), %s", call.Get("function.name").Str, call.Get("function.arguments").Str, v.Get("choices.0.finish_reason").Str)
}

func (m *modelServer) embeddings(t *testing.T) {
	body := `{"model":"own","input":["What is the capital of France?","Paris"]`
	a := m.ask(t, "/v1/embeddings", body+`,"encoding_format":"float"}`)
	if !m.able(t, a) {
		return
	}
	v := gjson.Parse(a.body)
	size := len(v.Get("data.1.embedding").Array())
	m.equal(t, said{v.Get("usage.prompt_tokens").Int(), 0})
	if v.Get("data.1.embedding.0").Type != gjson.Number {
		t.Logf("the server gives no vector for a text: %.60s", v.Get("data.1.embedding").Raw)
		return
	}
	a = m.ask(t, "/v1/embeddings", body+`,"encoding_format":"base64"}`)
	coded, err := base64.StdEncoding.DecodeString(gjson.Get(a.body, "data.1.embedding").Str)
	if err != nil || size == 0 || len(coded) != 4*size {
		t.Fatalf("%d floats, %d bytes in base64, %v", size, len(coded), err)
	}
	m.equal(t, said{gjson.Get(a.body, "usage.prompt_tokens").Int(), 0})
	t.Logf("%d numbers, the same in base64, usage %s", size, gjson.Get(a.body, "usage").Raw)
}

// books: what the sidecar counted is what the server stated, in sum.
func (m *modelServer) books(t *testing.T) {
	var got usage
	until(t, "usage is written", func() bool {
		got = m.stack.usageHTTP(m.stack.sidecars[0])
		return got.requests >= m.asked+m.silent
	})
	if got.requests != m.asked+m.silent {
		t.Errorf("%d requests, want %d", got.requests, m.asked+m.silent)
	}
	if m.silent > 0 {
		t.Logf("%d requests, %d tokens in, %d out: of %d of them the server stated nothing", got.requests, got.input, got.output, m.silent)
		return
	}
	// The input of usage is without what was read from the server's cache.
	if got.input+m.cached != m.all.in || got.output != m.all.out {
		t.Errorf("usage %+v and %d cached, the server stated %+v", got, m.cached, m.all)
	}
	t.Logf("%d requests, %d tokens in (%d of them cached), %d out: as stated", got.requests, m.all.in, m.cached, got.output)
}

func (m *modelServer) unknown(t *testing.T) {
	a := m.ask(t, "/v1/chat/completions", `{"model":"nobody-knows","messages":`+question+`}`)
	if a.status != 404 || a.code() != "model_not_found" {
		t.Errorf("an unknown alias: %d %s", a.status, a.body)
	}
	t.Logf("an unknown alias: %d %s", a.status, a.code())
	a = m.ask(t, "/v1/chat/completions", `{"model":"wrong","max_tokens":1,"messages":`+question+`}`)
	h := m.tap.last()
	switch {
	case h.status == 200 && a.status == 200:
		t.Logf("a model that the server does not have: it serves the one it has under any name")
	case a.status >= 400 && a.code() != "":
		t.Logf("a model that the server does not have: it says %d, the caller sees %d %s", h.status, a.status, a.code())
	default:
		t.Errorf("a model that the server does not have: it says %d, the caller sees %d %s", h.status, a.status, a.body)
	}
}

func (m *modelServer) tooLong(t *testing.T) {
	a := m.ask(t, "/v1/chat/completions", `{"model":"own","max_tokens":1,"messages":[{"role":"user","content":"`+strings.Repeat("one two three ", 20_000)+`"}]}`)
	h := m.tap.last()
	if a.status == 200 {
		t.Logf("the server takes 60,000 words")
		return
	}
	if a.status != 400 && a.status != 413 || a.code() == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	t.Logf("the server says %d, the caller sees %d %s: %s", h.status, a.status, a.code(), gjson.Get(a.body, "error.message").Str)
}

// abort: a caller that leaves is noticed at the server, in mid-stream and before a whole answer.
func (m *modelServer) abort(t *testing.T) {
	for _, kind := range []struct {
		what   string
		stream bool
	}{{"in mid-stream", true}, {"before a whole answer", false}} {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		body := fmt.Sprintf(`{"model":"own","max_tokens":1500,"stream":%v,"messages":[{"role":"user","content":"Count from one to a thousand, in words."}]}`, kind.stream)
		before := m.tap.last()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.stack.call(ctx, m.stack.sidecars[0], "/v1/chat/completions", appKey, body)
		}()
		over := func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}
		asked := time.Now()
		until(t, "the server works", func() bool {
			h := m.tap.last()
			m.tap.mu.Lock()
			defer m.tap.mu.Unlock()
			return over() || h != before && (h.bytes > 1000 || !kind.stream && time.Since(asked) > time.Second)
		})
		if over() {
			t.Logf("%s: the answer was over before its caller could leave", kind.what)
			continue
		}
		left := time.Now()
		leave()
		h, noticed := m.tap.last(), time.Duration(0)
		until(t, "the server is left", func() bool {
			m.tap.mu.Lock()
			defer m.tap.mu.Unlock()
			noticed = h.left.Sub(left)
			return !h.left.IsZero()
		})
		<-ended
		t.Logf("%s: the sidecar left the server %v after its caller did; %s", kind.what, noticed.Round(10*time.Microsecond), m.idle(t))
	}
	until(t, "nothing is held", func() bool { return m.stack.budget("t").Held == 0 })
}

// idle waits until the server says that it works on nothing, if it is one that says so (llama.cpp with --slots).
func (m *modelServer) idle(t *testing.T) string {
	began := time.Now()
	if b, err := get(m.root + "/slots"); err != nil || !gjson.Get(b, "0.id").Exists() {
		return "the server does not say what it works on"
	}
	until(t, "the server works on nothing", func() bool {
		b, err := get(m.root + "/slots")
		return err == nil && gjson.Get(b, "0.id").Exists() && !strings.Contains(strings.ReplaceAll(b, " ", ""), `"is_processing":true`)
	})
	return fmt.Sprintf("the server worked on nothing %v later", time.Since(began).Round(time.Millisecond))
}
