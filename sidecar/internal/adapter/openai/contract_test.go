package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

// want is what an OpenAI-dialect caller must see of a fixture.
type want struct {
	File   string
	API    string
	Stream bool
	Want   struct {
		Status  int
		Content *string
		Finish  string `json:"finish_reason"`
		Usage   *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Total      int64 `json:"total_tokens"`
			Cached     int64 `json:"cached_tokens"`
			Write      int64 `json:"cache_write_tokens"`
			Reasoning  int64 `json:"reasoning_tokens"`
		}
		Choices []struct {
			Index   int
			Content string
			Finish  string `json:"finish_reason"`
		}
		Calls        []wantCall `json:"tool_calls"`
		Reasoning    string
		Refusal      string
		Embeddings   [][]float64
		Error        *struct{ Type, Code, Param string }
		Partial      string `json:"partial_content"`
		Retryable    bool
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
}

type wantCall struct{ ID, Name, Arguments string }

func TestFixtures(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "expected.json"))
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
		t.Run(w.File, func(t *testing.T) { replayFixture(t, w) })
	}
}

// replayFixture plays a fixture through the real relay. How its bytes are cut must not matter.
func replayFixture(t *testing.T, w want) {
	raw, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(w.File)))
	if err != nil {
		t.Fatal(err)
	}
	asks := []bool{true}
	if w.Stream {
		asks = []bool{true, false}
	}
	for name, size := range cuts() {
		for _, includeUsage := range asks {
			t.Run(fmt.Sprintf("%s/%v", name, includeUsage), func(t *testing.T) {
				r := ask(w.Stream)
				r.IncludeUsage = w.Stream && includeUsage
				if w.API == "embeddings" {
					r.Operation = exchange.Embeddings
				}
				judge(t, w, overRelay(t, raw, size, r))
			})
		}
	}
}

func judge(t *testing.T, w want, got relayed) {
	t.Helper()
	switch {
	case w.Want.Status != http.StatusOK:
		checkRefusal(t, w, got)
	case w.Want.Error != nil:
		checkBroken(t, w, got)
	case got.failure != nil:
		t.Fatalf("failure: %+v", got.failure)
	case w.Stream:
		checkStream(t, w, got)
	default:
		checkWhole(t, w, got)
	}
}

// cuts are ways to cut a body: each is how long the next piece is.
func cuts() map[string]func() int {
	all := map[string]func() int{
		"whole": func() int { return 1 << 20 },
		"bytes": func() int { return 1 },
	}
	for seed := range uint64(4) {
		dice := rand.New(rand.NewPCG(seed, 0))
		all["random "+strconv.FormatUint(seed, 10)] = func() int { return 1 + dice.IntN(1+dice.IntN(200)) }
	}
	return all
}

// relayed is what became of an answer.
type relayed struct {
	run
	status  int
	body    []byte         // of an answer that is no stream
	outcome *relay.Outcome // of a stream, nil for none
}

// overRelay sends a request to a server that answers raw, cut as size says, and reads the answer to its end.
func overRelay(t *testing.T, raw []byte, size func() int, r *exchange.Request) relayed {
	t.Helper()
	near, far := net.Pipe() // every write is a read of its own
	client := relay.NewClient(relay.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
	var server sync.WaitGroup
	server.Go(func() { answerWith(far, raw, size) })
	defer server.Wait()
	defer func() { _ = near.Close() }()
	var cancel relay.Canceller
	d := &exchange.Deployment{Provider: "compatible", Model: "real"}
	r.Body = []byte(`{"model":"smart","messages":[],"input":"x"}`)
	call, f := New().Request(r, d, nil)
	if f != nil {
		t.Fatal(f)
	}
	up := relay.Upstream{BaseURL: "http://127.0.0.1/v1"}
	ans, f := client.Open(&cancel, up, call, r.Stream, New(), r, note)
	got := relayed{run: run{usage: ans.Usage, failure: f, asked: r.IncludeUsage}, status: ans.Status, body: ans.Body}
	if f != nil || ans.Stream == nil {
		return got
	}
	ans.Stream.OnEnd = func(o relay.Outcome) { got.outcome = &o }
	var out bytes.Buffer
	if _, err := ans.Stream.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	_ = ans.Stream.Close()
	if got.outcome == nil {
		t.Fatal("the stream was not settled")
	}
	got.out, got.failure, got.usage, got.delivered = out.Bytes(), got.outcome.Failure, got.outcome.Usage, got.outcome.Delivered.Bytes
	return got
}

// answerWith reads a request and answers. A body without a length ends with the connection.
func answerWith(c net.Conn, raw []byte, size func() int) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	for len(raw) > 0 {
		n := min(size(), len(raw))
		if _, err := c.Write(raw[:n]); err != nil {
			return // it has heard enough
		}
		raw = raw[n:]
	}
	_ = c.Close()
}

func checkWhole(t *testing.T, w want, got relayed) {
	t.Helper()
	checkUsage(t, w, got.usage)
	if w.API == "embeddings" {
		checkVectors(t, w, got.body)
		return
	}
	check(t, w, readAnswer(t, got.body))
}

func checkStream(t *testing.T, w want, got relayed) {
	t.Helper()
	if got.outcome.Status != relay.StatusOK {
		t.Fatalf("outcome %+v", got.outcome)
	}
	checkUsage(t, w, got.usage)
	s := readStream(t, got.run, false)
	check(t, w, s)
	if x := w.Want.Reasoning; x != "" && bytes.Contains(got.out, []byte(`"reasoning":"`+x[:1])) {
		t.Errorf("reasoning under a second name: %s", got.out)
	}
	if !got.asked {
		if s.usage != nil || bytes.Contains(got.out, []byte("x_gateway")) {
			t.Errorf("usage %+v to a caller who did not ask", s.usage)
		}
		return
	}
	if s.usage == nil {
		t.Fatal("no usage chunk")
	}
	u := got.usage
	if u.Source == exchange.FromEstimate {
		_, u = note(nil, u, got.outcome.Delivered)
	}
	if g := s.usage; g.Prompt != u.Prompt() || g.Completion != u.Completion() || g.Total != u.Total() || g.In.Cached != u.CacheRead {
		t.Errorf("the caller was told %+v, the gateway %+v", *g, u)
	}
}

// checkBroken checks a stream that broke after it began: what had come, and then one error, which is the last word.
func checkBroken(t *testing.T, w want, got relayed) {
	t.Helper()
	caller := adapter.Told(got.failure)
	checkFailed(t, w, &caller)
	checkUsage(t, w, got.usage)
	at := bytes.LastIndex(got.out, []byte("data: "))
	if at < 0 {
		t.Fatalf("%s", got.out)
	}
	var last struct {
		Error struct {
			Type, Code, Param string
			Retryable         bool
		}
	}
	if err := json.Unmarshal(got.out[at+len("data: "):], &last); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if e := w.Want.Error; last.Error.Type != e.Type || last.Error.Code != e.Code || last.Error.Param != e.Param {
		t.Errorf("the caller was told %+v, want %+v", last.Error, *e)
	}
	got.out = got.out[:at]
	if s := readStream(t, got.run, true); s.text(0) != w.Want.Partial || s.choices[0].finish != "" {
		t.Errorf("before the failure %+v, want %q", s.choices[0], w.Want.Partial)
	}
}

// checkRefusal checks a failure before anything was sent on.
func checkRefusal(t *testing.T, w want, got relayed) {
	t.Helper()
	f := got.failure
	checkFailed(t, w, f)
	if w.Want.Usage != nil {
		checkUsage(t, w, got.usage)
	}
	if got.status != http.StatusOK && (got.status != w.Want.Status || f.Status != w.Want.Status) {
		t.Errorf("status %d, %d, want %d", got.status, f.Status, w.Want.Status)
	}
	again := false
	switch f.Kind {
	case exchange.FailOverloaded, exchange.FailRateLimited, exchange.FailInvalid:
		again = !f.Final
	}
	if again != w.Want.Retryable {
		t.Errorf("retryable %v, want %v (%+v)", again, w.Want.Retryable, f)
	}
	if f.RetryAfter != time.Duration(w.Want.RetryAfterMS)*time.Millisecond {
		t.Errorf("retry after %v, want %d ms", f.RetryAfter, w.Want.RetryAfterMS)
	}
}

func checkFailed(t *testing.T, w want, f *exchange.Failure) {
	t.Helper()
	if f == nil {
		t.Fatal("no failure")
	}
	if f.Message == "" || strings.Contains(f.Message, "<") {
		t.Errorf("message %q", f.Message)
	}
	if e := w.Want.Error; f.Type != e.Type || f.Code != e.Code || f.Param != e.Param {
		t.Errorf("got type %q, code %q, param %q, want %+v", f.Type, f.Code, f.Param, *e)
	}
}

func check(t *testing.T, w want, got seen) {
	t.Helper()
	if len(w.Want.Choices) > 0 {
		if len(got.choices) != len(w.Want.Choices) {
			t.Fatalf("%d choices, want %d", len(got.choices), len(w.Want.Choices))
		}
		for _, c := range w.Want.Choices {
			if got.text(c.Index) != c.Content || got.choices[c.Index].finish != c.Finish {
				t.Errorf("choice %d is %+v", c.Index, got.choices[c.Index])
			}
		}
		return
	}
	if len(got.choices) != 1 {
		t.Fatalf("%d choices", len(got.choices))
	}
	c, content := got.choices[0], ""
	if w.Want.Content != nil {
		content = *w.Want.Content
	}
	if got.text(0) != content || c.finish != w.Want.Finish || c.reasoning != w.Want.Reasoning || c.refusal != w.Want.Refusal {
		t.Errorf("content %q, finish %q, reasoning %q, refusal %q", got.text(0), c.finish, c.reasoning, c.refusal)
	}
	if len(c.calls) != len(w.Want.Calls) {
		t.Fatalf("calls %+v", c.calls)
	}
	ids := map[string]bool{}
	for i, x := range w.Want.Calls {
		g := c.calls[i]
		if g.ID == "" || ids[g.ID] {
			t.Errorf("call %d has the id %q", i, g.ID)
		}
		ids[g.ID] = true
		if x.ID == "*generated*" {
			x.ID = g.ID
		}
		if g != x {
			t.Errorf("call %d is %+v, want %+v", i, g, x)
		}
	}
}

func checkUsage(t *testing.T, w want, u exchange.Usage) {
	t.Helper()
	x := w.Want.Usage
	if x == nil {
		if u.Source != exchange.FromEstimate {
			t.Errorf("usage %+v, want an estimate", u)
		}
		return
	}
	if u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Completion() != x.Completion || u.Total() != x.Total ||
		u.CacheRead != x.Cached || u.CacheWrite5m != x.Write || u.CacheWrite1h != 0 || u.Reasoning != x.Reasoning {
		t.Errorf("usage %+v, want %+v", u, *x)
	}
}

func checkVectors(t *testing.T, w want, out []byte) {
	t.Helper()
	var a struct {
		Model string
		Data  []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal(out, &a); err != nil || a.Model != alias || len(a.Data) != len(w.Want.Embeddings) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, v := range w.Want.Embeddings {
		for j := range v {
			if a.Data[i].Embedding[j] != v[j] {
				t.Errorf("vector %d is %v, want %v", i, a.Data[i].Embedding, v)
			}
		}
	}
}
