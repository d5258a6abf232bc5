package adaptertest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

// CheckChat checks what a chat caller got, who asked for a stream's usage or not.
func (f *Fixture) CheckChat(t testing.TB, got Relayed, asked bool) {
	t.Helper()
	switch {
	case f.Broken():
		f.checkBroken(t, got, asked)
	case f.Want.Error != nil:
		f.CheckRefusal(t, got)
	case got.Failure != nil:
		t.Fatalf("failure %+v", got.Failure)
	case f.API == "embeddings":
		f.CheckUsage(t, got.Usage)
		f.checkVectors(t, got.Body)
	case f.Stream:
		f.checkStream(t, got, asked)
	default:
		f.CheckUsage(t, got.Usage)
		s := ReadAnswer(t, got.Body)
		f.CheckSeen(t, s)
		f.checkTold(t, s.Usage, got.Usage)
	}
}

// Broken says that the caller has got a part of the answer when it breaks.
func (f *Fixture) Broken() bool { return f.Want.Error != nil && f.Want.Partial != "" }

func (f *Fixture) checkStream(t testing.TB, got Relayed, asked bool) {
	t.Helper()
	if got.Outcome == nil || got.Outcome.Status != relay.StatusOK {
		t.Fatalf("outcome %+v", got.Outcome)
	}
	f.CheckUsage(t, got.Usage)
	s := ReadStream(t, got.Body, asked)
	f.CheckSeen(t, s)
	if x := f.Want.Reasoning; x != "" && bytes.Contains(got.Body, []byte(`"reasoning":"`+x[:1])) {
		t.Errorf("reasoning under a second name: %s", got.Body)
	}
	if s.Text != got.Outcome.Delivered.Bytes {
		t.Errorf("%d bytes of text arrived, %d were counted", s.Text, got.Outcome.Delivered.Bytes)
	}
	if asked {
		f.checkTold(t, s.Usage, got.Usage)
	}
}

// checkTold: the caller is told what is settled.
func (f *Fixture) checkTold(t testing.TB, told *Told, u exchange.Usage) {
	t.Helper()
	if told.Prompt != u.Prompt() || told.Completion != u.Completion() || told.Total != u.Total() || told.In.Cached != u.CacheRead ||
		told.In.Write != u.CacheWrite5m+u.CacheWrite1h || told.Out.Reasoning != u.Reasoning {
		t.Errorf("the caller was told %+v, the gateway %+v", *told, u)
	}
}

// CheckUsage checks what is settled. It does not depend on the caller's dialect.
func (f *Fixture) CheckUsage(t testing.TB, u exchange.Usage) {
	t.Helper()
	x := f.Want.Usage
	if x == nil {
		if u.Source == exchange.FromProvider {
			t.Errorf("usage %+v, want an estimate", u)
		}
		return
	}
	write5m := x.Write5m
	if x.Write5m+x.Write1h == 0 {
		write5m = x.Write
	}
	if u.Source != exchange.FromProvider || u.Prompt() != x.Prompt || u.Output != x.Completion || u.Total() != x.Total ||
		u.CacheRead != x.Cached || u.CacheWrite5m != write5m || u.CacheWrite1h != x.Write1h || u.Reasoning != x.Reasoning ||
		!json.Valid([]byte(u.Raw)) {
		t.Errorf("usage %+v, want %+v", u, *x)
	}
}

// checkBroken checks a stream that broke after it began: what had come, and then one error, which is the last word.
func (f *Fixture) checkBroken(t testing.TB, got Relayed, asked bool) {
	t.Helper()
	if got.Outcome == nil || got.Outcome.Status != relay.StatusPartial {
		t.Fatalf("outcome %+v after %+v", got.Outcome, got.Failure)
	}
	caller := adapter.Told(got.Failure)
	f.checkError(t, &caller)
	f.CheckUsage(t, got.Usage)
	s := ReadBroken(t, got.Body, asked)
	if e := *f.Want.Error; s.Fault == nil || *s.Fault != e {
		t.Errorf("the caller was told %+v, want %+v", s.Fault, e)
	}
	if c := s.First(); c.Content != f.Want.Partial || c.Finish != "" || len(s.Choices) != 1 {
		t.Errorf("before the failure %+v, want %q", c, f.Want.Partial)
	}
}

// again are the kinds of failures after which it is worth asking the same provider again.
var again = []exchange.FailureKind{
	exchange.FailOverloaded, exchange.FailRateLimited, exchange.FailInvalid, exchange.FailTimeout, exchange.FailCut,
}

// told is the status that a kind of failure becomes for the caller.
var told = map[exchange.FailureKind]int{
	exchange.FailRequest: 400, exchange.FailCredential: 502, exchange.FailNotFound: 502, exchange.FailInvalid: 502,
	exchange.FailCut: 502, exchange.FailTimeout: 504, exchange.FailOverloaded: 503, exchange.FailRateLimited: 429,
}

// CheckRefusal checks a failure of which nothing reached the caller.
func (f *Fixture) CheckRefusal(t testing.TB, got Relayed) {
	t.Helper()
	x, fail := f.Want, got.Failure
	f.checkError(t, fail)
	f.CheckUsage(t, got.Usage)
	if got.Outcome != nil || len(got.Body) > 0 {
		t.Errorf("after the caller got %s", got.Body)
	}
	if x.Status == http.StatusOK {
		if !fail.Kind.Failover() { // another may be tried
			t.Errorf("got %+v", fail)
		}
		return
	}
	if got.Status != http.StatusOK && got.Status != x.Status {
		t.Errorf("status %d, want %d", got.Status, x.Status)
	}
	// A 200 that is no answer has no status of the provider's: 502 and 503 are the gateway's words.
	none := got.Status == http.StatusOK && fail.Status == 0 && (x.Status == http.StatusBadGateway || x.Status == http.StatusServiceUnavailable)
	if fail.Status != x.Status && !none {
		t.Errorf("a failure of status %d, want %d", fail.Status, x.Status)
	}
	if retry := slices.Contains(again, fail.Kind) && !fail.Final; retry != x.Retryable {
		t.Errorf("retryable %v, want %v (%+v)", retry, x.Retryable, fail)
	}
	if status := x.CallerStatus; status != 0 && told[fail.Kind] != status {
		t.Errorf("the caller gets %d, want %d (%+v)", told[fail.Kind], status, fail)
	}
	if fail.RetryAfter != time.Duration(x.RetryAfterMS)*time.Millisecond {
		t.Errorf("retry after %v, want %d ms", fail.RetryAfter, x.RetryAfterMS)
	}
}

func (f *Fixture) checkError(t testing.TB, fail *exchange.Failure) {
	t.Helper()
	if fail == nil {
		t.Fatal("no failure")
	}
	if fail.Message == "" || strings.Contains(fail.Message, "<") {
		t.Errorf("message %q", fail.Message)
	}
	if e := f.Want.Error; fail.Type != e.Type || fail.Code != e.Code || fail.Param != e.Param {
		t.Errorf("got %+v, want %+v", fail, *e)
	}
}

// CheckSeen checks what was said.
func (f *Fixture) CheckSeen(t testing.TB, got *Seen) {
	t.Helper()
	if list := f.Want.Choices; len(list) > 0 {
		if len(got.Choices) != len(list) {
			t.Fatalf("%d choices, want %d", len(got.Choices), len(list))
		}
		for _, w := range list {
			if c := got.Choices[w.Index]; c == nil || c.Content != w.Content || c.Finish != w.Finish {
				t.Errorf("choice %d is %+v", w.Index, c)
			}
		}
		return
	}
	if len(got.Choices) != 1 {
		t.Fatalf("%d choices", len(got.Choices))
	}
	c, content := got.First(), ""
	if f.Want.Content != nil {
		content = *f.Want.Content
	}
	if c.Content != content || c.Finish != f.Want.Finish || c.Reasoning != f.Want.Reasoning || c.Refusal != f.Want.Refusal ||
		!f.Stream && c.Null != (f.Want.Content == nil) {
		t.Errorf("got %+v", c)
	}
	f.CheckCalls(t, c.Calls)
}

// CheckCalls checks the calls, each of which must have an id of its own.
func (f *Fixture) CheckCalls(t testing.TB, calls []Call) {
	t.Helper()
	if len(calls) != len(f.Want.Calls) {
		t.Fatalf("calls %+v, want %+v", calls, f.Want.Calls)
	}
	ids := map[string]bool{}
	for i, w := range f.Want.Calls {
		got := calls[i]
		if got.ID == "" || ids[got.ID] {
			t.Errorf("call %d has the id %q", i, got.ID)
		}
		ids[got.ID] = true
		if w.ID == "*generated*" {
			w.ID = got.ID
		}
		if got != w {
			t.Errorf("call %d is %+v, want %+v", i, got, w)
		}
	}
}

func (f *Fixture) checkVectors(t testing.TB, body []byte) {
	t.Helper()
	var a struct {
		Model string
		Data  []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal(body, &a); err != nil || a.Model != Alias || len(a.Data) != len(f.Want.Embeddings) {
		t.Fatalf("%v: %s", err, body)
	}
	for i, v := range f.Want.Embeddings {
		if !slices.Equal(a.Data[i].Embedding, v) {
			t.Errorf("vector %d is %v, want %v", i, a.Data[i].Embedding, v)
		}
	}
}
