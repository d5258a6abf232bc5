package fakeprovider

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// parseResponses reads a request of OpenAI's Responses API. It counts what the same request would in chat: instructions
// are a message, and so is every item but a call.
func (req *request) parseResponses(root gjson.Result) *refusal {
	req.stream, req.includeUsage = root.Get("stream").Bool(), true
	if limit := root.Get("max_output_tokens"); limit.Type != gjson.Null {
		if limit.Type != gjson.Number || limit.Int() < 1 {
			return invalid("max_output_tokens", "max_output_tokens must be a positive integer")
		}
		req.maxTokens = limit.Int()
	}
	for _, tool := range root.Get("tools").Array() {
		req.tools = append(req.tools, toolSpec{
			name: tool.Get("name").String(), schema: tool.Get("parameters"), custom: tool.Get("type").String() == "custom",
		})
	}
	req.logprobs = strings.Contains(root.Get("include").Raw, `"message.output_text.logprobs"`)
	req.topLogprobs = root.Get("top_logprobs").Int()
	req.document = root.Get("text.format.schema")
	switch choice := root.Get("tool_choice"); {
	case choice.String() == "none":
		req.toolMode = toolNever
	case choice.String() == "required":
		req.toolMode = toolAny
	case choice.IsObject():
		req.toolMode, req.toolName = toolNamed, choice.Get("name").String()
	}
	if p := root.Get("parallel_tool_calls"); p.Type == gjson.False {
		req.parallel = false
	}
	if v := root.Get("instructions"); v.Type == gjson.String {
		req.prompt.messages++
		req.countContent(v)
	}
	input := root.Get("input")
	if input.Type == gjson.String {
		req.prompt.messages++
		req.userTurn, req.control = true, req.countContent(input)
		return nil
	}
	if len(input.Array()) == 0 {
		return invalid("input", "input must be a string or a non-empty array")
	}
	for _, item := range input.Array() {
		switch kind := item.Get("type").String(); kind {
		case "", "message":
			req.prompt.messages++
			text := req.countItem(item.Get("content"))
			if req.userTurn = item.Get("role").String() == "user"; req.userTurn {
				req.control = text
			}
		case "function_call_output", "custom_tool_call_output":
			req.prompt.messages++
			req.countItem(item.Get("output"))
			req.userTurn = false
		case "reasoning", "function_call", "custom_tool_call":
			req.userTurn = false
		default:
			return invalid("input", "unknown item "+kind)
		}
	}
	return nil
}

// countItem counts a string or the parts of an item.
func (req *request) countItem(content gjson.Result) string {
	if content.Type == gjson.String {
		return req.countContent(content)
	}
	var text strings.Builder
	for _, part := range content.Array() {
		switch part.Get("type").String() {
		case "input_text", "output_text":
			text.WriteString(part.Get("text").String())
		case "input_image", "input_file":
			req.prompt.media++
		}
	}
	req.prompt.textBytes += int64(text.Len())
	return text.String()
}

func responsesUsage(u Usage) string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return `{"input_tokens":` + n(u.Prompt()) + `,"input_tokens_details":{"cached_tokens":` + n(u.CacheRead) +
		`,"cache_write_tokens":` + n(u.CacheWrite5m+u.CacheWrite1h) + `},"output_tokens":` + n(u.Output) +
		`,"output_tokens_details":{"reasoning_tokens":` + n(u.Reasoning) + `},"total_tokens":` + n(u.Prompt()+u.Output) + `}`
}

// response is the response object in a state; usage may be null.
func response(n answerNames, status, details, output, usage string) string {
	return `{"id":"resp_` + n.id + `","object":"response","created_at":` + strconv.FormatInt(n.created, 10) + `,"status":"` + status +
		`","error":null,"incomplete_details":` + details + `,"model":` + quote(n.model) + `,"output":[` + output +
		`],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"metadata":{},"service_tier":"default","usage":` + usage + `}`
}

// finished is the response object at its end, and its state.
func finished(n answerNames, a *answer, usage string) (object, status string) {
	var items []string
	if a.reasoning > 0 {
		items = append(items, reasoningItem(n))
	}
	if a.text > 0 || len(a.calls) == 0 && a.reasoning == 0 {
		items = append(items, messageItem(n, "completed", textPart(a.words(), a.chances())))
	}
	for k, c := range a.calls {
		items = append(items, callItem(n, k, c, "completed", c.arguments()))
	}
	status, details := "completed", "null"
	if a.finish == finishLength {
		status, details = "incomplete", `{"reason":"max_output_tokens"}`
	}
	return response(n, status, details, strings.Join(items, ","), usage), status
}

func reasoningItem(n answerNames) string {
	return `{"id":"rs_` + n.id + `","type":"reasoning","summary":[]}`
}

func messageItem(n answerNames, status, content string) string {
	return `{"id":"msg_` + n.id + `","type":"message","role":"assistant","status":"` + status + `","content":[` + content + `]}`
}

// textPart is a part of a message; its logprobs are without their brackets.
func textPart(text, logprobs string) string {
	return `{"type":"output_text","text":` + quote(text) + `,"annotations":[],"logprobs":[` + logprobs + `]}`
}

func callItem(n answerNames, k int, c toolCall, status, arguments string) string {
	kind, name := "function_call", "arguments"
	if c.custom {
		kind, name = "custom_tool_call", "input"
	}
	return `{"id":"` + n.callID("fc_", 0, k) + `","type":"` + kind + `","status":"` + status + `","call_id":"` + n.callID("call_", 0, k) +
		`","name":` + quote(c.name) + `,"` + name + `":` + quote(arguments) + `}`
}

// responsesAnswer is the JSON answer.
func responsesAnswer(n answerNames, a *answer, u Usage, withUsage bool) []byte {
	usage := "null"
	if withUsage {
		usage = responsesUsage(u)
	}
	object, _ := finished(n, a, usage)
	return []byte(object)
}

// responsesStream writes the events of the Responses API.
type responsesStream struct {
	frame
	names   answerNames
	answer  *answer
	noDone  bool
	noUsage bool

	sequence int
	index    int // of the next item
	isOpen   bool
	opened   piece           // what the open item began with
	said     strings.Builder // its text, or the call's arguments
}

func newResponsesStream(n answerNames, a *answer, b *Behavior) *responsesStream {
	return &responsesStream{frame: frame{b.Style}, names: n, answer: a, noDone: b.Fault == FaultNoDone, noUsage: b.Fault == FaultNoUsage}
}

// say appends an event: its members follow type and number.
func (s *responsesStream) say(dst []byte, kind, members string) []byte {
	data := `{"type":"response.` + kind + `","sequence_number":` + strconv.Itoa(s.sequence) + `,` + members + `}`
	s.sequence++
	return s.event(dst, "response."+kind, data)
}

func (s *responsesStream) open(dst []byte) []byte {
	begun := `"response":` + response(s.names, "in_progress", "null", "", "null")
	return s.say(s.say(dst, "created", begun), "in_progress", begun)
}

// begin adds the item that p opens, after the one before it has ended.
func (s *responsesStream) begin(dst []byte, p piece, item string) []byte {
	dst = s.say(s.finish(dst), "output_item.added", `"output_index":`+strconv.Itoa(s.index)+`,"item":`+item)
	s.index++
	s.isOpen, s.opened = true, p
	s.said.Reset()
	return dst
}

// finish ends the item that is open.
func (s *responsesStream) finish(dst []byte) []byte {
	if !s.isOpen {
		return dst
	}
	s.isOpen = false
	var item string
	switch text, p := s.said.String(), s.opened; p.kind {
	case pieceReasoning:
		item = reasoningItem(s.names)
	case pieceText:
		at := s.place("msg_"+s.names.id) + `,"content_index":0,`
		part := textPart(text, s.answer.chances())
		dst = s.say(dst, "output_text.done", at+`"text":`+quote(text)+`,"logprobs":[`+s.answer.chances()+`]`)
		dst = s.say(dst, "content_part.done", at+`"part":`+part)
		item = messageItem(s.names, "completed", part)
	default:
		c, at := s.answer.calls[p.call], s.place(s.names.callID("fc_", 0, p.call))
		if c.custom {
			dst = s.say(dst, "custom_tool_call_input.done", at+`,"input":`+quote(text))
		} else {
			dst = s.say(dst, "function_call_arguments.done", at+`,"name":`+quote(p.text)+`,"arguments":`+quote(text))
		}
		item = callItem(s.names, p.call, c, "completed", text)
	}
	return s.say(dst, "output_item.done", `"output_index":`+strconv.Itoa(s.index-1)+`,"item":`+item)
}

func (s *responsesStream) token(dst []byte, p piece) []byte {
	switch p.kind {
	case pieceReasoning: // hidden: only its item tells
		if !s.isOpen {
			dst = s.begin(dst, p, reasoningItem(s.names))
		}
		return dst
	case pieceText:
		at := `,"content_index":0,`
		if !s.isOpen || s.opened.kind != pieceText {
			dst = s.begin(dst, p, messageItem(s.names, "in_progress", ""))
			dst = s.say(dst, "content_part.added", s.place("msg_"+s.names.id)+at+`"part":`+textPart("", ""))
		}
		s.said.WriteString(p.text)
		return s.say(dst, "output_text.delta", s.place("msg_"+s.names.id)+at+`"delta":`+quote(p.text)+`,"logprobs":[`+s.answer.chance(p.text)+`]`)
	case pieceCall:
		return s.begin(dst, p, callItem(s.names, p.call, s.answer.calls[p.call], "in_progress", ""))
	case pieceArguments:
		s.said.WriteString(p.text)
		kind := "function_call_arguments.delta"
		if s.answer.calls[p.call].custom {
			kind = "custom_tool_call_input.delta"
		}
		return s.say(dst, kind, s.place(s.names.callID("fc_", 0, p.call))+`,"delta":`+quote(p.text))
	}
	panic("BUG: unknown piece")
}

func (s *responsesStream) place(id string) string {
	return `"output_index":` + strconv.Itoa(s.index-1) + `,"item_id":"` + id + `"`
}

func (s *responsesStream) broken(dst []byte) []byte {
	return s.event(dst, "response.output_text.delta", halfJSON(`{"type":"response.output_text.delta","delta":"x"}`))
}

func (s *responsesStream) fail(dst []byte) []byte {
	failed := response(s.names, "failed", "null", "", "null")
	return s.say(dst, "failed", `"response":`+strings.Replace(failed, `"error":null`,
		`"error":{"code":"server_error","message":"The server had an error while answering."}`, 1))
}

func (s *responsesStream) close(dst []byte, final Usage) []byte {
	dst = s.finish(dst)
	usage := responsesUsage(final)
	if s.noUsage {
		usage = "null"
	}
	if object, status := finished(s.names, s.answer, usage); !s.noDone {
		dst = s.say(dst, status, `"response":`+object)
	}
	return dst
}
