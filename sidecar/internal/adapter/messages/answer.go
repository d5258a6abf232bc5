package messages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Face is an adapter as callers of the Messages API see it. It implements adapter.Face.
type Face struct{ adapter.Adapter }

var _ adapter.Face = Face{}

// Behind implements adapter.Face.
func (f Face) Behind() adapter.Adapter { return f.Adapter }

// Translate implements adapter.Face.
func (f Face) Translate(r *exchange.Request, s adapter.Stream) adapter.Stream {
	return &stream{Retold: adapter.Retold{Stream: s}, r: r}
}

// Stream implements adapter.Adapter.
func (f Face) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return f.Translate(r, f.Adapter.Stream(r, a))
}

// Request implements adapter.Adapter.
func (f Face) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	if f.marked(r, d) {
		own := *r
		var failure *exchange.Failure
		if own.Body, failure = inChat(r.Native, r.AllowDropped, true); failure != nil {
			return adapter.Call{}, failure
		}
		r = &own
	}
	call, failure := f.Adapter.Request(r, d, secret)
	return call, asSent(failure)
}

// marked reports whether the request says what is worth keeping in a cache to a deployment that has to be told. What has no
// mark is not translated twice.
func (f Face) marked(r *exchange.Request, d *exchange.Deployment) bool {
	m, ok := f.Adapter.(adapter.Marker)
	return ok && m.Marks(d) && bytes.Contains(r.Native, []byte(`"cache_control"`))
}

// Failure implements adapter.Adapter.
func (f Face) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	return asSent(f.Adapter.Failure(status, h, body))
}

// sentNames are the caller's names of chat's members.
var sentNames = map[string]string{
	"max_completion_tokens": "max_tokens", "stop": "stop_sequences", "reasoning_effort": "thinking",
	"response_format": "output_config.format", "user": "metadata.user_id", "safety_identifier": "metadata.user_id",
	"parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}

// Param is the caller's name of a member of a chat request.
func Param(chat string) string { return cmp.Or(sentNames[chat], chat) }

// asSent names the member at fault as the caller knows it. Messages are numbered otherwise there.
func asSent(f *exchange.Failure) *exchange.Failure {
	if f == nil || f.Param == "" {
		return f
	}
	name, rest, _ := strings.Cut(f.Param, ".")
	name, _, _ = strings.Cut(name, "[")
	sent := *f
	switch known := Param(name); {
	case known != name:
		sent.Param = known
	case name == "messages":
		sent.Param = name
	case name == "tools":
		sent.Param = strings.ReplaceAll(strings.TrimSuffix(f.Param, ".function"), ".function.parameters", ".input_schema")
		sent.Param = strings.ReplaceAll(sent.Param, ".function.", ".")
	case name == "tool_choice" && rest != "":
		sent.Param = name
	}
	return &sent
}

// Response implements adapter.Adapter.
func (f Face) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	answer, u, failure := f.Adapter.Response(r, body, a)
	if failure != nil {
		return nil, u, failure
	}
	in := gjson.ParseBytes(answer)
	choice := in.Get("choices.0")
	m := choice.Get("message")
	content := thinking(m)
	cited := citations(m)
	for _, name := range [...]string{"content", "refusal"} {
		if text := m.Get(name); text.Str != "" {
			block := object{"type": "text", "text": said(text)}
			if len(cited) > 0 {
				block["citations"], cited = cited, nil
			}
			content = append(content, block)
		}
	}
	for _, image := range m.Get("images").Array() {
		if block := drawn(image); block != nil {
			content = append(content, block)
		}
	}
	end := ending{sequences: stopSequences(r)}
	end.take(choice)
	for _, c := range adapter.Calls(in.Get("id").Str, m).Array() {
		if extra := c.Get("extra_content"); extra.IsObject() {
			content = append(content, kept(c.Get("id").Str, extra))
		}
		input, ok := input(c.Get("function.arguments"), end.cut())
		if !ok {
			return nil, u, adapter.InvalidAnswer("the arguments of the provider's tool call are no JSON object")
		}
		content = append(content, object{"type": "tool_use", "id": idOut(c.Get("id").Str), "name": c.Get("function.name").Str, "input": input})
		end.called = true
	}
	if m.Get("refusal").Str != "" {
		end.refused = true
	}
	out := end.members()
	for name, v := range map[string]any{
		"id": cmp.Or(in.Get("id").Str, r.ID), "type": "message", "role": "assistant", "model": r.Model, "content": content,
		"usage": usage(u, in.Get("service_tier").Str), "x_gateway": json.RawMessage(in.Get("x_gateway").Raw),
	} {
		out[name] = v
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, u, &exchange.Failure{Kind: exchange.FailInvalid, Message: "the provider's answer cannot be translated"}
	}
	return b, u, nil
}

// drawn is an image of the answer as a block of Anthropic's for images, nil when there is nothing in it. Claude draws none, so
// that its dialect has them in requests alone; clients leave out what they do not know.
func drawn(image gjson.Result) object {
	url := image.Get("image_url.url").Str
	media, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	switch {
	case url == "":
		return nil
	case !ok:
		return object{"type": "image", "source": object{"type": "url", "url": url}}
	}
	return object{"type": "image", "source": object{"type": "base64", "media_type": media, "data": data}}
}

// thinking is the blocks of what the model thought.
func thinking(m gjson.Result) []any {
	blocks := []any{}
	var others []gjson.Result
	for _, d := range m.Get("reasoning_details").Array() {
		switch kind := d.Get("type").Str; {
		case !isClaude(d):
			others = append(others, d)
		case kind == "reasoning.text":
			blocks = append(blocks, object{
				"type": "thinking", "thinking": said(d.Get("text")), "signature": cmp.Or(d.Get("signature").Str, adapter.ForeignMark),
			})
		case kind == "reasoning.encrypted":
			blocks = append(blocks, object{"type": "redacted_thinking", "data": d.Get("data").Str})
		}
	}
	if text := m.Get("reasoning_content"); len(others) > 0 || len(blocks) == 0 && text.Str != "" {
		blocks = append(blocks, object{
			"type": "thinking", "thinking": said(text), "signature": foreign{Details: joined(others)}.signature(),
		})
	}
	return blocks
}

// kept is the block that keeps what a vendor wants back with a call.
func kept(id string, extra gjson.Result) object {
	return object{"type": "redacted_thinking", "data": foreign{Call: id, Extra: json.RawMessage(extra.Raw)}.signature()}
}

// citations are what the text cites from the web.
func citations(m gjson.Result) (list []any) {
	for _, a := range m.Get("annotations").Array() {
		if c := citation(a); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// citation is an annotation as a citation, nil when it is none of the web. There is nothing to cite it by again.
func citation(a gjson.Result) object {
	if a.Get("type").Str != "url_citation" {
		return nil
	}
	c := a.Get("url_citation")
	return object{
		"type": "web_search_result_location", "url": c.Get("url").Str, "title": c.Get("title").Str, "cited_text": "",
		"encrypted_index": "",
	}
}

// invalidInput is the member that holds arguments that are none, as Anthropic's documents have it.
const invalidInput = "INVALID_JSON"

// input is the arguments of a call as the object that Anthropic's callers want. Nothing is invented: what is none is said
// as it stands where the answer was cut, and is false where the call is told to be whole.
func input(v gjson.Result, cut bool) (any, bool) {
	switch arguments := adapter.Said(v); {
	case isBlank(arguments):
		return object{}, true
	case isObject(arguments):
		return json.RawMessage(arguments), true
	}
	return object{invalidInput: said(v)}, cut
}

// ending is why an answer ended.
type ending struct {
	sequences []string // that the caller asked to stop at
	finish    string
	sequence  string
	refused   bool
	called    bool
	details   json.RawMessage
}

func stopSequences(r *exchange.Request) (list []string) {
	for _, s := range gjson.GetBytes(r.Native, "stop_sequences").Array() {
		list = append(list, s.Str)
	}
	return list
}

// take reads a choice. Servers that tell the sequence they stopped at have several names for it.
func (e *ending) take(choice gjson.Result) {
	if finish := choice.Get("finish_reason").Str; finish != "" {
		e.finish = finish
	}
	for _, name := range [...]string{"stop_sequence", "stop_reason", "matched_stop"} {
		if s := choice.Get(name).Str; s != "" && slices.Contains(e.sequences, s) {
			e.sequence = s
		}
	}
	if d := choice.Get("stop_details"); d.IsObject() {
		e.details = json.RawMessage(d.Raw)
	}
}

// cut reports whether the answer ended before it was whole.
func (e *ending) cut() bool { return e.finish == "length" || e.finish == "content_filter" }

func (e *ending) members() object {
	o := object{"stop_reason": "end_turn", "stop_sequence": nil}
	switch e.finish {
	case "length":
		o["stop_reason"] = "max_tokens"
	case "tool_calls", "function_call":
		o["stop_reason"] = "tool_use"
	case "content_filter":
		o["stop_reason"] = "refusal"
	default:
		switch {
		case e.refused:
			o["stop_reason"] = "refusal"
		case e.called: // in the old form
			o["stop_reason"] = "tool_use"
		case e.sequence != "":
			o["stop_reason"], o["stop_sequence"] = "stop_sequence", e.sequence
		}
	}
	if e.details != nil {
		o["stop_details"] = e.details
	}
	return o
}

// usage is in Anthropic's terms: input without what caches held.
func usage(u exchange.Usage, tier string) object {
	t := u.Tokens
	o := object{
		"input_tokens": t.Input + t.InputAudio + t.InputImage, "output_tokens": t.Completion(),
		"cache_read_input_tokens": t.CacheRead, "cache_creation_input_tokens": t.CacheWrite5m + t.CacheWrite1h,
	}
	if t.CacheWrite5m+t.CacheWrite1h > 0 {
		o["cache_creation"] = object{"ephemeral_5m_input_tokens": t.CacheWrite5m, "ephemeral_1h_input_tokens": t.CacheWrite1h}
	}
	if t.Reasoning > 0 {
		o["output_tokens_details"] = object{"thinking_tokens": t.Reasoning}
	}
	if t.WebSearches > 0 {
		o["server_tool_use"] = object{"web_search_requests": t.WebSearches}
	}
	if tier := cmp.Or(tier, u.ServiceTier); tier != "" {
		o["service_tier"] = cmp.Or(map[string]string{"default": "standard"}[tier], tier)
	}
	return o
}
