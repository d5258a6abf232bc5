package anthropic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// want is what an OpenAI-dialect caller must see of a fixture. A caller of the Messages API sees the same in its words.
type want struct {
	File   string
	Stream bool
	Want   struct {
		Status  int
		Content string
		Finish  string `json:"finish_reason"`
		Usage   struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Cached     int64 `json:"cached_tokens"`
			Write      int64 `json:"cache_write_tokens"`
			Reasoning  int64 `json:"reasoning_tokens"`
		}
		Calls     []call `json:"tool_calls"`
		Reasoning string
		Error     *struct{ Type, Code, Param string }
	}
}

type call struct{ ID, Name, Arguments string }

const (
	annotation = `{"estimated":false}`
	asked      = `{"model":"smart","max_tokens":64,"messages":[{"role":"user","content":"hi"}]}`
)

func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	return append(dst, annotation...), u
}

// TestRelayed plays every fixture through the relay to callers of all kinds: whole, byte by byte, cut in two, and cut at
// random.
func TestRelayed(t *testing.T) {
	raw, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []want
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	claude := anthropic.New()
	for caller, ad := range map[string]adapter.Adapter{
		"chat": claude, "messages, native": claude.Speak(exchange.MessagesDialect, nil), "messages, by way of chat": messages.Face{Adapter: claude},
	} {
		for _, w := range all {
			t.Run(caller+"/"+filepath.Base(w.File), func(t *testing.T) {
				raw, err := os.ReadFile(filepath.Join("testdata", filepath.Base(w.File)))
				if err != nil {
					t.Fatal(err)
				}
				// The provider here answers once on each connection.
				raw = bytes.Replace(raw, []byte("\r\n"), []byte("\r\nConnection: close\r\n"), 1)
				u := newUpstream(t)
				play := func(cuts ...int) {
					u.raw, u.cuts = raw, cuts
					got := u.ask(t, ad, w.Stream)
					switch {
					case w.Want.Error != nil:
						checkError(t, w, got)
					case caller == "chat":
						checkChat(t, w, got)
					default:
						checkMessage(t, w, got)
					}
					if caller == "messages, native" && w.Want.Error == nil {
						checkBytes(t, w, raw, got.body)
					}
					if t.Failed() {
						t.Fatalf("cut at %v", cuts)
					}
				}
				play()
				if caller != "chat" && !w.Stream && w.Want.Error == nil { // a server that ignores that a stream was asked for
					streamed := w
					streamed.Stream = true
					checkMessage(t, streamed, u.ask(t, ad, true))
				}
				var each []int
				for at := 1; at < len(raw); at++ {
					if !testing.Short() || at%7 == 0 {
						play(at)
					}
					each = append(each, at)
				}
				play(each...)
				for range 30 {
					var cuts []int
					for at := rand.N(40) + 1; at < len(raw); at += rand.N(40) + 1 {
						cuts = append(cuts, at)
					}
					play(cuts...)
				}
			})
		}
	}
}

// upstream is a provider that answers each connection with raw, cut into writes.
type upstream struct {
	client *relay.Client
	raw    []byte
	cuts   []int // ascending
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.client = relay.NewClient(relay.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go u.serve(far, u.raw, u.cuts)
		return near, nil
	}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.client.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return u
}

func (u *upstream) serve(c net.Conn, raw []byte, cuts []int) {
	defer func() { _ = c.Close() }()
	var head []byte
	for p := make([]byte, 4096); !bytes.Contains(head, []byte("\r\n\r\n{")); {
		n, err := c.Read(p)
		if err != nil {
			return
		}
		head = append(head, p[:n]...)
	}
	go func() { _, _ = io.Copy(io.Discard, c) }() // the rest of the request, if it came in pieces
	from := 0
	for _, to := range append(cuts[:len(cuts):len(cuts)], len(raw)) {
		if _, err := c.Write(raw[from:to]); err != nil {
			return
		}
		from = to
	}
}

// seen is what came of a request.
type seen struct {
	failure *exchange.Failure
	body    string // an answer, or a whole stream
	usage   exchange.Usage
}

func (u *upstream) ask(t *testing.T, ad adapter.Adapter, stream bool) seen {
	t.Helper()
	r := &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Model: "smart", Stream: stream, IncludeUsage: stream, Choices: 1,
		Body: []byte(asked), Native: []byte(strings.Replace(asked, `"model"`, `"stop_sequences":["###"],"model"`, 1)), InputEstimate: 77,
	}
	call, f := ad.Request(r, &exchange.Deployment{Model: "claude-fx-5"}, nil)
	if f != nil {
		t.Fatal(f)
	}
	const long = 30 * time.Second
	up := relay.Upstream{
		BaseURL:  "http://claude.test/v1",
		Timeouts: exchange.Timeouts{Connect: long, FirstToken: long, Idle: long, Total: long},
	}
	ans, f := u.client.Open(&relay.Canceller{}, up, call, stream, ad, r, note)
	if f != nil || ans.Stream == nil {
		return seen{failure: f, body: string(ans.Body), usage: ans.Usage}
	}
	var s seen
	ans.Stream.OnEnd = func(o relay.Outcome) { s.failure, s.usage = o.Failure, o.Usage }
	var out bytes.Buffer
	if _, err := ans.Stream.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if err := ans.Stream.Close(); err != nil {
		t.Fatal(err)
	}
	s.body = out.String()
	return s
}

func checkError(t *testing.T, w want, got seen) {
	t.Helper()
	e, f := w.Want.Error, got.failure
	if f == nil || f.Status != w.Want.Status || f.Type != e.Type || f.Code != e.Code || f.Param != e.Param || got.body != "" {
		t.Errorf("got %+v after %q, want %+v", f, got.body, *e)
	}
}

// checkUsage: what is billed does not depend on the caller's dialect.
func checkUsage(t *testing.T, w want, got seen) {
	t.Helper()
	x, u := w.Want.Usage, got.usage
	if got.failure != nil || u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Output != x.Completion ||
		u.CacheRead != x.Cached || u.CacheWrite5m+u.CacheWrite1h != x.Write || u.Reasoning != x.Reasoning ||
		!gjson.Get(u.Raw, "output_tokens").Exists() || u.ServiceTier != gjson.Get(u.Raw, "service_tier").Str {
		t.Errorf("usage %+v after %v, want %+v", u, got.failure, x)
	}
}

func checkChat(t *testing.T, w want, got seen) {
	t.Helper()
	checkUsage(t, w, got)
	var text, reasoning, finish string
	var calls []call
	take := func(choice, m gjson.Result) {
		text += m.Get("content").Str
		reasoning += m.Get("reasoning_content").Str
		finish += choice.Get("finish_reason").Str
		for i, c := range m.Get("tool_calls").Array() {
			if v := c.Get("index"); v.Exists() {
				i = int(v.Int())
			}
			if i == len(calls) {
				calls = append(calls, call{})
			}
			calls[i].ID += c.Get("id").Str
			calls[i].Name += c.Get("function.name").Str
			calls[i].Arguments += c.Get("function.arguments").Str
		}
	}
	if w.Stream {
		for _, ev := range events(t, got.body) {
			take(ev.Get("choices.0"), ev.Get("choices.0.delta"))
		}
	} else {
		take(gjson.Get(got.body, "choices.0"), gjson.Get(got.body, "choices.0.message"))
	}
	if text != w.Want.Content || reasoning != w.Want.Reasoning || finish != w.Want.Finish {
		t.Errorf("%q, %q, %s in %s", text, reasoning, finish, got.body)
	}
	checkCalls(t, w, calls, func(s string) string { return s })
}

func checkCalls(t *testing.T, w want, calls []call, form func(string) string) {
	t.Helper()
	if len(calls) != len(w.Want.Calls) {
		t.Fatalf("calls %+v, want %+v", calls, w.Want.Calls)
	}
	for i, c := range w.Want.Calls {
		if calls[i].ID != c.ID || calls[i].Name != c.Name || form(calls[i].Arguments) != form(c.Arguments) {
			t.Errorf("call %+v, want %+v", calls[i], c)
		}
	}
}

func events(t *testing.T, body string) (list []gjson.Result) {
	t.Helper()
	var rd sse.Reader
	rd.Feed([]byte(body))
	rd.End()
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return list
		}
		if string(ev.Data) == "[DONE]" {
			continue
		}
		v := gjson.ParseBytes(bytes.Clone(ev.Data))
		if v.Get("type").Str != string(ev.Name) {
			t.Errorf("event %q is %s", ev.Name, ev.Data)
		}
		list = append(list, v)
	}
}

// assembled is a message put together as Anthropic's libraries do.
func assembled(t *testing.T, body string) string {
	t.Helper()
	type object = map[string]any
	var m object
	var blocks []any
	input, kinds := "", ""
	str := func(v any) string { s, _ := v.(string); return s }
	for _, ev := range events(t, body) {
		kind := ev.Get("type").Str
		kinds += strings.TrimPrefix(kind, "content_block_") + " "
		switch kind {
		case "message_start":
			if ev.Get("message.usage.input_tokens").Int() == 0 {
				t.Errorf("the start states no input: %s", ev.Raw)
			}
			m = ev.Get("message").Value().(object)
		case "content_block_start":
			blocks, input = append(blocks, ev.Get("content_block").Value()), ""
			if int(ev.Get("index").Int()) != len(blocks)-1 {
				t.Errorf("block %s after %d", ev.Raw, len(blocks)-1)
			}
		case "content_block_delta":
			b, d := blocks[len(blocks)-1].(object), ev.Get("delta")
			for name, field := range map[string]string{"text": "text", "thinking": "thinking", "signature": "signature"} {
				if v := d.Get(field); v.Exists() {
					b[name] = str(b[name]) + v.Str
				}
			}
			input += d.Get("partial_json").Str
		case "content_block_stop":
			if b := blocks[len(blocks)-1].(object); b["type"] == "tool_use" && input != "" {
				b["input"] = json.RawMessage(input)
			}
		case "message_delta":
			for k, v := range ev.Get("delta").Value().(object) {
				m[k] = v
			}
			for k, v := range ev.Get("usage").Value().(object) {
				if v != nil {
					m["usage"].(object)[k] = v
				}
			}
			if ev.Get("x_gateway").Raw != annotation {
				t.Errorf("no x_gateway: %s", ev.Raw)
			}
		}
	}
	if !strings.HasPrefix(kinds, "message_start ") || !strings.HasSuffix(kinds, "message_delta message_stop ") {
		t.Errorf("events %s", kinds)
	}
	m["content"], m["x_gateway"] = blocks, json.RawMessage(annotation)
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func checkMessage(t *testing.T, w want, got seen) {
	t.Helper()
	checkUsage(t, w, got)
	body := got.body
	if w.Stream {
		body = assembled(t, body)
	}
	m := gjson.Parse(body)
	var text, thought string
	var calls []call
	for _, b := range m.Get("content").Array() {
		switch b.Get("type").Str {
		case "text":
			text += b.Get("text").Str
		case "thinking":
			thought += b.Get("thinking").Str
			if b.Get("signature").Str == "" || strings.HasPrefix(b.Get("signature").Str, adapter.ForeignMark) {
				t.Errorf("no signature: %s", b.Raw)
			}
		case "tool_use":
			calls = append(calls, call{b.Get("id").Str, b.Get("name").Str, b.Get("input").Raw})
		}
	}
	stop := map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}[w.Want.Finish]
	if strings.Contains(w.File, "stop-sequence") {
		if stop = "stop_sequence"; m.Get("stop_sequence").Str != "###" {
			t.Errorf("stop_sequence %s", m.Get("stop_sequence").Raw)
		}
	}
	if text != w.Want.Content || thought != w.Want.Reasoning || m.Get("stop_reason").Str != stop || m.Get("model").Str != "smart" ||
		m.Get("type").Str != "message" || m.Get("x_gateway").Raw != annotation {
		t.Errorf("%q, %q in %s", text, thought, body)
	}
	checkCalls(t, w, calls, func(s string) string { return gjson.Get(s, "@ugly").Raw })
	x, u := w.Want.Usage, m.Get("usage")
	input := x.Prompt - x.Cached - x.Write
	if strings.Contains(w.File, "iterations") {
		return // the passes are told apart natively
	}
	if u.Get("input_tokens").Int() != input || u.Get("output_tokens").Int() != x.Completion ||
		u.Get("cache_read_input_tokens").Int() != x.Cached || u.Get("cache_creation_input_tokens").Int() != x.Write {
		t.Errorf("usage %s, want %+v", u.Raw, x)
	}
}

// checkBytes: natively all is the provider's, byte for byte, but for the model's name and x_gateway.
func checkBytes(t *testing.T, w want, raw []byte, got string) {
	t.Helper()
	_, sent, _ := strings.Cut(string(raw), "\r\n\r\n")
	got = strings.Replace(got, `,"x_gateway":`+annotation, "", 1)
	sent = strings.Replace(sent, `"model":"claude-fx-5"`, `"model":"smart"`, 1)
	switch {
	case w.Stream && !strings.Contains(sent, "event: message_stop"):
		sent += "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	case !w.Stream:
		sent = strings.TrimSpace(sent)
	}
	if got != sent {
		t.Errorf("got  %q\nwant %q", got, sent)
	}
}
