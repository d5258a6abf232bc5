package anthropic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// want is what an OpenAI-dialect caller must see of a fixture.
type want struct {
	File   string
	Stream bool
	Want   struct {
		Status  int
		Content *string
		Finish  string `json:"finish_reason"`
		Usage   struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Total      int64 `json:"total_tokens"`
			Cached     int64 `json:"cached_tokens"`
			Write      int64 `json:"cache_write_tokens"`
			Write5m    int64 `json:"cache_write_5m"`
			Write1h    int64 `json:"cache_write_1h"`
			Reasoning  int64 `json:"reasoning_tokens"`
		}
		Calls     []wantCall `json:"tool_calls"`
		Reasoning string
		Error     *struct{ Type, Code, Param string }
		Retryable bool
	}
}

type wantCall struct{ ID, Name, Arguments string }

// seen is an answer put together as a client library does.
type seen struct {
	content   *string
	reasoning string
	finish    string
	calls     []wantCall
	usage     usageJSON
}

type usageJSON struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	In         struct {
		Cached int64 `json:"cached_tokens"`
		Write  int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type messageJSON struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Calls     []struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

type answerJSON struct {
	ID, Object, Model string
	Choices           []struct {
		Message, Delta messageJSON
		Finish         *string `json:"finish_reason"`
	}
	Usage   *usageJSON
	Gateway json.RawMessage `json:"x_gateway"`
	Error   json.RawMessage
}

// guess is what note takes an answer without usage for.
var guess = exchange.Usage{Source: exchange.FromEstimate, Tokens: exchange.Tokens{Input: 40, Output: 2}}

func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	if u.Source == exchange.FromProvider {
		return append(dst, `{"estimated":false}`...), u
	}
	u.Input, u.Output = guess.Input, guess.Output
	return append(dst, `{"estimated":true}`...), u
}

func chat(stream bool) *exchange.Request {
	return &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Model: "smart", Stream: stream, IncludeUsage: stream, Choices: 1,
		CreatedUnix: 1_700_000_000,
	}
}

func TestFixtures(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []want
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.http"))
	if err != nil || len(files) != len(all) || len(all) == 0 {
		t.Fatalf("%d fixtures, %d expectations, %v", len(files), len(all), err)
	}
	for _, w := range all {
		t.Run(filepath.Base(w.File), func(t *testing.T) { replayFixture(t, w) })
	}
}

func replayFixture(t *testing.T, w want) {
	raw, err := os.ReadFile(filepath.Join("testdata", filepath.Base(w.File)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	ad := New()
	if resp.StatusCode != 200 {
		checkFailure(t, w, ad.Failure(resp.StatusCode, resp.Header.Get, body))
		return
	}
	if w.Stream {
		// The body cut in pieces of every awkward size must give the same.
		for _, size := range []int{len(body), 1, 7} {
			got, u, f := runStream(t, body, size)
			if w.Want.Error != nil {
				checkFailure(t, w, f)
				continue
			}
			if f != nil {
				t.Fatalf("failure: %+v", f)
			}
			check(t, w, got, u)
		}
		return
	}
	out, u, f := ad.Response(chat(false), body, note)
	if f != nil {
		t.Fatalf("failure: %+v", f)
	}
	check(t, w, readAnswer(t, out), u)
}

func checkFailure(t *testing.T, w want, f *exchange.Failure) {
	t.Helper()
	if f == nil {
		t.Fatal("no failure")
	}
	e := w.Want.Error
	if f.Status != w.Want.Status || f.Type != e.Type || f.Code != e.Code || f.Param != e.Param {
		t.Errorf("got %+v, want %+v", f, *e)
	}
	again := f.Kind == exchange.FailOverloaded || f.Kind == exchange.FailRateLimited
	if again = again && !f.Final; again != w.Want.Retryable {
		t.Errorf("retryable %v, want %v (%+v)", again, w.Want.Retryable, f)
	}
}

func check(t *testing.T, w want, got seen, u exchange.Usage) {
	t.Helper()
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	if text(got.content) != text(w.Want.Content) {
		t.Errorf("content %q", text(got.content))
	}
	if !w.Stream && (got.content == nil) != (w.Want.Content == nil) {
		t.Errorf("content null: %v", got.content == nil)
	}
	if got.finish != w.Want.Finish || got.reasoning != w.Want.Reasoning {
		t.Errorf("finish %q, reasoning %q", got.finish, got.reasoning)
	}
	if len(got.calls) != len(w.Want.Calls) {
		t.Fatalf("calls %+v", got.calls)
	}
	for i, c := range w.Want.Calls {
		if got.calls[i] != c {
			t.Errorf("call %d is %+v, want %+v", i, got.calls[i], c)
		}
	}
	x, g := w.Want.Usage, got.usage
	if g.Prompt != x.Prompt || g.Completion != x.Completion || g.Total != x.Total || g.In.Cached != x.Cached ||
		g.In.Write != x.Write || g.Out.Reasoning != x.Reasoning {
		t.Errorf("usage told to the caller %+v, want %+v", g, x)
	}
	if u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Output != x.Completion ||
		u.CacheRead != x.Cached || u.CacheWrite5m != x.Write5m || u.CacheWrite1h != x.Write1h {
		t.Errorf("usage %+v, want %+v", u, x)
	}
}

func readAnswer(t *testing.T, body []byte) seen {
	t.Helper()
	var a answerJSON
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if a.Object != "chat.completion" || a.Model != "smart" || len(a.Choices) != 1 || a.ID == "" ||
		string(a.Gateway) != `{"estimated":false}` || !bytes.HasSuffix(body, []byte(`"x_gateway":{"estimated":false}}`)) {
		t.Fatalf("answer %s", body)
	}
	c := a.Choices[0]
	s := seen{content: c.Message.Content, reasoning: c.Message.Reasoning, finish: *c.Finish, usage: *a.Usage}
	for _, call := range c.Message.Calls {
		s.calls = append(s.calls, wantCall{call.ID, call.Function.Name, call.Function.Arguments})
	}
	return s
}

// runStream feeds a body in pieces through the reader and the translation and reads the result as a client does.
func runStream(t *testing.T, body []byte, size int) (seen, exchange.Usage, *exchange.Failure) {
	t.Helper()
	out, st, f := translateBody(t, body, size, chat(true))
	if f != nil {
		return seen{}, st.Usage(), f
	}
	got, text := readStream(t, out)
	if text != st.Delivered().Bytes {
		t.Errorf("delivered %d bytes, counted %d", text, st.Delivered().Bytes)
	}
	return got, st.Usage(), nil
}

func translateBody(t *testing.T, body []byte, size int, r *exchange.Request) ([]byte, *stream, *exchange.Failure) {
	t.Helper()
	st := newStream(r, note)
	var out []byte
	var rd sse.Reader
	var delivered adapter.Delivered
	drain := func() *exchange.Failure {
		for {
			ev, ok, err := rd.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return nil
			}
			before := len(out)
			next, p := st.Event(out, ev.Name, ev.Data)
			out = next
			if p.Failure != nil {
				return p.Failure
			}
			was := delivered
			delivered = st.Delivered()
			if p.Real != (delivered.Bytes > was.Bytes) || p.Real != (delivered.Pieces == was.Pieces+1) || p.Real && len(out) == before {
				t.Fatalf("real %v, %+v after %+v, and appended %q", p.Real, delivered, was, out[before:])
			}
		}
	}
	for len(body) > 0 {
		n := min(size, len(body))
		rd.Feed(body[:n])
		body = body[n:]
		if f := drain(); f != nil {
			return out, st, f
		}
	}
	rd.End()
	if f := drain(); f != nil {
		return out, st, f
	}
	out, f := st.End(out)
	return out, st, f
}

// readStream puts the chunks together. The number is the bytes of text in them.
func readStream(t *testing.T, out []byte) (seen, int64) {
	t.Helper()
	var rd sse.Reader
	rd.Feed(out)
	rd.End()
	var s seen
	var text int64
	roles, done, usages := 0, 0, 0
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if done > 0 {
			t.Fatal("something after [DONE]")
		}
		if string(ev.Data) == "[DONE]" {
			done++
			continue
		}
		var a answerJSON
		if err := json.Unmarshal(ev.Data, &a); err != nil {
			t.Fatalf("%v: %s", err, ev.Data)
		}
		if a.Error != nil || a.Object != "chat.completion.chunk" || a.Model != "smart" || a.ID == "" {
			t.Fatalf("chunk %s", ev.Data)
		}
		if len(a.Choices) == 0 {
			s.usage = *a.Usage
			usages++
			continue
		}
		if !bytes.Contains(ev.Data, []byte(`"usage":null`)) {
			t.Fatalf("chunk without usage null: %s", ev.Data)
		}
		d := a.Choices[0].Delta
		if d.Role != "" {
			roles++
		}
		text += s.add(t, d)
		if f := a.Choices[0].Finish; f != nil {
			s.finish += *f
		}
	}
	if roles != 1 || done != 1 || usages != 1 {
		t.Fatalf("%d role chunks, %d [DONE], %d usage chunks in %s", roles, done, usages, out)
	}
	return s, text
}

func (s *seen) add(t *testing.T, d messageJSON) int64 {
	t.Helper()
	n := len(d.Reasoning)
	if d.Content != nil {
		if s.content == nil {
			s.content = new(string)
		}
		*s.content += *d.Content
		n += len(*d.Content)
	}
	s.reasoning += d.Reasoning
	for _, c := range d.Calls {
		if c.Index > len(s.calls) || c.Index < len(s.calls)-1 {
			t.Fatalf("call index %d after %d calls", c.Index, len(s.calls))
		}
		if c.Index == len(s.calls) {
			s.calls = append(s.calls, wantCall{ID: c.ID, Name: c.Function.Name})
		}
		s.calls[c.Index].Arguments += c.Function.Arguments
		n += len(c.Function.Arguments) + len(c.Function.Name)
	}
	return int64(n)
}
