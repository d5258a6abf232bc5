package bedrock

import (
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// rawBytesMax bounds the provider's usage that is kept as it stood; a longer one is not kept.
const rawBytesMax = 4 << 10

// usageOf reads the usage object of an answer, or of a stream's metadata. inputTokens leaves the cached ones out. Cache
// writes whose duration is not stated are taken for the usual 5 minutes.
func usageOf(u, tier gjson.Result) exchange.Usage {
	use := exchange.Usage{Source: exchange.FromEstimate, ServiceTier: adapter.Trimmed(tier.Get("type").Str)}
	if _, ok := adapter.Count(u.Get("outputTokens")); !ok {
		return use
	}
	count := func(v gjson.Result) int64 {
		n, _ := adapter.Count(v)
		return n
	}
	var short, long int64
	u.Get("cacheDetails").ForEach(func(_, v gjson.Result) bool {
		switch n := count(v.Get("inputTokens")); v.Get("ttl").Str {
		case "1h":
			long = min(long+n, adapter.CountMax)
		default:
			short = min(short+n, adapter.CountMax)
		}
		return true
	})
	use.Source = exchange.FromProvider
	use.Tokens = exchange.Tokens{
		Input:        count(u.Get("inputTokens")),
		CacheRead:    count(u.Get("cacheReadInputTokens")),
		CacheWrite5m: max(count(u.Get("cacheWriteInputTokens"))-long, short),
		CacheWrite1h: long,
		Output:       count(u.Get("outputTokens")),
	}
	if len(u.Raw) <= rawBytesMax {
		use.Raw = u.Raw
	}
	return use
}

// finishReason is the caller's word for the provider's stop reason. Unknown ones are an ordinary stop, and a turn that
// ends with calls is none, whatever its model calls it. Reasons that say that the model broke are none: see malformed.
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
	case "guardrail_intervened", "content_filtered":
		return "content_filter"
	}
	return "stop"
}

// appendFinish appends the finish_reason member of a choice, and the provider's own word where ours says less.
func appendFinish(dst []byte, stop string, calls int) []byte {
	dst = append(append(append(dst, `"finish_reason":"`...), finishReason(stop, calls)...), '"')
	switch stop {
	case "end_turn", "max_tokens", "tool_use":
		return dst
	}
	return adapter.AppendString(append(dst, `,"native_finish_reason":`...), adapter.Trimmed(stop))
}

// malformed is the failure of an answer whose model did not keep to the form, nil for any other. The tokens are to be
// paid all the same.
func malformed(stop string) *exchange.Failure {
	switch stop {
	case "malformed_model_output", "malformed_tool_use":
		return &exchange.Failure{
			Kind: exchange.FailInvalid, Type: "upstream_error", Code: stop, Message: "the model's output was malformed: " + stop,
		}
	}
	return nil
}
