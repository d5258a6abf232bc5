package wire

import "testing"

type responsesItem struct {
	Type    string
	ID      string
	CallID  string `json:"call_id"`
	Name    string
	Args    string `json:"arguments"`
	Result  string
	Format  string `json:"output_format"`
	Content []struct{ Type, Text, Refusal string }
	Summary []struct{ Text string }
}

type response struct {
	Status     string
	Output     []responsesItem
	Incomplete *struct{ Reason string } `json:"incomplete_details"`
	Error      *struct{ Code, Message string }
	Usage      *struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Total  int64 `json:"total_tokens"`
		In     struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Out struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
	Gateway gatewaySays `json:"x_gateway"`
}

// readResponses understands an answer of OpenAI's Responses dialect.
func readResponses(t *testing.T, s *seen) {
	t.Helper()
	switch {
	case s.status != 200:
		s.readError(t, string(s.body))
	case s.streamed():
		readResponsesStream(t, s)
	default:
		var r response
		decode(t, string(s.body), &r)
		s.response(t, &r)
	}
}

// response reads a finished one: its output holds everything.
func (s *seen) response(t *testing.T, r *response) {
	t.Helper()
	c := s.choice(0)
	c.content, c.refusal, c.reasoning, c.calls, c.images = "", "", "", nil, nil
	for _, item := range r.Output {
		switch item.Type {
		case "message":
			for _, p := range item.Content {
				c.content += p.Text
				c.refusal += p.Refusal
			}
		case "reasoning":
			for _, p := range item.Summary {
				c.reasoning += p.Text
			}
			for _, p := range item.Content {
				c.reasoning += p.Text
			}
		case "image_generation_call":
			c.images = append(c.images, "data:image/"+item.Format+";base64,"+item.Result)
		case "function_call":
			c.calls = append(c.calls, &call{ID: item.CallID, Name: item.Name, Arguments: item.Args})
		}
	}
	switch {
	case r.Status == "incomplete" && r.Incomplete != nil && r.Incomplete.Reason == "max_output_tokens":
		c.finish = "length"
	case r.Status == "incomplete" && r.Incomplete != nil:
		c.finish = r.Incomplete.Reason
	case len(c.calls) > 0:
		c.finish = "tool_calls"
	case r.Status == "completed":
		c.finish = "stop"
	default:
		t.Errorf("status %q", r.Status)
	}
	if u := r.Usage; u != nil {
		s.usage = &wantUsage{Prompt: u.Input, Completion: u.Output, Total: u.Total, Cached: u.In.Cached, Reasoning: u.Out.Reasoning}
	}
	s.gateway, s.done = r.Gateway, true
}

// readResponsesStream holds what strict clients do: the start first, numbered events, items added before their deltas
// and done in order, and the whole output again at the end.
func readResponsesStream(t *testing.T, s *seen) {
	t.Helper()
	added, numbered, streamed, failed := map[int]bool{}, -1, &choice{}, false
	for i, ev := range events(t, s.body) {
		var e struct {
			Type     string
			Sequence *int `json:"sequence_number"`
			Index    int  `json:"output_index"`
			Delta    string
			Response response
			Code     *string
			Param    *string
			Message  string
		}
		decode(t, ev.data, &e)
		if ev.name != e.Type {
			t.Errorf("event %q holds %q", ev.name, e.Type)
		}
		if s.done || failed || (s.err != nil && e.Type != "response.failed") { // which follows an error, with the whole
			t.Errorf("%q after the end", ev.data)
		}
		if i == 0 && e.Type != "response.created" {
			t.Errorf("the stream begins with %s", e.Type)
		}
		if e.Sequence == nil || *e.Sequence <= numbered {
			t.Errorf("%s is not numbered after %d", e.Type, numbered)
		} else {
			numbered = *e.Sequence
		}
		switch e.Type {
		case "response.output_item.added":
			if added[e.Index] || e.Index != len(added) {
				t.Errorf("item %d is added after %d items", e.Index, len(added))
			}
			added[e.Index] = true
		case "response.output_text.delta":
			streamed.content += e.Delta
			if !added[e.Index] && !s.own {
				t.Errorf("a delta of item %d, which was not added", e.Index)
			}
		case "response.function_call_arguments.delta":
			if !added[e.Index] {
				t.Errorf("a delta of item %d, which was not added", e.Index)
			}
		case "response.completed", "response.incomplete":
			s.response(t, &e.Response)
		case "response.failed":
			s.err, failed = &wireError{}, true
			if x := e.Response.Error; x != nil {
				s.err.Code, s.message = x.Code, x.Message
			}
		case "error":
			s.err, s.message = &wireError{}, e.Message
			if e.Code != nil {
				s.err.Code = *e.Code
			}
			if e.Param != nil {
				s.err.Param = *e.Param
			}
		}
	}
	if c := s.choice(0); s.done && c.content != streamed.content {
		t.Errorf("the deltas hold %q, the output %q", streamed.content, c.content)
	} else {
		c.content = streamed.content
	}
}
