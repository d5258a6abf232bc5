package wire

import (
	"encoding/json"
	"testing"
)

type messagesUsage struct {
	Input  *int64 `json:"input_tokens"`
	Output *int64 `json:"output_tokens"`
	Read   *int64 `json:"cache_read_input_tokens"`
	Write  *int64 `json:"cache_creation_input_tokens"`
}

// into replaces what is stated: null and absence mean no news.
func (u *messagesUsage) into(w *messagesUsage) {
	for _, x := range [...]struct{ from, to **int64 }{{&u.Input, &w.Input}, {&u.Output, &w.Output}, {&u.Read, &w.Read}, {&u.Write, &w.Write}} {
		if *x.from != nil {
			*x.to = *x.from
		}
	}
}

func (u *messagesUsage) seen() *wantUsage {
	n := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	w := &wantUsage{Prompt: n(u.Input) + n(u.Read) + n(u.Write), Completion: n(u.Output), Cached: n(u.Read), Write: n(u.Write)}
	w.Total = w.Prompt + w.Completion
	return w
}

type block struct {
	Type, Text, Thinking, ID, Name string
	Input                          json.RawMessage
	Source                         struct {
		Type, Data string
		Media      string `json:"media_type"`
	}
}

// messagesFinish are chat's words for the dialect's.
var messagesFinish = map[string]string{
	"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter",
	"pause_turn": "stop",
}

// readMessages understands an answer of Anthropic's Messages dialect.
func readMessages(t *testing.T, s *seen) {
	t.Helper()
	switch {
	case s.status != 200:
		s.readError(t, string(s.body))
	case s.streamed():
		readMessagesStream(t, s)
	default:
		var a struct {
			Type, Role string
			Content    []block
			Stop       string `json:"stop_reason"`
			Usage      messagesUsage
			Gateway    gatewaySays `json:"x_gateway"`
		}
		decode(t, string(s.body), &a)
		if a.Type != "message" || a.Role != "assistant" || a.Content == nil {
			t.Errorf("not a message: %s", s.body)
		}
		c := s.choice(0)
		for _, b := range a.Content {
			c.addBlock(&b)
			if b.Type == "tool_use" {
				c.calls[len(c.calls)-1].Arguments = string(b.Input)
			}
		}
		s.finishMessages(t, a.Stop)
		s.usage, s.gateway, s.done = a.Usage.seen(), a.Gateway, true
	}
}

func (s *seen) finishMessages(t *testing.T, reason string) {
	t.Helper()
	to, known := messagesFinish[reason]
	if !known {
		t.Errorf("stop_reason %q", reason)
	}
	s.choice(0).finish = to
}

func (c *choice) addBlock(b *block) {
	c.content += b.Text
	c.reasoning += b.Thinking
	if b.Type == "image" && b.Source.Type == "base64" {
		c.images = append(c.images, "data:"+b.Source.Media+";base64,"+b.Source.Data)
	}
	if b.Type == "tool_use" {
		c.calls = append(c.calls, &call{ID: b.ID, Name: b.Name})
	}
}

// readMessagesStream holds the order of the events: a start, blocks one after another, a delta with the reason, a stop.
func readMessagesStream(t *testing.T, s *seen) {
	t.Helper()
	var usage messagesUsage
	started, open, next := false, -1, 0
	c := s.choice(0)
	for _, ev := range events(t, s.body) {
		var e struct {
			Type    string
			Index   int
			Message struct{ Usage messagesUsage }
			Block   block `json:"content_block"`
			Delta   struct {
				Type, Text, Thinking string
				Partial              string `json:"partial_json"`
				Stop                 string `json:"stop_reason"`
			}
			Usage   messagesUsage
			Gateway *gatewaySays `json:"x_gateway"`
		}
		decode(t, ev.data, &e)
		if ev.name != e.Type {
			t.Errorf("event %q holds %q", ev.name, e.Type)
		}
		if s.done || s.err != nil {
			t.Errorf("%q after the end", ev.data)
		}
		if e.Type != "error" && e.Type != "ping" && started == (e.Type == "message_start") {
			t.Errorf("%s before or after its start", e.Type)
		}
		switch e.Type {
		case "message_start":
			started = true
			e.Message.Usage.into(&usage)
		case "content_block_start":
			if open >= 0 || e.Index != next {
				t.Errorf("block %d starts while %d is open and %d is next", e.Index, open, next)
			}
			open, next = e.Index, next+1
			c.addBlock(&e.Block)
		case "content_block_delta":
			if e.Index != open {
				t.Errorf("a delta of block %d while %d is open", e.Index, open)
			}
			c.content += e.Delta.Text
			c.reasoning += e.Delta.Thinking
			if e.Delta.Type == "input_json_delta" && len(c.calls) > 0 {
				c.calls[len(c.calls)-1].Arguments += e.Delta.Partial
			}
		case "content_block_stop":
			if e.Index != open {
				t.Errorf("block %d stops while %d is open", e.Index, open)
			}
			open = -1
		case "message_delta":
			if e.Delta.Stop != "" {
				s.finishMessages(t, e.Delta.Stop)
			}
			e.Usage.into(&usage)
			if e.Gateway != nil {
				s.gateway = *e.Gateway
			}
		case "message_stop":
			s.done = true
		case "error":
			s.readError(t, ev.data)
		}
	}
	s.usage = usage.seen()
}
