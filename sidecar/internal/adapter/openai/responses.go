package openai

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// native serves callers of the Responses API at providers that speak it themselves: OpenAI and Azure. Bodies pass byte for
// byte, the model's name aside; what is read of them is what must be counted, and x_gateway is added to the end of an
// answer. It implements adapter.Adapter and adapter.Replayer.
type native struct{ *Adapter }

var _ interface {
	adapter.Adapter
	adapter.Replayer
} = native{}

// Speak implements adapter.Speaker.
func (a *Adapter) Speak(dialect exchange.Dialect, d *exchange.Deployment) adapter.Adapter {
	switch {
	case dialect != exchange.ResponsesDialect:
	case d.Provider == "openai", d.Provider == azureProvider && azureResponds(d):
		return native{a}
	}
	return nil
}

// Request implements adapter.Adapter. A caller that named no cap is given the alias's, as in chat, and reasoning that
// another provider's model did at this gateway is left out: OpenAI refuses what it cannot decrypt.
func (native) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	v := whole(r.Native)
	if !isObject(r.Native, v) {
		return adapter.Call{}, &exchange.Failure{Kind: exchange.FailRequest, Code: "invalid_json", Message: "the body is no JSON object"}
	}
	call := adapter.Call{Path: "/responses", Header: []adapter.Field{{Name: "Content-Type", Value: "application/json"}}}
	switch {
	case d.Provider == azureProvider: // its credentials are put there later
		call.Path = azureResponses(d)
	case len(secret) > 0:
		call.Header = append(call.Header, adapter.Field{Name: "Authorization", Value: "Bearer " + string(secret)})
	}
	var e edits
	var model, limit span
	for c := enter(r.Native, v); c.next(); {
		switch string(c.name()) {
		case "model":
			model = c.value
			e.set(c.value, string(quote(d.Model)))
		case "max_output_tokens":
			limit = c.value
		case "input":
			unsealed(&e, r.Native, c.value)
		}
	}
	if !model.is() {
		return adapter.Call{}, &exchange.Failure{Kind: exchange.FailRequest, Param: "model", Message: "model is required"}
	}
	if n := r.DefaultOutput; r.MaxOutput == 0 && n > 0 {
		switch said := strconv.FormatInt(n, 10); {
		case limit.is():
			e.set(limit, said) // null
		default:
			e.back(v, `,"max_output_tokens":`, said)
		}
	}
	call.Body = e.apply(make([]byte, 0, len(r.Native)+len(e.text)), r.Native, v)
	return call, nil
}

// unsealed drops the reasoning items of the gateway's own making, and the signatures of another provider's model from
// the ids of its calls, which OpenAI bounds at 64 bytes.
func unsealed(e *edits, doc []byte, input span) {
	if !isArray(doc, input) {
		return
	}
	sealed := bytes.Contains(doc[input.from:input.to], []byte(adapter.ForeignMark))
	signed := bytes.Contains(doc[input.from:input.to], []byte(adapter.SignatureMark))
	if !sealed && !signed {
		return
	}
	kept := false
	for c := enter(doc, input); c.next(); {
		if strings.HasPrefix(text(doc, find(doc, c.value, "encrypted_content")), adapter.ForeignMark) {
			e.drop(&c, kept)
			continue
		}
		kept = true
		id := find(doc, c.value, "call_id")
		if said := text(doc, id); signed && strings.Contains(said, adapter.SignatureMark) {
			e.set(id, string(quote(adapter.FitCallID(said))))
		}
	}
}

// Response implements adapter.Adapter.
func (native) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	none := exchange.Usage{Source: exchange.FromEstimate}
	if !adapter.Valid(body) {
		f := invalid("the provider's answer is not JSON")
		f.Type, f.Code = "upstream_invalid_response", "invalid_content_type"
		return nil, none, f
	}
	v := whole(body)
	doc := gjson.ParseBytes(body)
	u := responseUsage(doc)
	if f := responseFault(doc); f != nil {
		return nil, u, f
	}
	if !doc.Get("output").IsArray() {
		return nil, u, invalid("the provider's answer has no output")
	}
	own, u := a(nil, u, adapter.Delivered{Bytes: spokenIn(doc.Get("output"))})
	var e edits
	signResponse(&e, body, v, string(quote(r.Model)), own)
	return e.apply(make([]byte, 0, len(body)+len(e.text)), body, v), u, nil
}

// signResponse renames the model of a response object, and says what it cost if that is known.
func signResponse(e *edits, doc []byte, v span, model string, own []byte) {
	kept := false
	for c := enter(doc, v); c.next(); {
		switch string(c.name()) {
		case "model":
			e.set(c.value, model)
		case "x_gateway": // of a gateway behind this one
			e.drop(&c, kept)
			continue
		}
		kept = true
	}
	switch {
	case own == nil || !isObject(doc, v):
	case kept:
		e.back(v, `,"x_gateway":`, string(own))
	default:
		e.back(v, `"x_gateway":`, string(own))
	}
}

// Replay implements adapter.Replayer.
func (native) Replay(_ *exchange.Request, body []byte, u exchange.Usage) adapter.Stream {
	return responses.NewReplay(body, u, spokenIn(gjson.GetBytes(body, "output")))
}

// responseUsage is what a response object says was used, and how.
func responseUsage(doc gjson.Result) exchange.Usage {
	out := exchange.Usage{Source: exchange.FromEstimate, ServiceTier: tierOf(doc.Get("service_tier"))}
	u := doc.Get("usage")
	input, ok := count(u, "input_tokens")
	output, both := count(u, "output_tokens")
	if !ok || !both {
		return out
	}
	out.Source, out.Raw = exchange.FromProvider, asStated(u.Raw)
	out.Answer = strings.Clone(doc.Get("id").Str) // it must not hold the whole answer
	read := min(first(u, "input_tokens_details.cached_tokens"), input)
	written := min(first(u, "input_tokens_details.cache_write_tokens"), input-read)
	heard := min(first(u, "input_tokens_details.audio_tokens"), input-read-written)
	spoken := min(first(u, "output_tokens_details.audio_tokens"), output)
	out.Tokens = exchange.Tokens{
		Input: input - read - written - heard, CacheRead: read, CacheWrite5m: written, InputAudio: heard,
		Output: output - spoken, OutputAudio: spoken,
		Reasoning: min(first(u, "output_tokens_details.reasoning_tokens"), output-spoken),
	}
	doc.Get("output").ForEach(func(_, item gjson.Result) bool {
		if action := item.Get("action.type"); item.Get("type").Str == "web_search_call" && (!action.Exists() || action.Str == "search") {
			out.WebSearches++
		}
		return true
	})
	return out
}

// responseFault is the failure that a response object reports, or an error event, which is flat or not.
func responseFault(doc gjson.Result) *exchange.Failure {
	e := doc.Get("error")
	switch {
	case e.IsObject():
	case doc.Get("type").Str == "error":
		e = doc
	case doc.Get("status").Str == "failed", e.Exists() && truthy([]byte(e.Raw)):
	default:
		return nil
	}
	f := failureOf(0, noHeader, []byte(doc.Raw))
	code := e.Get("code").String()
	if f.Kind == exchange.FailNone {
		f.Kind = kindOfResponse(code, f)
	}
	if f.Type = clip(code); f.Type == "" {
		f.Type = "server_error"
	}
	return f
}

// kindOfResponse classifies by the codes that only the Responses API has.
func kindOfResponse(code string, f *exchange.Failure) exchange.FailureKind {
	switch {
	case code == "bio_policy", code == "cyber_policy", code == "image_content_policy_violation":
		return exchange.FailPolicy
	case strings.HasPrefix(code, "invalid_"), strings.HasPrefix(code, "image_"), strings.HasSuffix(code, "_image"),
		strings.HasSuffix(code, "_image_file"), code == "previous_response_not_found":
		return exchange.FailRequest
	}
	return kindOfType(code, f)
}

// spokenIn is how many bytes of text, arguments and reasoning the items of an output hold.
func spokenIn(output gjson.Result) (n int64) {
	output.ForEach(func(_, item gjson.Result) bool {
		n += spokenItem(item)
		return true
	})
	return n
}

func spokenItem(item gjson.Result) (n int64) {
	for _, name := range [...]string{"name", "arguments", "input", "code"} {
		if v := item.Get(name); v.Type == gjson.String {
			n += int64(len(v.Str))
		}
	}
	for _, list := range [...]string{"content", "summary"} {
		item.Get(list).ForEach(func(_, p gjson.Result) bool {
			n += int64(len(p.Get("text").Str) + len(p.Get("refusal").Str))
			return true
		})
	}
	return n
}
