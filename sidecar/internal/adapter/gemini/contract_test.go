package gemini_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// want is what an OpenAI-dialect caller must see of a fixture.
type want struct {
	File   string
	Stream bool
	Want   struct {
		Status    int
		Content   string
		Finish    string `json:"finish_reason"`
		Reasoning string
		Usage     *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Total      int64 `json:"total_tokens"`
			Cached     int64 `json:"cached_tokens"`
			Reasoning  int64 `json:"reasoning_tokens"`
		}
		Error        *struct{ Type, Code, Param string }
		Retryable    bool
		RetryAfterMS int64  `json:"retry_after_ms"`
		Partial      string `json:"partial_content"`
	}
}

// TestFixtures plays every fixture through the relay: whole, byte by byte, cut in two at each place, and at random.
func TestFixtures(t *testing.T) {
	raw, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []want
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir("testdata", func(p string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(p, ".http") {
			files++
		}
		return err
	})
	if err != nil || files != len(all) || files == 0 {
		t.Fatalf("%d fixtures, %d expectations, %v", files, len(all), err)
	}
	for _, w := range all {
		t.Run(w.File, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(w.File)))
			if err != nil {
				t.Fatal(err)
			}
			u := newUpstream(t)
			play := func(cuts ...int) {
				u.raw, u.cuts = raw, cuts
				if check(t, w, u.ask(t, w.Stream)); t.Failed() {
					t.Fatalf("cut at %v", cuts)
				}
			}
			play()
			var each []int
			for at := 1; at < len(raw); at++ {
				play(at)
				each = append(each, at)
			}
			play(each...)
			for range 50 {
				var cuts []int
				for at := rand.N(40) + 1; at < len(raw); at += rand.N(40) + 1 {
					cuts = append(cuts, at)
				}
				play(cuts...)
			}
		})
	}
}

// upstream is a provider that answers each request with raw, cut into writes.
type upstream struct {
	client *relay.Client
	raw    []byte
	cuts   []int // ascending
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	// No connection serves twice: whether one still stands takes a moment to find out where it is no socket.
	u.client = relay.NewClient(relay.Config{IdleAge: 1, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go u.serve(far)
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

// serve answers one request after the other, until the answer says that it is the last.
func (u *upstream) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		raw, from := u.raw, 0
		for _, to := range append(u.cuts[:len(u.cuts):len(u.cuts)], len(raw)) {
			if _, err := c.Write(raw[from:to]); err != nil {
				return
			}
			from = to
		}
		if bytes.Contains(raw, []byte("Connection: close")) {
			return
		}
	}
}

// seen is what came of a call.
type seen struct {
	failure  *exchange.Failure
	body     string // an answer, or a whole stream
	usage    exchange.Usage
	streamed bool
}

func (u *upstream) ask(t *testing.T, stream bool) seen {
	t.Helper()
	r := chat(`{"model":"smart","messages":[{"role":"user","content":"hi"}]}`, stream)
	ad := gemini.New()
	call, f := ad.Request(r, &exchange.Deployment{Model: "gemini-fx-3"}, nil)
	if f != nil {
		t.Fatal(f)
	}
	const long = 30 * time.Second
	up := relay.Upstream{
		BaseURL:  "http://gemini.test/v1beta",
		Timeouts: exchange.Timeouts{Connect: long, FirstToken: long, Idle: long, Total: long},
	}
	ans, f := u.client.Open(&relay.Canceller{}, up, call, stream, ad, r, note)
	if f != nil || ans.Stream == nil {
		return seen{failure: f, body: string(ans.Body), usage: ans.Usage}
	}
	s := seen{streamed: true}
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

func chat(body string, stream bool) *exchange.Request {
	return &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Model: "smart", Stream: stream, IncludeUsage: stream, Choices: 1,
		CreatedUnix: 1_700_000_000, Body: []byte(body),
	}
}

func note(dst []byte, u exchange.Usage, d adapter.Delivered) ([]byte, exchange.Usage) {
	if u.Source == exchange.FromProvider {
		return append(dst, `{"estimated":false}`...), u
	}
	u.Input, u.Output = 40, d.Bytes
	return append(dst, `{"estimated":true}`...), u
}

func check(t *testing.T, w want, got seen) {
	t.Helper()
	if x := w.Want.Usage; x != nil {
		u := got.usage
		if u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Completion() != x.Completion ||
			u.Total() != x.Total || u.CacheRead != x.Cached || u.Reasoning != x.Reasoning || !json.Valid([]byte(u.Raw)) {
			t.Errorf("usage %+v, want %+v", u, *x)
		}
	}
	if w.Want.Error != nil {
		checkFailure(t, w, got)
		return
	}
	if got.failure != nil {
		t.Errorf("failure %+v", got.failure)
		return
	}
	a := readAnswer(t, got)
	if a.text != w.Want.Content || a.reasoning != w.Want.Reasoning || a.finish != w.Want.Finish || len(a.calls) > 0 {
		t.Errorf("got %+v", a)
	}
	if x := w.Want.Usage; a.usage.Prompt != x.Prompt || a.usage.Completion != x.Completion || a.usage.Total != x.Total ||
		a.usage.In.Cached != x.Cached || a.usage.Out.Reasoning != x.Reasoning {
		t.Errorf("the caller was told %+v, want %+v", a.usage, *x)
	}
}

func checkFailure(t *testing.T, w want, got seen) {
	t.Helper()
	f, e := got.failure, w.Want.Error
	if f == nil || f.Type != e.Type || f.Code != e.Code || f.Param != e.Param || f.Message == "" {
		t.Errorf("failure %+v, want %+v", f, *e)
		return
	}
	if w.Want.Status == 200 { // after the head: the caller has a part and is told that it broke
		a := readAnswer(t, got)
		if a.text != w.Want.Partial || a.finish != "" || a.done || a.failure != e.Code {
			t.Errorf("got %+v", a)
		}
		return
	}
	again := (f.Kind == exchange.FailOverloaded || f.Kind == exchange.FailRateLimited) && !f.Final
	if f.Status != w.Want.Status || again != w.Want.Retryable || got.body != "" ||
		f.RetryAfter != time.Duration(w.Want.RetryAfterMS)*time.Millisecond {
		t.Errorf("failure %+v, body %q", f, got.body)
	}
}

// answer is an answer put together as a client library does.
type answer struct {
	text, reasoning, finish, failure string
	done                             bool
	calls                            []callJSON
	details                          []string
	usage                            usageJSON
}

type callJSON struct {
	Index    int
	ID       string
	Type     string
	Function struct{ Name, Arguments string }
	Extra    struct {
		Google struct {
			Signature string `json:"thought_signature"`
		}
	} `json:"extra_content"`
}

type usageJSON struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	In         struct {
		Cached int64 `json:"cached_tokens"`
		Audio  int64 `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type messageJSON struct {
	Content   *string
	Reasoning string            `json:"reasoning_content"`
	Details   []json.RawMessage `json:"reasoning_details"`
	Calls     []callJSON        `json:"tool_calls"`
}

type answerJSON struct {
	ID, Object, Model string
	Choices           []struct {
		Index          int
		Message, Delta messageJSON
		Finish         *string `json:"finish_reason"`
	}
	Usage   *usageJSON
	Gateway json.RawMessage `json:"x_gateway"`
	Error   *struct{ Code string }
}

// readAnswer reads the first choice of an answer.
func readAnswer(t *testing.T, s seen) (a answer) {
	t.Helper()
	if !s.streamed {
		a.add(t, []byte(s.body))
		return a
	}
	var rd sse.Reader
	rd.Feed([]byte(s.body))
	rd.End()
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return a
		}
		if a.done {
			t.Errorf("something after [DONE]: %s", ev.Data)
		}
		if a.done = string(ev.Data) == "[DONE]"; !a.done {
			a.add(t, ev.Data)
		}
	}
}

func (a *answer) add(t *testing.T, data []byte) {
	t.Helper()
	var v answerJSON
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if v.Error != nil {
		a.failure = v.Error.Code
		return
	}
	if v.Model != "smart" || v.ID == "" || (v.Object != "chat.completion" && v.Object != "chat.completion.chunk") {
		t.Errorf("answer %s", data)
	}
	if v.Usage != nil {
		a.usage = *v.Usage
		if len(v.Gateway) == 0 {
			t.Errorf("no x_gateway: %s", data)
		}
	}
	for _, c := range v.Choices {
		if c.Index != 0 {
			continue
		}
		for _, m := range []messageJSON{c.Message, c.Delta} {
			if m.Content != nil {
				a.text += *m.Content
			}
			a.reasoning += m.Reasoning
			a.calls = append(a.calls, m.Calls...)
			for _, d := range m.Details {
				a.details = append(a.details, string(d))
			}
		}
		if c.Finish != nil {
			a.finish += *c.Finish
		}
	}
}
