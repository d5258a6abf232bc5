package openai

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// usageOf reads usage from wherever servers put it in a complete answer. Without any, the source is an estimate and
// there are no tokens.
func usageOf(doc gjson.Result, r *exchange.Request) exchange.Usage {
	for _, at := range [...]string{"usage", "x_groq.usage"} {
		raw := doc.Get(at)
		if u, ok := stated(raw, r); ok {
			u.Raw = asStated(raw.Raw)
			u.ServiceTier = tierOf(doc.Get("service_tier"))
			return u
		}
	}
	return exchange.Usage{
		Source: exchange.FromEstimate, ServiceTier: tierOf(doc.Get("service_tier")),
		Tokens: exchange.Tokens{WebSearches: searches(gjson.Result{}, r)},
	}
}

// searches is how often the provider searched. OpenAI's models that take web_search_options search for every answer,
// are paid for it, and do not say so (OpenAI docs: Web search; Pricing). OpenRouter counts.
func searches(u gjson.Result, r *exchange.Request) int64 {
	if n, told := count(u, "server_tool_use.web_search_requests"); told {
		return n
	}
	if r.SearchesAlways {
		return 1
	}
	return 0
}

// The longest of what a provider says of its usage that is kept, in bytes.
const (
	rawMax  = 4 << 10
	tierMax = 64
)

// asStated is a usage object as it stood, empty when it is too long to be kept.
func asStated(raw string) string {
	if len(raw) > rawMax {
		return ""
	}
	return strings.Clone(raw) // it must not hold the whole answer
}

// tierOf is the tier that a provider says it served a request in.
func tierOf(v gjson.Result) string {
	if v.Type != gjson.String || len(v.Str) > tierMax {
		return ""
	}
	return strings.Clone(v.Str)
}

// stated reads a usage object. It is the provider's word when it has a number for both directions; an explicit zero is
// one, an empty object is none.
func stated(u gjson.Result, r *exchange.Request) (exchange.Usage, bool) {
	op := r.Operation
	prompt, ok := count(u, "prompt_tokens")
	completion, hasCompletion := count(u, "completion_tokens")
	total, hasTotal := count(u, "total_tokens")
	if !ok && op == exchange.Embeddings {
		prompt, ok = total, hasTotal
	}
	if !ok || op == exchange.Chat && !hasCompletion && !hasTotal {
		return exchange.Usage{}, false
	}
	read := first(u, "prompt_tokens_details.cached_tokens", "prompt_token_details.cached_tokens",
		"prompt_cache_hit_tokens" /* DeepSeek */, "num_cached_tokens" /* Mistral */)
	reasoning := first(u, "completion_tokens_details.reasoning_tokens", "reasoning_tokens" /* SGLang */)
	outside := prompt
	if read > prompt {
		prompt += read // xAI: what was cached is not in prompt_tokens
	}
	switch {
	case reasoning > completion && hasCompletion,
		total > 0 && (total == prompt+completion+reasoning || total == outside+completion+reasoning):
		completion += reasoning // xAI: reasoning is not in completion_tokens
	case total > prompt+completion && op == exchange.Chat:
		completion = total - prompt // Gemini: hidden thinking is only in the total
	}
	t := exchange.Tokens{CacheRead: read, Input: prompt - read, Output: completion}
	apart := func(from, to *int64, path string) {
		*to = min(first(u, path), *from)
		*from -= *to
	}
	apart(&t.Input, &t.CacheWrite5m, "prompt_tokens_details.cache_write_tokens")
	apart(&t.Input, &t.InputAudio, "prompt_tokens_details.audio_tokens")
	apart(&t.Input, &t.InputImage, "prompt_tokens_details.image_tokens")
	apart(&t.Output, &t.OutputAudio, "completion_tokens_details.audio_tokens")
	apart(&t.Output, &t.OutputImage, "completion_tokens_details.image_tokens") // OpenRouter
	t.Reasoning = min(reasoning, t.Output)
	t.WebSearches = searches(u, r)
	return exchange.Usage{Source: exchange.FromProvider, Tokens: t}, true
}

// first is the first of several counts that is not zero.
func first(u gjson.Result, paths ...string) int64 {
	for _, p := range paths {
		if n, _ := count(u, p); n > 0 {
			return n
		}
	}
	return 0
}

func count(u gjson.Result, path string) (n int64, ok bool) { return adapter.Count(u.Get(path)) }

// mendUsage makes a usage object state what is settled, in OpenAI's members. All else that the provider says in it
// stays: kinds of tokens, costs, times.
func mendUsage(raw []byte, u exchange.Usage, op exchange.Operation) []byte {
	if u.Source != exchange.FromProvider || !gjson.ParseBytes(raw).IsObject() {
		return appendUsage(nil, u.Tokens, op)
	}
	set := func(path string, n int64, must bool) {
		v := gjson.GetBytes(raw, path)
		if v.Raw == strconv.FormatInt(n, 10) || !v.Exists() && !must {
			return
		}
		// Neither call can fail: what a path leads through is an object, and the paths are well formed.
		if of, _, nested := strings.Cut(path, "."); nested && !gjson.GetBytes(raw, of).IsObject() {
			raw, _ = sjson.SetRawBytes(raw, of, []byte("{}"))
		}
		raw, _ = sjson.SetBytes(raw, path, n)
	}
	chat := op == exchange.Chat
	set("prompt_tokens", u.Prompt(), true)
	set("completion_tokens", u.Completion(), chat)
	set("total_tokens", u.Total(), true)
	set("prompt_tokens_details.cached_tokens", u.CacheRead, u.CacheRead > 0)
	set("prompt_tokens_details.cache_write_tokens", u.CacheWrite5m, u.CacheWrite5m > 0)
	set("completion_tokens_details.reasoning_tokens", u.Reasoning, u.Reasoning > 0)
	return raw
}

// appendUsage writes usage as OpenAI does, for a provider that stated none.
func appendUsage(b []byte, t exchange.Tokens, op exchange.Operation) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), t.Prompt(), 10)
	if op == exchange.Chat {
		b = strconv.AppendInt(append(b, `,"completion_tokens":`...), t.Completion(), 10)
	}
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), t.Total(), 10)
	return append(b, '}')
}
