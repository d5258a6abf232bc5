package openai

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// What follows reads answers as client libraries do.

const alias = "smart"

func ask(stream bool) *exchange.Request {
	return &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Model: alias, Stream: stream, IncludeUsage: stream, Choices: 1,
		CreatedUnix: 1_700_000_000,
	}
}

// note takes an answer without usage for 40 tokens in and one out for each byte.
func note(dst []byte, u exchange.Usage, delivered adapter.Delivered) ([]byte, exchange.Usage) {
	if u.Source == exchange.FromProvider {
		return append(dst, `{"estimated":false}`...), u
	}
	u.Input, u.Output = 40, delivered.Bytes
	return append(dst, `{"estimated":true}`...), u
}

type seen struct {
	choices map[int]*seenChoice
	usage   *usageJSON
}

type seenChoice struct {
	content, reasoning, refusal, finish string
	calls                               []wantCall
	roles                               int
}

func (s seen) text(i int) string {
	if s.choices[i] == nil {
		return ""
	}
	return s.choices[i].content
}

func (s *seen) at(i int) *seenChoice {
	if s.choices == nil {
		s.choices = map[int]*seenChoice{}
	}
	if s.choices[i] == nil {
		s.choices[i] = &seenChoice{}
	}
	return s.choices[i]
}

type usageJSON struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	In         struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type messageJSON struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Refusal   *string
	Calls     []struct {
		Index    int
		ID       string
		Type     string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

type answerJSON struct {
	ID      *string
	Object  string
	Created int64
	Model   string
	Choices []struct {
		Index          int
		Message, Delta messageJSON
		Finish         *string `json:"finish_reason"`
	}
	Usage   *usageJSON
	Gateway json.RawMessage `json:"x_gateway"`
}

func readAnswer(t *testing.T, body []byte) seen {
	t.Helper()
	var a answerJSON
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if a.Model != alias || !bytes.HasSuffix(body, append([]byte(`"x_gateway":`), append(a.Gateway, '}')...)) || hasError(t, body) {
		t.Fatalf("answer %s", body)
	}
	s := seen{usage: a.Usage}
	for _, c := range a.Choices {
		if c.Finish == nil {
			t.Fatalf("no finish: %s", body)
		}
		to := s.at(c.Index)
		for i := range c.Message.Calls {
			c.Message.Calls[i].Index = i
		}
		to.add(t, c.Message)
		to.finish = *c.Finish
	}
	return s
}

func hasError(t *testing.T, body []byte) bool {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	_, ok := m["error"]
	return ok
}

// run is what became of one stream.
type run struct {
	out       []byte
	usage     exchange.Usage
	delivered int64
	failure   *exchange.Failure
	asked     bool
}

// translate feeds a body in pieces through the reader and the translation, as the relay does.
func translate(t *testing.T, body []byte, size int, includeUsage bool) run {
	t.Helper()
	r := ask(true)
	r.IncludeUsage = includeUsage
	st := New().Stream(r, note)
	res := run{asked: includeUsage}
	var rd sse.Reader
	done := false
	drain := func() {
		for !done && res.failure == nil {
			ev, ok, err := rd.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			before := len(res.out)
			was := st.Delivered()
			next, p := st.Event(res.out, ev.Name, ev.Data)
			res.out, res.failure, done = next, p.Failure, p.Done
			if now := st.Delivered(); p.Real != (now.Bytes > was.Bytes) || p.Real != (now.Pieces == was.Pieces+1) {
				t.Fatalf("real is %v, but %+v became %+v for %q", p.Real, was, now, res.out[before:])
			}
			if p.Failure != nil && len(res.out) != before {
				t.Fatalf("a failure wrote %q", res.out[before:])
			}
		}
	}
	for rest := body; len(rest) > 0 && !done && res.failure == nil; {
		n := min(size, len(rest))
		rd.Feed(rest[:n])
		rest = rest[n:]
		drain()
	}
	if !done && res.failure == nil {
		rd.End()
		drain()
	}
	if res.failure == nil {
		res.out, res.failure = st.End(res.out)
	}
	res.usage, res.delivered = st.Usage(), st.Delivered().Bytes
	return res
}

// readStream puts the chunks together. Broken says that the stream ended in a failure: no [DONE] may stand in it.
func readStream(t *testing.T, res run, broken bool) seen {
	t.Helper()
	var rd sse.Reader
	rd.Feed(res.out)
	rd.End()
	var s seen
	var text int64
	var id *string
	done := 0
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if done > 0 || s.usage != nil && string(ev.Data) != "[DONE]" {
			t.Fatalf("something after the end: %s", ev.Data)
		}
		if string(ev.Data) == "[DONE]" {
			done++
			continue
		}
		var a answerJSON
		if err := json.Unmarshal(ev.Data, &a); err != nil {
			t.Fatalf("%v: %s", err, ev.Data)
		}
		if id == nil {
			id = a.ID
		}
		if a.ID == nil || *a.ID != *id || a.Object != "chat.completion.chunk" || a.Model != alias || hasError(t, ev.Data) {
			t.Fatalf("chunk %s", ev.Data)
		}
		if len(a.Choices) == 0 {
			if !bytes.HasSuffix(ev.Data, append([]byte(`"x_gateway":`), append(a.Gateway, '}')...)) || a.Usage == nil {
				t.Fatalf("usage chunk %s", ev.Data)
			}
			s.usage = a.Usage
			continue
		}
		if a.Usage != nil || res.asked != bytes.Contains(ev.Data, []byte(`"usage":null`)) {
			t.Fatalf("usage in a chunk: %s", ev.Data)
		}
		for _, c := range a.Choices {
			text += s.at(c.Index).add(t, c.Delta)
			if c.Finish != nil {
				s.at(c.Index).finish += *c.Finish
			}
		}
	}
	if broken == (done == 1) || done > 1 {
		t.Fatalf("%d [DONE] in %s", done, res.out)
	}
	for i, c := range s.choices {
		if c.roles != 1 {
			t.Errorf("choice %d has %d roles", i, c.roles)
		}
	}
	if text != res.delivered {
		t.Errorf("%d bytes of text arrived, %d were counted", text, res.delivered)
	}
	return s
}

// add takes in a delta or a message and counts its text.
func (c *seenChoice) add(t *testing.T, d messageJSON) int64 {
	t.Helper()
	n := len(d.Reasoning)
	if d.Role != "" {
		c.roles++
	}
	if d.Content != nil {
		c.content += *d.Content
		n += len(*d.Content)
	}
	if d.Refusal != nil {
		c.refusal += *d.Refusal
		n += len(*d.Refusal)
	}
	c.reasoning += d.Reasoning
	for _, x := range d.Calls {
		if x.Index < 0 || x.Index > len(c.calls) {
			t.Fatalf("call index %d after %d calls", x.Index, len(c.calls))
		}
		if x.Index == len(c.calls) {
			if x.Type == "" || x.ID == "" {
				t.Fatalf("a call begins with %+v", x)
			}
			c.calls = append(c.calls, wantCall{ID: x.ID})
		}
		to := &c.calls[x.Index]
		to.Name += x.Function.Name // as naive clients do
		to.Arguments += x.Function.Arguments
		n += len(x.Function.Arguments) + len(x.Function.Name)
	}
	return int64(n)
}
