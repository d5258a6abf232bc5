package anthropic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// translation is a Messages request in the making. The parts come in any order and are put together at the end.
type translation struct {
	r           *exchange.Request
	host        *Host
	model       string
	base        string // the model that decides what can be asked for
	strict      bool   // the API version has no temperature and no top_p
	limit       int64  // max_tokens, 0 when nobody has named one
	system      []byte // text blocks, comma separated
	turns       adapter.Turns
	params      []byte // members that go out as they are read, each with a leading comma
	tools       toolbox
	format      string // output_config.format, "" for none
	effort      string // output_config.effort, "" for none
	thinking    string // "" to leave it to the model
	thinks      bool   // thinking is on
	temperature string // as written; "" for the default
	topP        string
	messageSeen bool
}

// translate turns the caller's body, which is a valid JSON object, into the provider's.
func (h *Host) translate(r *exchange.Request, d *exchange.Deployment) ([]byte, *exchange.Failure) {
	t := translation{r: r, host: h, model: d.Model, base: d.Base(), strict: h.Version == "" && d.APIVersion >= versionStrict, limit: r.MaxOutput}
	if t.limit == 0 {
		t.limit = r.DefaultOutput
	}
	t.turns = adapter.NewTurns(len(r.Body))
	var f *exchange.Failure
	gjson.ParseBytes(r.Body).ForEach(func(k, v gjson.Result) bool {
		if v.Type == gjson.Null && k.Str != "messages" {
			return true // every optional member may be null, which means absent
		}
		if f = t.member(k.Str, v); f != nil && f.Kind == exchange.FailUnsupported && t.mayDrop(k.Str) {
			f = nil
		}
		return f == nil
	})
	if f != nil {
		return nil, f
	}
	if !t.messageSeen {
		return nil, invalid("messages", "messages is required")
	}
	if !t.turns.Any() {
		return nil, invalid("messages", "messages must hold some content besides system texts")
	}
	if f := t.reconcile(); f != nil {
		return nil, f
	}
	choice, f := t.tools.finish()
	if f != nil {
		return nil, f
	}
	return t.assemble(choice), nil
}

// mayDrop reports whether the alias lets a member go that cannot be honoured. Without its messages a request is none.
func (t *translation) mayDrop(name string) bool {
	return name != "messages" && slices.Contains(t.r.AllowDropped, name)
}

func (t *translation) assemble(choice string) []byte {
	if t.limit == 0 {
		t.limit = outputDefault
	}
	turns := t.turns.Close()
	b := make([]byte, 0, len(turns)+len(t.system)+len(t.params)+t.tools.size()+len(t.format)+512)
	b = t.host.appendVersion(append(b, '{'), "")
	if t.host.namesModel(exchange.Chat) {
		b = append(appendString(append(b, `"model":`...), t.model), ',')
	}
	b = strconv.AppendInt(append(b, `"max_tokens":`...), t.limit, 10)
	if len(t.system) > 0 {
		b = append(append(append(b, `,"system":[`...), t.system...), ']')
	}
	b = append(append(append(b, `,"messages":[`...), turns...), ']')
	b = t.tools.append(b)
	b = append(b, choice...)
	for _, m := range [...]struct{ name, value string }{
		{"temperature", t.temperature}, {"top_p", t.topP}, {"thinking", t.thinking},
	} {
		if m.value != "" {
			b = append(b, `,"`+m.name+`":`+m.value...)
		}
	}
	b = append(b, t.params...)
	switch {
	case t.format != "" && t.effort != "":
		b = append(b, `,"output_config":{"effort":"`+t.effort+`","format":`+t.format+`}`...)
	case t.format != "":
		b = append(b, `,"output_config":{"format":`+t.format+`}`...)
	case t.effort != "":
		b = append(b, `,"output_config":{"effort":"`+t.effort+`"}`...)
	}
	if t.r.UserSHA256 != "" {
		b = append(appendString(append(b, `,"metadata":{"user_id":`...), t.r.UserSHA256), '}')
	}
	if t.r.Stream && !t.host.StreamByPath {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}')
}

// member takes one top-level member that is not null.
func (t *translation) member(name string, v gjson.Result) *exchange.Failure {
	switch name {
	case "messages":
		t.messageSeen = true
		return t.messages(v)
	case "model", "max_tokens", "max_completion_tokens", "stream", "stream_options":
		return nil // known from exchange.Request and the deployment
	case "user", "safety_identifier":
		if v.Type != gjson.String {
			return invalid(name, name+" must be a string")
		}
		return nil // only the hash goes out, see exchange.Request.UserSHA256
	case "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention":
		return nil // hints and bookkeeping: the answer is the same without them
	case "temperature":
		return t.sampling(name, v, 2, &t.temperature)
	case "top_p":
		return t.sampling(name, v, 1, &t.topP)
	case "stop":
		return t.stop(v)
	case "tools":
		return t.tools.define(v)
	case "tool_choice":
		return t.tools.choose(v)
	case "parallel_tool_calls":
		if !v.IsBool() {
			return invalid(name, "parallel_tool_calls must be true or false")
		}
		t.tools.serial = !v.Bool()
		return nil
	case "response_format":
		return t.responseFormat(v)
	case "reasoning_effort":
		return t.reasoningEffort(v)
	case "service_tier":
		return t.serviceTier(v)
	}
	return unlessHarmless(name, v)
}

// unlessHarmless refuses what Anthropic has no counterpart for, except for values that ask for nothing. Members
// nobody knows are refused too: to drop one silently would change what the caller asked for.
func unlessHarmless(name string, v gjson.Result) *exchange.Failure {
	if name == "n" && v.Type != gjson.Number {
		return invalid(name, "n must be a number")
	}
	if adapter.Harmless(name, v) {
		return nil
	}
	return unsupported(name, fmt.Sprintf("Anthropic models cannot honour %s", printable(name)))
}

// printable keeps a member's name, which is the caller's text, short.
func printable(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}

func (t *translation) stop(v gjson.Result) *exchange.Failure {
	var list []gjson.Result
	switch {
	case v.Type == gjson.String:
		list = []gjson.Result{v}
	case v.IsArray():
		list = v.Array()
	default:
		return invalid("stop", "stop must be a string or an array of strings")
	}
	for i, s := range list {
		param := "stop"
		if v.IsArray() {
			param = fmt.Sprintf("stop[%d]", i)
		}
		if s.Type != gjson.String {
			return invalid(param, "a stop sequence must be a string")
		}
		if strings.TrimSpace(s.Str) == "" {
			return unsupported(param, "Anthropic takes no stop sequence that is only white space")
		}
		if i == 0 {
			t.params = append(t.params, `,"stop_sequences":[`...)
		} else {
			t.params = append(t.params, ',')
		}
		t.params = append(t.params, s.Raw...)
	}
	if len(list) > 0 {
		t.params = append(t.params, ']')
	}
	return nil
}

func (t *translation) responseFormat(v gjson.Result) *exchange.Failure {
	if !v.IsObject() {
		return invalid("response_format", "response_format must be an object")
	}
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		return unsupported("response_format", "Anthropic has no json_object format: use json_schema")
	case "json_schema":
		schema := v.Get("json_schema.schema")
		if !schema.IsObject() {
			return invalid("response_format.json_schema.schema", "the schema must be an object")
		}
		if !knowsFormat(t.base) {
			return unsupported("response_format", "this model cannot be held to a schema")
		}
		t.format = `{"type":"json_schema","schema":` + schema.Raw + `}`
		return nil
	}
	return invalid("response_format.type", "the type must be text, json_object or json_schema")
}

func (t *translation) serviceTier(v gjson.Result) *exchange.Failure {
	tier := ""
	switch v.Str {
	case "auto":
		tier = "auto"
	case "default":
		tier = "standard_only"
	case "flex", "priority", "scale":
		return unsupported("service_tier", "Anthropic has only the service tiers auto and default")
	default:
		return invalid("service_tier", "service_tier must be auto, default, flex, scale or priority")
	}
	t.params = append(t.params, `,"service_tier":"`+tier+`"`...)
	return nil
}
