package gemini

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// choicesMax is OpenAI's bound on n.
const choicesMax = 128

// finishReason is the caller's word for the provider's. The provider has none of its own for calls.
func finishReason(reason string, calls int) string {
	switch reason {
	case "MAX_TOKENS", "CONTINUATION":
		return "length"
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "JAILBREAK",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", blocked:
		return "content_filter"
	}
	if calls > 0 {
		return "tool_calls"
	}
	return "stop"
}

// blocked stands for the finish reason of a prompt that was refused: there is no candidate then.
const blocked = "PROMPT_BLOCKED"

// failed is the failure that a finish reason means: the model did something the provider could make nothing of. Asked
// again it may do better. nil for all other reasons.
func failed(c gjson.Result) *exchange.Failure {
	reason := c.Get("finishReason").Str
	switch reason {
	case "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS":
	default:
		return nil
	}
	message := adapter.Trimmed(c.Get("finishMessage").Str)
	if message == "" {
		message = "the model's answer could not be used: " + reason
	}
	return &exchange.Failure{
		Kind: exchange.FailOverloaded, Status: 502, Type: "upstream_error", Code: reason, Message: message,
	}
}

// appendFinish appends the finish_reason member of a choice, and the provider's own word where ours says less.
func appendFinish(dst []byte, reason string, calls int) []byte {
	dst = append(append(append(dst, `"finish_reason":"`...), finishReason(reason, calls)...), '"')
	switch reason {
	case "STOP", "MAX_TOKENS":
		return dst
	}
	return adapter.AppendString(append(dst, `,"native_finish_reason":`...), adapter.Trimmed(reason))
}

// isBlocked reports whether an answer says that the prompt was refused.
func isBlocked(answer gjson.Result) bool {
	return answer.Get("promptFeedback.blockReason").Str != ""
}

// appendCall appends a function call after the members that stand before its id.
func appendCall(dst []byte, call gjson.Result, id, signature string) []byte {
	dst = reply.AppendCall(dst, id, call.Get("name").Str, reply.Arguments(call.Get("args")))
	if signature != "" {
		dst = append(adapter.AppendString(append(dst, `,"extra_content":{"google":{"thought_signature":`...), signature), "}}"...)
	}
	return append(dst, '}')
}

// appendLogprobs appends the logprobs object of a choice, null when there is none.
func appendLogprobs(dst []byte, v gjson.Result) []byte {
	chosen, top := v.Get("chosenCandidates"), v.Get("topCandidates").Array()
	if !chosen.IsArray() {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i, token := range chosen.Array() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendToken(dst, token), `,"top_logprobs":[`...)
		if i < len(top) {
			for j, other := range top[i].Get("candidates").Array() {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = append(appendToken(dst, other), '}')
			}
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendToken appends a token with its logprob, without the closing brace.
func appendToken(dst []byte, v gjson.Result) []byte {
	token := v.Get("token").Str
	dst = adapter.AppendString(append(dst, `{"token":`...), strings.ToValidUTF8(token, "\ufffd"))
	dst = append(dst, `,"logprob":`...)
	if p := v.Get("logProbability"); p.Type == gjson.Number {
		dst = append(dst, p.Raw...)
	} else {
		dst = append(dst, '0') // the provider leaves zeros out
	}
	dst = append(dst, `,"bytes":[`...)
	for i := range len(token) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = reply.AppendInt(dst, "", int64(token[i]))
	}
	return append(dst, ']')
}
