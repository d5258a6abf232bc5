package gemini

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// translation is a request for generateContent in the making. The parts come in any order and are put together at the
// end.
type translation struct {
	r      *exchange.Request
	vertex bool
	draws  bool
	how    mind
	swift  bool // a Flash model
	system []byte
	turns  turns
	config []byte // members of generationConfig, each with a leading comma
	params []byte // further members of the request, each with a leading comma
	header []adapter.Field
	tools  toolbox

	messageSeen bool
}

func newTranslation(r *exchange.Request, d *exchange.Deployment, vertex bool) *translation {
	t := &translation{r: r, vertex: vertex, draws: draws(d.Base()), how: mindOf(d.Base()), swift: isSwift(d.Base())}
	t.turns.init(t.how == mindLevel, vertex, len(r.Body))
	return t
}

// translate turns the caller's body, which is a valid JSON object, into the provider's.
func (t *translation) translate() ([]byte, *exchange.Failure) {
	var f *exchange.Failure
	gjson.ParseBytes(t.r.Body).ForEach(func(k, v gjson.Result) bool {
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
	contents := t.turns.close()
	if len(contents) == 0 {
		return nil, invalid("messages", "messages must hold some content besides system texts")
	}
	choice, f := t.tools.finish(t.mayDrop("parallel_tool_calls"))
	if f != nil {
		return nil, f
	}
	return t.assemble(contents, choice), nil
}

// mayDrop reports whether the alias lets a member go that cannot be honoured. Without its messages a request is none.
func (t *translation) mayDrop(name string) bool {
	return name != "messages" && slices.Contains(t.r.AllowDropped, name)
}

func (t *translation) assemble(contents []byte, choice string) []byte {
	limit := t.r.MaxOutput
	if limit == 0 {
		limit = t.r.DefaultOutput
	}
	if limit > 0 {
		t.set("maxOutputTokens", strconv.FormatInt(limit, 10))
	}
	b := make([]byte, 0, len(contents)+len(t.system)+len(t.config)+len(t.params)+t.tools.size()+256)
	b = append(append(append(b, `{"contents":[`...), contents...), ']')
	if len(t.system) > 0 {
		b = append(append(append(b, `,"systemInstruction":{"parts":[`...), t.system...), "]}"...)
	}
	b = append(t.tools.append(b), choice...)
	if len(t.config) > 0 {
		b = append(append(append(b, `,"generationConfig":{`...), t.config[1:]...), '}')
	}
	return append(append(b, t.params...), '}')
}

// set adds a member to generationConfig.
func (t *translation) set(name, value string) {
	t.config = append(t.config, `,"`+name+`":`+value...)
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
		return nil // for the gateway's own limits
	case "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention":
		return nil // hints and bookkeeping: the answer is the same without them
	case "temperature":
		return t.number(name, "temperature", v, 0, 2)
	case "top_p":
		return t.number(name, "topP", v, 0, 1)
	case "top_k":
		return t.number(name, "topK", v, 1, math.MaxInt32)
	case "frequency_penalty":
		return t.number(name, "frequencyPenalty", v, -2, 2)
	case "presence_penalty":
		return t.number(name, "presencePenalty", v, -2, 2)
	case "n":
		if v.Type != gjson.Number {
			return invalid(name, "n must be a number")
		}
		if t.r.Choices > 1 {
			t.set("candidateCount", strconv.FormatInt(t.r.Choices, 10))
		}
		return nil
	case "seed":
		return t.seed(v)
	case "logprobs":
		return t.logprobs(v)
	case "top_logprobs":
		return t.topLogprobs(v)
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
	case "modalities":
		return t.modalities(v)
	case "service_tier":
		return t.serviceTier(v)
	}
	if adapter.Harmless(name, v) {
		return nil
	}
	// Members nobody knows are refused too: to drop one silently would change what the caller asked for.
	return unsupported(name, fmt.Sprintf("Gemini models cannot honour %s", printable(name)))
}

func (t *translation) number(name, theirs string, v gjson.Result, least, most float64) *exchange.Failure {
	if v.Type != gjson.Number || !(v.Num >= least && v.Num <= most) {
		return invalid(name, fmt.Sprintf("%s must be a number from %g to %g", name, least, most))
	}
	t.set(theirs, v.Raw)
	return nil
}

// seed passes on what fits: the provider's number has 32 bits.
func (t *translation) seed(v gjson.Result) *exchange.Failure {
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	switch {
	case v.Type != gjson.Number || err != nil:
		return invalid("seed", "seed must be a whole number")
	case n < math.MinInt32 || n > math.MaxInt32:
		return unsupported("seed", "Gemini takes only seeds of 32 bits")
	}
	t.set("seed", v.Raw)
	return nil
}

func (t *translation) logprobs(v gjson.Result) *exchange.Failure {
	if !v.IsBool() {
		return invalid("logprobs", "logprobs must be true or false")
	}
	if v.Bool() {
		t.set("responseLogprobs", "true")
	}
	return nil
}

func (t *translation) topLogprobs(v gjson.Result) *exchange.Failure {
	const most = 20
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	if v.Type != gjson.Number || err != nil || n < 0 || n > most {
		return invalid("top_logprobs", "top_logprobs must be a whole number from 0 to 20")
	}
	if n > 0 {
		t.set("logprobs", v.Raw)
	}
	return nil
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
	var b []byte
	for i, s := range list {
		if s.Type != gjson.String || s.Str == "" {
			return invalid(fmt.Sprintf("stop[%d]", i), "a stop sequence must be a string that is not empty")
		}
		b = append(appendComma(b), s.Raw...)
	}
	if len(b) > 0 {
		t.set("stopSequences", "["+string(b)+"]")
	}
	return nil
}

func (t *translation) responseFormat(v gjson.Result) *exchange.Failure {
	if !v.IsObject() {
		return invalid("response_format", "response_format must be an object")
	}
	switch v.Get("type").Str {
	case "text":
	case "json_object":
		t.set("responseMimeType", `"application/json"`)
	case "json_schema":
		schema := v.Get("json_schema.schema")
		if !schema.IsObject() {
			return invalid("response_format.json_schema.schema", "the schema must be an object")
		}
		t.set("responseMimeType", `"application/json"`)
		t.set("responseJsonSchema", schema.Raw)
	default:
		return invalid("response_format.type", "the type must be text, json_object or json_schema")
	}
	return nil
}

// serviceTier asks for a tier: the Gemini API is told in the body, Vertex AI in the head.
func (t *translation) serviceTier(v gjson.Result) *exchange.Failure {
	switch tier := v.Str; {
	case tier == "auto", tier == "default" && t.vertex:
	case tier == "default":
		t.params = append(t.params, `,"serviceTier":"standard"`...)
	case (tier == "flex" || tier == "priority") && t.vertex:
		t.header = append(t.header, adapter.Field{Name: "x-vertex-ai-llm-shared-request-type", Value: tier})
	case tier == "flex", tier == "priority":
		t.params = append(t.params, `,"serviceTier":"`+tier+`"`...)
	case tier == "scale":
		return unsupported("service_tier", "Gemini has only the service tiers auto, default, flex and priority")
	default:
		return invalid("service_tier", "service_tier must be auto, default, flex, scale or priority")
	}
	return nil
}
