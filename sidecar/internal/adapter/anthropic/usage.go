package anthropic

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// counts is one usage object, field by field. A stream states some fields more than once; the last value that is not
// null counts, since each is the total so far. So a zero behind more than that says nothing: some servers end with it.
type counts struct {
	input, read, output  int64
	written              int64 // to the cache, whatever the duration
	written5m, written1h int64
	thinking             int64
	searches             int64
	tier, speed, geo     string
	raw                  []byte // members of the usage object that are not null, see merge
	hasOutput, stated    bool
	passes               []counts // iterations, when the provider ran the model more than once
	isPass               bool     // passes have no passes
}

// update takes what u states.
func (c *counts) update(u gjson.Result) {
	if !u.IsObject() {
		return
	}
	set := func(to *int64, v gjson.Result) bool {
		n, ok := adapter.Count(v)
		if !ok {
			return false
		}
		if n > 0 {
			*to = n
		}
		c.stated = true
		return true
	}
	if !c.isPass {
		c.raw = merge(c.raw, u)
	}
	u.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "server_tool_use":
			set(&c.searches, v.Get("web_search_requests"))
		case "service_tier":
			if v.Type == gjson.String {
				c.tier = adapter.Trimmed(v.Str)
			}
		case "speed":
			if v.Type == gjson.String {
				c.speed = adapter.Trimmed(v.Str)
			}
		case "inference_geo":
			if v.Type == gjson.String {
				c.geo = adapter.Trimmed(v.Str)
			}
		case "input_tokens":
			set(&c.input, v)
		case "cache_read_input_tokens":
			set(&c.read, v)
		case "cache_creation_input_tokens":
			set(&c.written, v)
		case "cache_creation":
			set(&c.written5m, v.Get("ephemeral_5m_input_tokens"))
			set(&c.written1h, v.Get("ephemeral_1h_input_tokens"))
		case "output_tokens":
			c.hasOutput = set(&c.output, v) || c.hasOutput
		case "output_tokens_details":
			set(&c.thinking, v.Get("thinking_tokens"))
		case "iterations":
			if !c.isPass {
				c.iterations(v)
			}
		}
		return true
	})
}

// last takes the usage of a message_delta, and reports whether it states the output, of which message_start had a
// beginning only.
func (c *counts) last(u gjson.Result) bool {
	c.update(u)
	_, ok := adapter.Count(u.Get("output_tokens"))
	return ok
}

// iterations takes the passes of one answer. The totals beside them leave some passes out.
func (c *counts) iterations(v gjson.Result) {
	if !v.IsArray() {
		return
	}
	const passesMax = 1024
	c.passes = c.passes[:0]
	v.ForEach(func(_, pass gjson.Result) bool {
		p := counts{isPass: true}
		p.update(pass)
		c.passes = append(c.passes, p)
		return len(c.passes) < passesMax
	})
}

// rawMax bounds the usage object that is kept as it stood, in bytes.
const rawMax = 4 << 10

// merge puts the members of a usage object that are not null over those of the ones before it: a stream states its
// usage in parts.
func merge(all []byte, u gjson.Result) []byte {
	switch {
	case len(all) == 0:
		return []byte(u.Raw)
	case len(all) > rawMax:
		return all // it is not kept
	}
	out := []byte{'{'}
	add := func(k, v gjson.Result) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k.Raw...), ':'), v.Raw...)
	}
	gjson.ParseBytes(all).ForEach(func(k, v gjson.Result) bool {
		if newer := u.Get(gjson.Escape(k.Str)); newer.Type != gjson.Null {
			v = newer
		}
		add(k, v)
		return true
	})
	before := gjson.ParseBytes(all)
	u.ForEach(func(k, v gjson.Result) bool {
		if !before.Get(gjson.Escape(k.Str)).Exists() {
			add(k, v)
		}
		return true
	})
	return append(out, '}')
}

// usage is what the provider stated.
func (c *counts) usage() exchange.Usage {
	u := exchange.Usage{Tokens: c.tokens(), Source: exchange.FromProvider, ServiceTier: c.tier, Speed: c.speed, Geo: c.geo}
	if len(c.raw) <= rawMax {
		u.Raw = string(c.raw)
	}
	return u
}

// tokens is what is to be paid.
func (c *counts) tokens() exchange.Tokens {
	t := c.own()
	var sum exchange.Tokens
	for i := range c.passes {
		sum = sum.Add(c.passes[i].own())
	}
	if sum.Prompt() > t.Prompt() {
		t.Input, t.CacheRead, t.CacheWrite5m, t.CacheWrite1h = sum.Input, sum.CacheRead, sum.CacheWrite5m, sum.CacheWrite1h
	}
	t.Output, t.Reasoning = max(t.Output, sum.Output), max(t.Reasoning, sum.Reasoning)
	return t
}

// own is the tokens without the passes. Cache writes whose duration is not stated are taken for the usual 5 minutes.
func (c *counts) own() exchange.Tokens {
	return exchange.Tokens{
		Input:        c.input,
		CacheRead:    c.read,
		CacheWrite5m: max(c.written-c.written1h, c.written5m),
		CacheWrite1h: c.written1h,
		Output:       c.output,
		Reasoning:    min(c.thinking, c.output),
		WebSearches:  c.searches,
	}
}

// finishReason is the caller's word for the provider's stop reason. Unknown ones are an ordinary stop. Servers that only
// speak like Anthropic's may call the end of a turn with calls an ordinary one.
func finishReason(stop string, calls int) string {
	switch stop {
	case "", "end_turn":
		if calls > 0 {
			return "tool_calls"
		}
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "tool_use":
		return "tool_calls"
	case "refusal":
		return "content_filter"
	}
	return "stop"
}
