package bedrock

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// want is what an OpenAI-dialect caller must see of a fixture.
type want struct {
	File   string
	Stream bool
	Want   struct {
		Status  int
		Content string
		Finish  string `json:"finish_reason"`
		Usage   *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Total      int64 `json:"total_tokens"`
			Cached     int64 `json:"cached_tokens"`
			Write      int64 `json:"cache_write_tokens"`
			Write5m    int64 `json:"cache_write_5m"`
			Write1h    int64 `json:"cache_write_1h"`
		}
		Calls        []wantCall `json:"tool_calls"`
		Reasoning    string
		Error        *struct{ Type, Code, Param string }
		Partial      string `json:"partial_content"`
		Retryable    bool
		CallerStatus int `json:"caller_status"`
	}
}

type wantCall struct{ ID, Name, Arguments string }

// seen is an answer put together as a client library does.
type seen struct {
	content, reasoning, finish string
	calls                      []wantCall
	usage                      gjson.Result
	fault                      gjson.Result // the error event
	details                    []gjson.Result
	tier                       string
}

// guess is what note takes an answer without usage for.
var guess = exchange.Tokens{Input: 40, Output: 2}

func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	if u.Source == exchange.FromEstimate {
		u.Tokens = guess
	}
	return append(dst, `{}`...), u
}

func chat(stream bool) *exchange.Request {
	return &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Model: "smart", Stream: stream, IncludeUsage: stream, Choices: 1,
		CreatedUnix: 1_700_000_000,
	}
}

// played is how one answer reached the caller through the relay.
type played struct {
	failure *exchange.Failure // nothing reached the caller
	body    []byte
	usage   exchange.Usage
	outcome relay.Outcome
}

// play sends an answer, in pieces, as a provider would, and relays it.
func play(t testing.TB, raw []byte, stream bool, size func() int) played {
	t.Helper()
	return playTo(t, New(), raw, chat(stream), size)
}

func playTo(t testing.TB, ad adapter.Adapter, raw []byte, r *exchange.Request, size func() int) played {
	t.Helper()
	var over sync.WaitGroup
	defer over.Wait()
	provider := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		for p := raw; len(p) > 0; {
			n := min(max(size(), 1), len(p))
			if _, err := c.Write(p[:n]); err != nil {
				return // the relay has seen enough
			}
			p = p[n:]
		}
	}
	c := relay.NewClient(relay.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		mine, theirs := net.Pipe()
		over.Go(func() { provider(theirs) })
		return mine, nil
	}})
	call := adapter.Call{Path: "/", Body: []byte("{}")}
	ans, f := c.Open(&relay.Canceller{}, relay.Upstream{BaseURL: "http://bedrock.test"}, call, r.Stream, ad, r, note)
	if f != nil {
		return played{failure: f, usage: ans.Usage}
	}
	if ans.Stream == nil {
		return played{body: ans.Body, usage: ans.Usage}
	}
	var p played
	ans.Stream.OnEnd = func(o relay.Outcome) { p.outcome, p.usage = o, o.Usage }
	var b bytes.Buffer
	if _, err := ans.Stream.WriteTo(&b); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_ = ans.Stream.Close()
	p.body = b.Bytes()
	return p
}

func expectations(t testing.TB) []want {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []want
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*-*"))
	if err != nil || len(files) != len(all) || len(all) == 0 {
		t.Fatalf("%d fixtures, %d expectations, %v", len(files), len(all), err)
	}
	return all
}

func fixture(t testing.TB, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", filepath.Base(file)))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestFixtures: every recorded answer, whole, byte by byte and in random splits, through the relay, gives the caller what
// is expected.
func TestFixtures(t *testing.T) {
	for _, w := range expectations(t) {
		t.Run(filepath.Base(w.File), func(t *testing.T) {
			raw := fixture(t, w.File)
			rnd := rand.New(rand.NewPCG(7, 7))
			sizes := []func() int{func() int { return len(raw) }, func() int { return 1 }}
			for range 30 {
				sizes = append(sizes, func() int { return 1 + rnd.IntN(120) })
			}
			for _, size := range sizes {
				check(t, w, play(t, raw, w.Stream, size))
			}
		})
	}
}

func check(t *testing.T, w want, p played) {
	t.Helper()
	x := w.Want
	checkUsage(t, w, p)
	if x.Error != nil && (x.Status != 200 || x.Partial == "") { // the relay holds back what comes before the first token
		checkFailure(t, w, p.failure)
		return
	}
	if p.failure != nil {
		t.Fatalf("failure %+v", p.failure)
	}
	var got seen
	if w.Stream {
		got = readStream(t, p.body)
	} else {
		got = readAnswer(t, p.body)
	}
	if x.Error != nil {
		e := got.fault
		if got.content != x.Partial || e.Get("type").Str != x.Error.Type || e.Get("code").Str != x.Error.Code || got.finish != "" {
			t.Errorf("got %+v", got)
		}
		if p.outcome.Status != relay.StatusPartial {
			t.Errorf("outcome %+v", p.outcome)
		}
		return
	}
	if got.content != x.Content || got.finish != x.Finish || got.reasoning != x.Reasoning || got.fault.Exists() {
		t.Errorf("got %+v", got)
	}
	if !slices.Equal(got.calls, x.Calls) {
		t.Errorf("calls %+v, want %+v", got.calls, x.Calls)
	}
	u := got.usage
	if u.Get("prompt_tokens").Int() != x.Usage.Prompt || u.Get("completion_tokens").Int() != x.Usage.Completion ||
		u.Get("total_tokens").Int() != x.Usage.Total ||
		u.Get("prompt_tokens_details.cached_tokens").Int() != x.Usage.Cached ||
		u.Get("prompt_tokens_details.cache_write_tokens").Int() != x.Usage.Write {
		t.Errorf("usage told to the caller %s, want %+v", u.Raw, x.Usage)
	}
}

func checkUsage(t *testing.T, w want, p played) {
	t.Helper()
	x, u := w.Want.Usage, p.usage
	if x == nil {
		if u.Source == exchange.FromProvider {
			t.Errorf("usage %+v of nowhere", u)
		}
		return
	}
	if u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Output != x.Completion ||
		u.CacheRead != x.Cached || u.CacheWrite5m != x.Write5m || u.CacheWrite1h != x.Write1h {
		t.Errorf("usage %+v, want %+v", u, x)
	}
}

// checkFailure checks the failure, and what the gateway makes of its kind.
func checkFailure(t *testing.T, w want, f *exchange.Failure) {
	t.Helper()
	if f == nil {
		t.Fatal("no failure")
	}
	x := w.Want
	if f.Type != x.Error.Type || f.Code != x.Error.Code || f.Param != x.Error.Param {
		t.Errorf("got %+v, want %+v", f, *x.Error)
	}
	status := map[exchange.FailureKind]int{
		exchange.FailRequest: 400, exchange.FailCredential: 502, exchange.FailInvalid: 502, exchange.FailCut: 502,
		exchange.FailTimeout: 504, exchange.FailOverloaded: 503, exchange.FailRateLimited: 429,
	}[f.Kind]
	if x.Status == 200 {
		if !f.Kind.Failover() { // nothing was forwarded: another may be tried
			t.Errorf("got %+v", f)
		}
		return
	}
	wantStatus := x.Status
	if x.CallerStatus != 0 {
		wantStatus = x.CallerStatus
	}
	again := f.Kind.Failover() && f.Kind != exchange.FailCredential && !f.Final
	if status != wantStatus || again != x.Retryable || f.Status != 0 && f.Status != x.Status {
		t.Errorf("got %+v, a status of %d to the caller", f, status)
	}
}

func readAnswer(t *testing.T, body []byte) seen {
	t.Helper()
	a := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) || a.Get("object").Str != "chat.completion" || a.Get("model").Str != "smart" || a.Get("id").Str == "" {
		t.Fatalf("answer %s", body)
	}
	m := a.Get("choices.0.message")
	s := seen{
		content: m.Get("content").Str, reasoning: m.Get("reasoning_content").Str, usage: a.Get("usage"),
		finish: a.Get("choices.0.finish_reason").Str, details: m.Get("reasoning_details").Array(), tier: a.Get("service_tier").Str,
	}
	for _, c := range m.Get("tool_calls").Array() {
		s.calls = append(s.calls, wantCall{c.Get("id").Str, c.Get("function.name").Str, c.Get("function.arguments").Str})
	}
	return s
}

// readStream puts the chunks together.
func readStream(t *testing.T, out []byte) seen {
	t.Helper()
	var rd sse.Reader
	rd.Feed(out)
	rd.End()
	var s seen
	roles, done := 0, 0
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if done > 0 || s.fault.Exists() {
			t.Fatalf("something after the end: %s", out)
		}
		if string(ev.Data) == "[DONE]" {
			done++
			continue
		}
		if !gjson.ValidBytes(ev.Data) {
			t.Fatalf("chunk %s", ev.Data)
		}
		a := gjson.ParseBytes(bytes.Clone(ev.Data))
		if s.fault = a.Get("error"); s.fault.Exists() {
			continue
		}
		if a.Get("object").Str != "chat.completion.chunk" || a.Get("model").Str != "smart" || a.Get("id").Str == "" {
			t.Fatalf("chunk %s", ev.Data)
		}
		if u := a.Get("usage"); u.IsObject() {
			s.usage, s.tier = u, a.Get("service_tier").Str
		}
		if a.Get("choices.0.delta.role").Exists() {
			roles++
		}
		s.add(t, a.Get("choices.0"))
	}
	if roles != 1 || (done == 1) == s.fault.Exists() {
		t.Fatalf("%d role chunks, %d [DONE] in %s", roles, done, out)
	}
	return s
}

func (s *seen) add(t *testing.T, choice gjson.Result) {
	t.Helper()
	d := choice.Get("delta")
	s.content += d.Get("content").Str
	s.reasoning += d.Get("reasoning_content").Str
	s.finish += choice.Get("finish_reason").Str
	s.details = append(s.details, d.Get("reasoning_details").Array()...)
	for _, c := range d.Get("tool_calls").Array() {
		i := int(c.Get("index").Int())
		if i > len(s.calls) || i < len(s.calls)-1 {
			t.Fatalf("call index %d after %d calls", i, len(s.calls))
		}
		if i == len(s.calls) {
			s.calls = append(s.calls, wantCall{ID: c.Get("id").Str, Name: c.Get("function.name").Str})
		}
		s.calls[i].Arguments += c.Get("function.arguments").Str
	}
}

// TestTruncated: a stream cut anywhere before its stop reason never looks complete.
func TestTruncated(t *testing.T) {
	raw := fixture(t, "converse-stream-tools.bin")
	stop := bytes.Index(raw, []byte("stopReason"))
	for n := bytes.Index(raw, []byte("\r\n\r\n")) + 4; n < len(raw); n += 3 {
		p := play(t, raw[:n], true, func() int { return 64 })
		whole := p.failure == nil && strings.Contains(string(p.body), "[DONE]")
		if whole && n < stop || whole && p.outcome.Status != relay.StatusOK {
			t.Fatalf("cut at %d of %d: %s", n, stop, p.body)
		}
		if !whole && p.failure == nil && (p.outcome.Failure == nil || p.outcome.Failure.Kind != exchange.FailCut) {
			t.Fatalf("cut at %d: %+v", n, p.outcome)
		}
	}
}
