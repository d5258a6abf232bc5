package responses

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// head is what all response objects of one answer share.
type head struct {
	id      string // hex, of the answer and its items alike
	created int64
	model   string
	echo    object // of the request
}

// echoes are the members of a request that come back with the answer, and what stands for them when they were not sent.
var echoes = map[string]any{
	"instructions": nil, "max_output_tokens": nil, "metadata": object{}, "parallel_tool_calls": true, "temperature": nil,
	"text": object{"format": object{"type": "text"}}, "tool_choice": "auto", "tools": []any{}, "top_p": nil,
	"reasoning": object{"effort": nil, "summary": nil}, "truncation": "disabled", "user": nil, "safety_identifier": nil,
	"prompt_cache_key": nil, "prompt_cache_retention": nil, "max_tool_calls": nil, "top_logprobs": 0,
}

// newHead reads the request, whose body is gone once it has been sent.
func newHead(r *exchange.Request) head {
	h := head{created: r.CreatedUnix, model: r.Model, echo: object{}}
	for name, instead := range echoes {
		h.echo[name] = instead
	}
	gjson.ParseBytes(r.Native).ForEach(func(k, v gjson.Result) bool {
		if _, known := echoes[k.Str]; known && given(v) && len(v.Raw) <= echoMax {
			h.echo[k.Str] = json.RawMessage(strings.Clone(v.Raw))
		}
		return true
	})
	return h
}

// name makes the ids of an answer: unique like those of the chat answer behind it, in the form that OpenAI takes back.
func (h *head) name(r *exchange.Request, chat string) {
	sum := sha256.Sum256([]byte(r.ID + "/" + chat))
	h.id = hex.EncodeToString(sum[:16])
}

// object is the response in a state.
func (h *head) object(status string, output []json.RawMessage) object {
	if output == nil {
		output = []json.RawMessage{}
	}
	o := object{
		"id": "resp_" + h.id, "object": "response", "created_at": h.created, "status": status, "model": h.model,
		"output": output, "error": nil, "incomplete_details": nil, "usage": nil, "store": false, "background": false,
		"previous_response_id": nil, "completed_at": nil, "service_tier": nil,
	}
	for k, v := range h.echo {
		o[k] = v
	}
	return o
}

// usage is in the words of the Responses API.
func usage(t exchange.Tokens) object {
	return object{
		"input_tokens":         t.Prompt(),
		"input_tokens_details": object{"cached_tokens": t.CacheRead, "cache_write_tokens": t.CacheWrite5m + t.CacheWrite1h},
		"output_tokens":        t.Completion(), "output_tokens_details": object{"reasoning_tokens": t.Reasoning},
		"total_tokens": t.Total(),
	}
}
