package wire

import (
	"encoding/json"
	"testing"
)

type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	In         struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Cost json.Number
}

func (u *chatUsage) seen() *wantUsage {
	return &wantUsage{
		Prompt: u.Prompt, Completion: u.Completion, Total: u.Total, Cached: u.In.Cached, Reasoning: u.Out.Reasoning, Cost: u.Cost,
	}
}

type chatMessage struct {
	Role      string
	Content   *string
	Reasoning string `json:"reasoning_content"`
	Other     string `json:"reasoning"`
	Refusal   *string
	Images    []struct {
		Type  string
		Image struct{ URL string } `json:"image_url"`
	}
	Calls []struct {
		Index    *int
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// readChat understands an answer of the chat dialect as the strictest of its clients do.
func readChat(t *testing.T, s *seen) {
	t.Helper()
	switch {
	case s.status != 200:
		s.readError(t, string(s.body))
	case s.streamed():
		readChatStream(t, s)
	default:
		var a struct {
			Choices []struct {
				Index   int
				Message chatMessage
				Finish  string `json:"finish_reason"`
			}
			Usage   *chatUsage
			Gateway gatewaySays `json:"x_gateway"`
		}
		decode(t, string(s.body), &a)
		for _, c := range a.Choices {
			to := s.choice(c.Index)
			add(t, to, &c.Message, false)
			to.finish = known(t, c.Finish)
		}
		if a.Usage != nil {
			s.usage = a.Usage.seen()
		}
		s.gateway, s.done = a.Gateway, true
	}
}

// known is a finish_reason, one of the words that clients know.
func known(t *testing.T, finish string) string {
	t.Helper()
	switch finish {
	case "stop", "length", "tool_calls", "content_filter", "function_call":
	default:
		t.Errorf("finish_reason %q", finish)
	}
	return finish
}

func readChatStream(t *testing.T, s *seen) {
	t.Helper()
	roles, id := map[int]int{}, ""
	for _, ev := range events(t, s.body) {
		if s.done || s.err != nil {
			t.Errorf("%q after the end", ev.data)
		}
		if ev.data == "[DONE]" {
			s.done = true
			continue
		}
		var members map[string]json.RawMessage
		decode(t, ev.data, &members)
		if _, failed := members["error"]; failed { // even a null ends the stream for some clients
			s.readError(t, ev.data)
			continue
		}
		var c struct {
			ID      string
			Object  string
			Choices []struct {
				Index  int
				Delta  *chatMessage
				Finish *string `json:"finish_reason"`
			}
			Usage   *chatUsage
			Gateway *gatewaySays `json:"x_gateway"`
		}
		decode(t, ev.data, &c)
		if string(members["choices"]) == "null" || members["choices"] == nil {
			t.Errorf("choices is no array: %s", ev.data)
		}
		if id == "" {
			id = c.ID
		}
		if c.ID != id || c.Object != "chat.completion.chunk" {
			t.Errorf("a chunk with id %q, object %q in the stream %q", c.ID, c.Object, id)
		}
		for _, x := range c.Choices {
			to := s.choice(x.Index)
			if x.Delta == nil {
				t.Errorf("a choice without a delta: %s", ev.data)
				continue
			}
			if x.Delta.Role != "" {
				roles[x.Index]++
			}
			add(t, to, x.Delta, true)
			if x.Finish != nil {
				if to.finish != "" || *x.Finish == "" {
					t.Errorf("finish %q after %q", *x.Finish, to.finish)
				}
				to.finish = known(t, *x.Finish)
			}
		}
		if c.Usage != nil {
			if s.usage != nil || len(c.Choices) != 0 {
				t.Errorf("a further usage chunk, or one with choices: %s", ev.data)
			}
			s.usage = c.Usage.seen()
		}
		if c.Gateway != nil {
			s.gateway = *c.Gateway
		}
	}
	for i, n := range roles {
		if n != 1 {
			t.Errorf("%d chunks of choice %d have a role", n, i)
		}
	}
}

func add(t *testing.T, to *choice, m *chatMessage, stream bool) {
	t.Helper()
	if m.Content != nil {
		to.content += *m.Content
	}
	if m.Refusal != nil {
		to.refusal += *m.Refusal
	}
	if m.Reasoning != "" {
		to.reasoning += m.Reasoning
	} else {
		to.reasoning += m.Other
	}
	for _, image := range m.Images {
		if image.Type != "image_url" {
			t.Errorf("an image of type %q", image.Type)
		}
		to.images = append(to.images, image.Image.URL)
	}
	for i, c := range m.Calls {
		at := i
		if stream {
			if c.Index == nil {
				t.Fatal("a tool call without an index")
			}
			at = *c.Index
		}
		if at == len(to.calls) { // a new call: dense indexes in order
			if c.ID == "" || c.Type != "function" || c.Function.Name == "" {
				t.Errorf("call %d begins with %+v", at, c)
			}
			to.calls = append(to.calls, &call{ID: c.ID, Name: c.Function.Name})
		} else if at > len(to.calls) {
			t.Fatalf("index %d of a tool call after %d calls", at, len(to.calls))
		}
		to.calls[at].Arguments += c.Function.Arguments
	}
}

// readEmbeddings understands an answer of vectors.
func readEmbeddings(t *testing.T, s *seen) {
	t.Helper()
	if s.status != 200 {
		s.readError(t, string(s.body))
		return
	}
	var a struct {
		Data []struct {
			Index     int
			Embedding []float64
		}
		Usage   *chatUsage
		Gateway gatewaySays `json:"x_gateway"`
	}
	decode(t, string(s.body), &a)
	for i, d := range a.Data {
		if d.Index != i {
			t.Errorf("vector %d stands at %d", d.Index, i)
		}
		s.vectors = append(s.vectors, d.Embedding)
	}
	if a.Usage != nil {
		s.usage = a.Usage.seen()
	}
	s.gateway, s.done = a.Gateway, true
}
