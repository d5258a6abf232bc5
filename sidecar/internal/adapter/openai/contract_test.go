package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
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

func replayFixture(t *testing.T, w want) {
	raw, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(w.File)))
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
	if resp.StatusCode != http.StatusOK {
		checkRefusal(t, w, New().Failure(resp.StatusCode, resp.Header.Get, body))
		return
	}
	// A stream request that is answered with one JSON document comes to Response: the relay sees to that.
	if w.Stream && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		for _, ask := range []bool{true, false} {
			for _, size := range []int{len(body), 1, 7} { // the cuts of the body must not matter
				replayStream(t, w, body, size, ask)
			}
		}
		return
	}
	replayWhole(t, w, body)
}

func replayWhole(t *testing.T, w want, body []byte) {
	r := ask(false)
	if w.API == "embeddings" {
		r.Operation = exchange.Embeddings
	}
	out, u, f := New().Response(r, body, note)
	if w.Want.Error != nil {
		checkFailed(t, w, f)
		if w.Want.Usage != nil {
			checkUsage(t, w, u)
		}
		return
	}
	if f != nil {
		t.Fatalf("failure: %+v", f)
	}
	checkUsage(t, w, u)
	if w.API == "embeddings" {
		checkVectors(t, w, out)
		return
	}
	check(t, w, readAnswer(t, out))
}

func replayStream(t *testing.T, w want, body []byte, size int, ask bool) {
	t.Helper()
	run := translate(t, body, size, ask)
	if w.Want.Error != nil {
		checkFailed(t, w, run.failure)
		if got := readStream(t, run, true).text(0); got != w.Want.Partial {
			t.Errorf("content before the failure %q, want %q", got, w.Want.Partial)
		}
		return
	}
	if run.failure != nil {
		t.Fatalf("failure: %+v", run.failure)
	}
	checkUsage(t, w, run.usage)
	got := readStream(t, run, false)
	check(t, w, got)
	if !ask {
		if got.usage != nil || bytes.Contains(run.out, []byte("x_gateway")) {
			t.Errorf("usage %+v to a caller who did not ask", got.usage)
		}
		return
	}
	if got.usage == nil {
		t.Fatal("no usage chunk")
	}
	g, u := got.usage, run.usage
	if g.Prompt != u.Prompt() || g.Completion != u.Output || g.Total != u.Total() || g.In.Cached != u.CacheRead {
		t.Errorf("the caller was told %+v, the gateway %+v", *g, u)
	}
}

// checkRefusal checks an answer whose status says that it is an error.
func checkRefusal(t *testing.T, w want, f *exchange.Failure) {
	t.Helper()
	checkFailed(t, w, f)
	if f.Status != w.Want.Status {
		t.Errorf("status %d, want %d", f.Status, w.Want.Status)
	}
	again := (f.Kind == exchange.FailOverloaded || f.Kind == exchange.FailRateLimited) && !f.Final
	if again != w.Want.Retryable {
		t.Errorf("retryable %v, want %v (%+v)", again, w.Want.Retryable, f)
	}
	if got := f.RetryAfter; got != time.Duration(w.Want.RetryAfterMS)*time.Millisecond {
		t.Errorf("retry after %v, want %d ms", got, w.Want.RetryAfterMS)
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
	if u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Output != x.Completion || u.Total() != x.Total ||
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
