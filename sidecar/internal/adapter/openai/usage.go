package openai

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// countMax bounds a token count: far above any window, so that sums stay in int64.
const countMax = 1 << 48

// usageOf reads usage from wherever servers put it. Without any, the source is an estimate and the tokens are zero;
// an explicit zero is the provider's word.
func usageOf(doc gjson.Result) exchange.Usage {
	u := doc.Get("usage")
	if !u.IsObject() {
		u = doc.Get("x_groq.usage")
	}
	if !u.IsObject() {
		return exchange.Usage{Source: exchange.FromEstimate}
	}
	prompt, completion, total := count(u, "prompt_tokens"), count(u, "completion_tokens"), count(u, "total_tokens")
	reasoning := count(u, "completion_tokens_details.reasoning_tokens")
	if reasoning == 0 {
		reasoning = count(u, "reasoning_tokens") // SGLang
	}
	switch {
	case total > 0 && total == prompt+completion+reasoning:
		completion += reasoning // xAI: reasoning is not in completion_tokens
	case total > prompt+completion:
		completion = total - prompt // Gemini: hidden thinking is only in the total
	}
	cached := count(u, "prompt_tokens_details.cached_tokens")
	if cached == 0 {
		cached = count(u, "prompt_cache_hit_tokens") // DeepSeek
	}
	if cached == 0 {
		cached = count(u, "num_cached_tokens") // Mistral
	}
	cached = min(cached, prompt)
	written := min(count(u, "prompt_tokens_details.cache_write_tokens"), prompt-cached)
	return exchange.Usage{
		Source: exchange.FromProvider,
		Tokens: exchange.Tokens{
			Input: prompt - cached - written, CacheRead: cached, CacheWrite5m: written,
			Output: completion, Reasoning: min(reasoning, completion),
		},
	}
}

// count reads a token count: numbers, numbers in strings, floats; anything else is 0.
func count(u gjson.Result, path string) int64 {
	v := u.Get(path)
	var n int64
	switch v.Type {
	case gjson.Number:
		n = v.Int()
	case gjson.String:
		f, err := strconv.ParseFloat(v.Str, 64)
		if err != nil || f != f {
			return 0
		}
		n = int64(min(max(f, 0), countMax))
	}
	return min(max(n, 0), countMax)
}

// appendUsage writes usage as OpenAI does.
func appendUsage(b []byte, t exchange.Tokens) []byte {
	num := func(name string, n int64) {
		b = strconv.AppendInt(append(b, name...), n, 10)
	}
	num(`{"prompt_tokens":`, t.Prompt())
	num(`,"completion_tokens":`, t.Output)
	num(`,"total_tokens":`, t.Total())
	num(`,"prompt_tokens_details":{"cached_tokens":`, t.CacheRead)
	num(`,"cache_write_tokens":`, t.CacheWrite5m+t.CacheWrite1h)
	num(`},"completion_tokens_details":{"reasoning_tokens":`, t.Reasoning)
	return append(b, "}}"...)
}

func itoa(n int) string { return strconv.Itoa(n) }
