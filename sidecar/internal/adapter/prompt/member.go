package prompt

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// member takes one top-level member that is not null.
func (p *reader) member(name string, v gjson.Result) *exchange.Failure {
	switch name {
	case "messages":
		return p.messages(v)
	case "model", "max_tokens", "max_completion_tokens", "stream", "stream_options":
		return nil // known from exchange.Request and the deployment
	case "user", "safety_identifier":
		if v.Type != gjson.String {
			return adapter.Invalid(name, name+" must be a string")
		}
		return nil // for the gateway's own limits; to providers at most its hash goes
	case "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention":
		return nil // hints and bookkeeping: the answer is the same without them
	case "temperature":
		return number(name, v, 0, 2, &p.Temperature)
	case "top_p":
		return number(name, v, 0, 1, &p.TopP)
	case "stop":
		return p.stop(v)
	case "tools":
		return p.tools(v)
	case "tool_choice":
		return p.choice(v)
	case "parallel_tool_calls":
		if !v.IsBool() {
			return adapter.Invalid(name, "parallel_tool_calls must be true or false")
		}
		p.Serial = !v.Bool()
		return nil
	case "response_format":
		return p.format(v)
	case "reasoning_effort":
		if v.Str != "none" && adapter.ThinkingTokens(v.Str) == 0 {
			return adapter.Invalid(name, "reasoning_effort must be none, minimal, low, medium, high, xhigh or max")
		}
		p.Effort = v.Str
		return nil
	case "service_tier":
		return p.tier(v)
	}
	p.Rest = append(p.Rest, Member{name, v})
	return rest(name, v)
}

// rest checks the members that few providers have.
func rest(name string, v gjson.Result) *exchange.Failure {
	var n Number
	switch name {
	case "n":
		if v.Type != gjson.Number {
			return adapter.Invalid(name, "n must be a number")
		}
	case "seed":
		if _, err := strconv.ParseInt(v.Raw, 10, 64); err != nil {
			return adapter.Invalid(name, "seed must be a whole number")
		}
	case "top_k":
		return number(name, v, 1, math.MaxInt32, &n)
	case "frequency_penalty", "presence_penalty":
		return number(name, v, -2, 2, &n)
	case "logprobs":
		if !v.IsBool() {
			return adapter.Invalid(name, "logprobs must be true or false")
		}
	case "top_logprobs":
		const most = 20
		if n, err := strconv.ParseInt(v.Raw, 10, 64); err != nil || n < 0 || n > most {
			return adapter.Invalid(name, "top_logprobs must be a whole number from 0 to 20")
		}
	}
	return nil
}

func number(name string, v gjson.Result, least, most float64, to *Number) *exchange.Failure {
	if v.Type != gjson.Number || !(v.Num >= least && v.Num <= most) {
		return adapter.Invalid(name, fmt.Sprintf("%s must be a number from %g to %g", name, least, most))
	}
	*to = Number{v.Raw, v.Num}
	return nil
}

func (p *reader) stop(v gjson.Result) *exchange.Failure {
	switch {
	case v.Type == gjson.String:
		p.Stop = []Text{text(v)}
		return nil
	case !v.IsArray():
		return adapter.Invalid("stop", "stop must be a string or an array of strings")
	}
	p.stops = true
	var f *exchange.Failure
	v.ForEach(func(_, s gjson.Result) bool {
		if s.Type != gjson.String {
			f = adapter.Invalid(p.StopAt(len(p.Stop)), "a stop sequence must be a string")
		}
		p.Stop = append(p.Stop, text(s))
		return f == nil
	})
	return f
}

func (p *reader) format(v gjson.Result) *exchange.Failure {
	const at = "response_format"
	if !v.IsObject() {
		return adapter.Invalid(at, "response_format must be an object")
	}
	switch v.Get("type").Str {
	case "text":
		return nil
	case "json_object":
		p.Format.JSON = true
		return nil
	case "json_schema":
	default:
		return adapter.Invalid(at+".type", "the type must be text, json_object or json_schema")
	}
	in := v.Get("json_schema")
	schema := in.Get("schema")
	if !schema.IsObject() {
		return adapter.Invalid(at+".json_schema.schema", "the schema must be an object")
	}
	p.Format.Schema = schema.Raw
	for _, m := range [...]struct {
		name string
		to   *Text
	}{{"name", &p.Format.Name}, {"description", &p.Format.Description}} {
		switch said := in.Get(m.name); said.Type {
		case gjson.Null:
		case gjson.String:
			*m.to = text(said)
		default:
			return adapter.Invalid(at+".json_schema."+m.name, m.name+" must be a string")
		}
	}
	return nil
}

func (p *reader) tier(v gjson.Result) *exchange.Failure {
	switch v.Str {
	case "auto", "default", "flex", "scale", "priority":
		p.Tier = v.Str
		return nil
	}
	return adapter.Invalid("service_tier", "service_tier must be auto, default, flex, scale or priority")
}
