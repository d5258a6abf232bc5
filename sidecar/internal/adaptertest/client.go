package adaptertest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// Event is one server-sent event.
type Event struct{ Name, Data string }

// Events takes a stream apart. Each event must be one line of JSON or [DONE], and nothing may be left over.
func Events(t testing.TB, stream []byte) (list []Event) {
	t.Helper()
	if len(stream) > 0 && !bytes.HasSuffix(stream, []byte("\n\n")) {
		t.Fatalf("half an event at the end of %q", stream)
	}
	var rd sse.Reader
	rd.Feed(stream)
	rd.End()
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if ev.Bare || bytes.ContainsAny(ev.Data, "\r\n") || string(ev.Data) != done && !json.Valid(ev.Data) {
			t.Fatalf("event %q in %q", ev.Data, stream)
		}
		list = append(list, Event{string(ev.Name), string(ev.Data)})
	}
	if n := bytes.Count(stream, []byte("\n\n")); n != len(list) {
		t.Fatalf("%d events, %d ends in %q", len(list), n, stream)
	}
	return list
}

const done = "[DONE]"

// Seen is an answer of chat, put together as client libraries do.
type Seen struct {
	Choices map[int]*Choice
	Usage   *Told
	Tier    string
	Fault   *WantError // the error event, nil for none
	Text    int64      // bytes of text, reasoning and calls
}

// Choice is one of an answer's choices.
type Choice struct {
	Content, Reasoning, Refusal, Finish string
	Null                                bool // no content came, not even an empty one
	Calls                               []Call
	Extras                              []string // extra_content of each call
	Details                             []string // reasoning_details
	roles                               int
}

// Call is a tool call. Tables of calls read better without the names of its members.
type Call = struct{ ID, Name, Arguments string }

// Told is the usage that the caller is told.
type Told struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	In         struct {
		Cached int64 `json:"cached_tokens"`
		Write  int64 `json:"cache_write_tokens"`
		Audio  int64 `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// First is the choice that most answers have alone.
func (s *Seen) First() Choice {
	if c := s.Choices[0]; c != nil {
		return *c
	}
	return Choice{Null: true}
}

type message struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Refusal   *string
	Details   []json.RawMessage `json:"reasoning_details"`
	Calls     []struct {
		Index    *int
		ID       string
		Type     string
		Function struct{ Name, Arguments string }
		Extra    json.RawMessage `json:"extra_content"`
	} `json:"tool_calls"`
}

type chunk struct {
	ID, Object, Model string
	Choices           []struct {
		Index          int
		Message, Delta message
		Finish         *string `json:"finish_reason"`
	}
	Usage   *Told
	Tier    string          `json:"service_tier"`
	Gateway json.RawMessage `json:"x_gateway"`
	Error   json.RawMessage
}

// parse reads an answer, or a chunk of one.
func parse(t testing.TB, data []byte, object string) (c chunk) {
	t.Helper()
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if len(c.Error) == 0 && (c.Model != Alias || c.ID == "" || c.Object != object) {
		t.Fatalf("answer %s", data)
	}
	// Who reads the cost alone finds it at the end.
	if (c.Usage != nil) != (c.Gateway != nil) || c.Gateway != nil && !bytes.HasSuffix(data, append([]byte(`"x_gateway":`), append(c.Gateway, '}')...)) {
		t.Fatalf("usage and x_gateway of %s", data)
	}
	return c
}

// ReadAnswer reads an answer that came whole.
func ReadAnswer(t testing.TB, body []byte) *Seen {
	t.Helper()
	a := parse(t, body, "chat.completion")
	if len(a.Error) > 0 || a.Usage == nil {
		t.Fatalf("answer %s", body)
	}
	s := &Seen{Usage: a.Usage, Tier: a.Tier}
	for _, c := range a.Choices {
		if c.Finish == nil {
			t.Fatalf("no finish: %s", body)
		}
		s.add(t, c.Index, c.Message, c.Finish)
	}
	return s
}

// ReadStream reads a stream that came to its end, and was asked for its usage or not.
func ReadStream(t testing.TB, stream []byte, asked bool) *Seen {
	t.Helper()
	s, ended := readStream(t, stream, asked)
	if !ended || s.Fault != nil || (s.Usage != nil) != asked {
		t.Fatalf("[DONE] %v, error %v, usage %+v in %s", ended, s.Fault, s.Usage, stream)
	}
	return s
}

// ReadBroken reads a stream that broke: it must not look complete.
func ReadBroken(t testing.TB, stream []byte, asked bool) *Seen {
	t.Helper()
	s, ended := readStream(t, stream, asked)
	if ended || s.Usage != nil {
		t.Fatalf("[DONE] %v, usage %+v in %s", ended, s.Usage, stream)
	}
	return s
}

func readStream(t testing.TB, stream []byte, asked bool) (s *Seen, ended bool) {
	t.Helper()
	s = &Seen{}
	id := ""
	for _, ev := range Events(t, stream) {
		if ended || s.Fault != nil || s.Usage != nil && ev.Data != done {
			t.Fatalf("something after the end: %s", ev.Data)
		}
		if ev.Data == done {
			ended = true
			continue
		}
		a := parse(t, []byte(ev.Data), "chat.completion.chunk")
		if len(a.Error) > 0 {
			if err := json.Unmarshal(a.Error, &s.Fault); err != nil || s.Fault == nil {
				t.Fatalf("%v: %s", err, ev.Data)
			}
			continue
		}
		if id == "" {
			id = a.ID
		}
		if a.ID != id || (a.Usage != nil) != (len(a.Choices) == 0) || len(a.Choices) > 0 && asked != bytes.Contains([]byte(ev.Data), []byte(`"usage":null`)) {
			t.Fatalf("chunk %s", ev.Data)
		}
		if a.Usage != nil {
			s.Usage, s.Tier = a.Usage, a.Tier
		}
		for _, c := range a.Choices {
			s.add(t, c.Index, c.Delta, c.Finish)
		}
	}
	for i, c := range s.Choices {
		if c.roles != 1 {
			t.Errorf("choice %d has %d roles", i, c.roles)
		}
	}
	return s, ended
}

// add takes in a message, or a piece of one.
func (s *Seen) add(t testing.TB, index int, m message, finish *string) {
	t.Helper()
	if s.Choices == nil {
		s.Choices = map[int]*Choice{}
	}
	c := s.Choices[index]
	if c == nil {
		c = &Choice{Null: true}
		s.Choices[index] = c
	}
	if m.Role != "" {
		c.roles++
	}
	if m.Content != nil {
		c.Null = false
		c.Content += *m.Content
		s.Text += int64(len(*m.Content))
	}
	if m.Refusal != nil {
		c.Refusal += *m.Refusal
		s.Text += int64(len(*m.Refusal))
	}
	if finish != nil {
		c.Finish += *finish
	}
	c.Reasoning += m.Reasoning
	s.Text += int64(len(m.Reasoning))
	for _, d := range m.Details {
		c.Details = append(c.Details, string(d))
	}
	for i, x := range m.Calls {
		if x.Index != nil {
			i = *x.Index
		}
		if i < 0 || i > len(c.Calls) {
			t.Fatalf("call index %d after %d calls", i, len(c.Calls))
		}
		if i == len(c.Calls) {
			if x.Type == "" || x.ID == "" {
				t.Fatalf("a call begins with %+v", x)
			}
			c.Calls, c.Extras = append(c.Calls, Call{ID: x.ID}), append(c.Extras, "")
		}
		to := &c.Calls[i]
		to.Name += x.Function.Name // as naive clients do
		to.Arguments += x.Function.Arguments
		c.Extras[i] += string(x.Extra)
		s.Text += int64(len(x.Function.Name) + len(x.Function.Arguments))
	}
}
