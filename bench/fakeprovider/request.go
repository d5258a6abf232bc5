package fakeprovider

import (
	"strings"

	"github.com/tidwall/gjson"
)

// Endpoint names an API call in rules and records.
type Endpoint string

// The endpoints.
const (
	EndpointChat        Endpoint = "chat"         // POST /v1/chat/completions
	EndpointResponses   Endpoint = "responses"    // POST /v1/responses
	EndpointMessages    Endpoint = "messages"     // POST /v1/messages
	EndpointEmbeddings  Endpoint = "embeddings"   // POST /v1/embeddings
	EndpointCountTokens Endpoint = "count_tokens" // POST /v1/messages/count_tokens
	EndpointModels      Endpoint = "models"       // GET /v1/models and /v1/models/{id}
)

func endpoints() []Endpoint {
	return []Endpoint{EndpointChat, EndpointResponses, EndpointMessages, EndpointEmbeddings, EndpointCountTokens, EndpointModels}
}

// Weights of the token rule, see promptCount.
const (
	bytesPerToken    = 4
	tokensPerMessage = 3
	tokensPerMedia   = 64
)

// promptCount adds up the prompt by the package's token rule, the same for both dialects:
//
//	ceil(bytes of all text / 4) + 3 per message + 64 per image, audio, document or file
//
// Text is what the decoded JSON strings hold: string contents, text parts and tool results, directives included; tool
// definitions and tool-call arguments are free. A system text block counts as a message, and so does a tool result,
// which in the Anthropic dialect stands inside a user message: that message counts only if it holds something else
// too. So a request keeps its count when it is translated block by block.
type promptCount struct{ textBytes, messages, media int64 }

func (p promptCount) tokens() int64 {
	return ceilDiv(p.textBytes, bytesPerToken) + tokensPerMessage*p.messages + tokensPerMedia*p.media
}

func ceilDiv(n, d int64) int64 { return (n + d - 1) / d }

// request is what the provider needs to know of a request body.
type request struct {
	model        string
	stream       bool
	includeUsage bool
	maxTokens    int64 // -1: not given
	choices      int64
	prompt       promptCount
	control      string // text of the last user message, where directives stand
	userTurn     bool   // the last message is a user's, not a tool's
	tools        []toolSpec
	toolMode     toolMode
	toolName     string // for toolNamed
	parallel     bool
	document     gjson.Result // the JSON schema that the text must be of; absent for prose
	logprobs     bool         // of each text token
	topLogprobs  int64        // alternatives to each
	embed        embedRequest
}

type toolSpec struct {
	name   string
	schema gjson.Result
	custom bool // takes a text in place of arguments
}

type toolMode int

const (
	toolAuto toolMode = iota
	toolNever
	toolAny
	toolNamed
)

type embedRequest struct {
	inputs     []gjson.Result // strings or arrays of token ids
	base64     bool
	dimensions int
}

// refusal is an answer of 400 or more that the provider gives of its own accord. Code and Param may be empty.
type refusal struct {
	status               int
	code, param, message string
}

func invalid(param, message string) *refusal {
	return &refusal{status: 400, param: param, message: message}
}

// parseRequest reads a body; the refusal is nil when the request is well-formed. It keeps parts of body.
func parseRequest(endpoint Endpoint, body []byte) (request, *refusal) {
	if !gjson.ValidBytes(body) {
		return request{}, invalid("", "the body is not valid JSON")
	}
	root := gjson.ParseBytes(body)
	if !root.IsObject() {
		return request{}, invalid("", "the body is not a JSON object")
	}
	req := request{model: root.Get("model").String(), maxTokens: -1, choices: 1, parallel: true}
	if root.Get("model").Type != gjson.String || req.model == "" {
		return req, invalid("model", "model is required")
	}
	switch endpoint {
	case EndpointChat:
		return req, req.parseChat(root)
	case EndpointResponses:
		return req, req.parseResponses(root)
	case EndpointMessages, EndpointCountTokens:
		return req, req.parseMessages(root, endpoint)
	case EndpointEmbeddings:
		return req, req.parseEmbeddings(root)
	}
	panic("BUG: no body for endpoint " + string(endpoint))
}

func (req *request) parseChat(root gjson.Result) *refusal {
	req.stream = root.Get("stream").Bool()
	if options := root.Get("stream_options"); options.IsObject() {
		if !req.stream {
			return invalid("stream_options", "stream_options is only allowed when stream is true")
		}
		req.includeUsage = options.Get("include_usage").Bool()
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		limit := root.Get(name)
		if limit.Type == gjson.Null {
			continue
		}
		if limit.Type != gjson.Number || limit.Int() < 1 {
			return invalid(name, name+" must be a positive integer")
		}
		req.maxTokens = limit.Int()
	}
	if n := root.Get("n"); n.Type != gjson.Null {
		if req.choices = n.Int(); req.choices < 1 || req.choices > choicesMax {
			return invalid("n", "n must be 1..128")
		}
	}
	for _, tool := range root.Get("tools").Array() {
		name := tool.Get("function.name").String()
		if name == "" {
			name = tool.Get("custom.name").String()
		}
		req.tools = append(req.tools, toolSpec{name: name, schema: tool.Get("function.parameters")})
	}
	switch choice := root.Get("tool_choice"); {
	case choice.String() == "none":
		req.toolMode = toolNever
	case choice.String() == "required":
		req.toolMode = toolAny
	case choice.IsObject():
		req.toolMode, req.toolName = toolNamed, choice.Get("function.name").String()
	}
	if p := root.Get("parallel_tool_calls"); p.Type == gjson.False {
		req.parallel = false
	}
	req.document = root.Get("response_format.json_schema.schema")
	req.logprobs, req.topLogprobs = root.Get("logprobs").Bool(), root.Get("top_logprobs").Int()
	messages := root.Get("messages")
	if !messages.IsArray() || len(messages.Array()) == 0 {
		return invalid("messages", "messages must be a non-empty array")
	}
	for _, message := range messages.Array() {
		text := req.countContent(message.Get("content"))
		req.prompt.messages++
		req.userTurn = false
		switch message.Get("role").String() {
		case "user":
			req.userTurn, req.control = true, text
		case "developer", "system", "assistant", "tool", "function":
		default:
			return invalid("messages", "unknown role")
		}
	}
	return nil
}

// countContent counts a string or an array of parts and returns its text.
func (req *request) countContent(content gjson.Result) string {
	if content.Type == gjson.String {
		req.prompt.textBytes += int64(len(content.String()))
		return content.String()
	}
	var text strings.Builder
	for _, part := range content.Array() {
		switch part.Get("type").String() {
		case "text":
			text.WriteString(part.Get("text").String())
		case "refusal":
			text.WriteString(part.Get("refusal").String())
		case "image_url", "input_audio", "file", "image", "document":
			req.prompt.media++
		}
	}
	req.prompt.textBytes += int64(text.Len())
	return text.String()
}

func (req *request) parseMessages(root gjson.Result, endpoint Endpoint) *refusal {
	req.stream = root.Get("stream").Bool()
	req.includeUsage = true
	limit := root.Get("max_tokens")
	switch {
	case endpoint == EndpointCountTokens:
	case limit.Type != gjson.Number || limit.Int() < 0:
		return invalid("max_tokens", "max_tokens: Field required")
	default:
		req.maxTokens = limit.Int()
	}
	for _, tool := range root.Get("tools").Array() {
		req.tools = append(req.tools, toolSpec{name: tool.Get("name").String(), schema: tool.Get("input_schema")})
	}
	choice := root.Get("tool_choice")
	switch choice.Get("type").String() {
	case "none":
		req.toolMode = toolNever
	case "any":
		req.toolMode = toolAny
	case "tool":
		req.toolMode, req.toolName = toolNamed, choice.Get("name").String()
	}
	req.parallel = !choice.Get("disable_parallel_tool_use").Bool()

	switch system := root.Get("system"); {
	case system.Type == gjson.String:
		req.prompt.messages++
		req.countContent(system)
	case system.IsArray():
		req.prompt.messages += int64(len(system.Array()))
		req.countContent(system)
	}
	req.document = root.Get("output_config.format.schema")
	messages := root.Get("messages")
	if !messages.IsArray() || len(messages.Array()) == 0 {
		return invalid("messages", "messages: at least one message is required")
	}
	for _, message := range messages.Array() {
		text, results := req.countBlocks(message.Get("content"))
		switch message.Get("role").String() {
		case "user":
			req.userTurn = results == 0
			// A message of tool results alone leaves the control text of the user's own message in force.
			if results == 0 || text != "" {
				req.control = text
			}
		case "assistant", "system":
			req.userTurn = false
		default:
			return invalid("messages", "messages: unknown role")
		}
	}
	return nil
}

// countBlocks counts one Anthropic message. text is what the sender wrote, without tool results.
func (req *request) countBlocks(content gjson.Result) (text string, results int) {
	others := 0
	for _, block := range content.Array() {
		if block.Get("type").String() != "tool_result" {
			others++
			continue
		}
		results++
		req.prompt.messages++
		req.countContent(block.Get("content"))
	}
	if others > 0 || results == 0 {
		req.prompt.messages++
	}
	return req.countContent(content), results
}

func (req *request) parseEmbeddings(root gjson.Result) *refusal {
	switch root.Get("encoding_format").String() {
	case "base64":
		req.embed.base64 = true
	case "", "float":
	default:
		return invalid("encoding_format", "encoding_format must be float or base64")
	}
	req.embed.dimensions = dimensionsDefault
	if d := root.Get("dimensions"); d.Type != gjson.Null {
		if d.Type != gjson.Number || d.Int() < 1 || d.Int() > dimensionsMax {
			return invalid("dimensions", "dimensions must be 1..4096")
		}
		req.embed.dimensions = int(d.Int())
	}
	input := root.Get("input")
	switch {
	case input.Type == gjson.String:
		req.embed.inputs = []gjson.Result{input}
	case input.IsArray() && input.Get("0").Type == gjson.Number:
		// A flat array of numbers is one input of token ids.
		req.embed.inputs = []gjson.Result{input}
	case input.IsArray():
		req.embed.inputs = input.Array()
	}
	if n := len(req.embed.inputs); n == 0 || n > embedInputsMax {
		return invalid("input", "input must hold 1..2048 entries")
	}
	for _, one := range req.embed.inputs {
		switch {
		case one.Type == gjson.String && one.String() != "":
			req.control = one.String()
		case one.IsArray() && len(one.Array()) > 0:
		default:
			return invalid("input", "input must not hold empty entries")
		}
	}
	return nil
}

// promptTokens is the prompt by the package's rule. Embedding inputs have no message overhead: ceil(bytes / 4) for
// each string, the length for each array of token ids.
func (req *request) promptTokens() int64 {
	if req.embed.inputs == nil {
		return req.prompt.tokens()
	}
	var sum int64
	for _, one := range req.embed.inputs {
		if one.IsArray() {
			sum += int64(len(one.Array()))
		} else {
			sum += ceilDiv(int64(len(one.String())), bytesPerToken)
		}
	}
	return sum
}
