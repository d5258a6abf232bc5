package openai

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// kindOf decides by code and text first: providers use one status for different things. FailNone means that only the
// status could tell, and there is none.
func kindOf(status int, f *exchange.Failure) exchange.FailureKind {
	if kind := kindOfCode(f); kind != exchange.FailNone {
		return kind
	}
	if kind := kindOfText(status, f); kind != exchange.FailNone {
		return kind
	}
	switch {
	case status == 0:
		return exchange.FailNone
	case status == 400, status == 413, status == 422:
		return exchange.FailRequest
	case status == 401, status == 402, status == 403, status == 451:
		return exchange.FailCredential
	case status == 501: // llama.cpp, of what it was not started for
		return exchange.FailUnsupported
	case status == 404, status == 405, status == 410, status == 415:
		return exchange.FailNotFound
	case status == 429:
		return exchange.FailRateLimited
	case status == 408, status == 409, status == 424, status == 425, status == 498, status == 499, status >= 500:
		return exchange.FailOverloaded
	case status >= 300 && status < 400:
		return exchange.FailNotFound // a redirect is not followed: it would carry the key elsewhere
	}
	return exchange.FailInvalid
}

func kindOfCode(f *exchange.Failure) exchange.FailureKind {
	switch f.Code {
	case "insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached", "billing_not_active":
		f.Final = true
		return exchange.FailCredential
	case "API_KEY_INVALID", "invalid_api_key":
		return exchange.FailCredential
	case "context_length_exceeded":
		return exchange.FailContext
	case "content_policy_violation", "content_filter":
		return exchange.FailPolicy
	case "tool_use_failed": // Groq: the model's fault, another try may do
		return exchange.FailInvalid
	case "rate_limit_exceeded":
		// Groq says so with 413 of a request that is larger than what a minute allows: never to be repeated there.
		f.Final = f.Final || f.Status == 413
		return exchange.FailRateLimited
	}
	switch f.Type {
	case "insufficient_quota":
		f.Final = true
		return exchange.FailCredential
	case "exceed_context_size_error": // llama.cpp
		return exchange.FailContext
	}
	return exchange.FailNone
}

// The phrases servers have for faults to which they give no code, in lower case.
var (
	contextPhrases = []string{
		"maximum context length", "context length exceeded", "model's context length", "exceeds the context",
		"exceed context", "exceeds context", "exceeds the available context", "context window", "maximum prompt length",
		"prompt is too long", "prompt too long", "input is too long", "reduce the length of the messages",
		"reduce the length of the prompt",
	}
	keyPhrases = []string{
		"incorrect api key", "invalid api key", "api key not valid", "api key expired", "api key is invalid",
		"invalid api-key", "invalid x-api-key", "authentication fails", "invalid authentication",
	}
	balancePhrases = []string{
		"credit balance", "insufficient balance", "insufficient credit", "insufficient funds", "out of credits",
		"available credits", "account balance",
	}
)

// phraseBytes is how far into a message a phrase is looked for: servers quote what the caller sent behind it.
const phraseBytes = 300

// kindOfText reads the message where the status may mean several things.
func kindOfText(status int, f *exchange.Failure) exchange.FailureKind {
	message := strings.ToLower(f.Message[:min(len(f.Message), phraseBytes)])
	says := func(phrases []string) bool {
		for _, p := range phrases {
			if strings.Contains(message, p) {
				return true
			}
		}
		return false
	}
	switch status {
	case 0, 400, 413, 422:
		if says(contextPhrases) {
			return exchange.FailContext
		}
		if f.Param == "" && says(keyPhrases) {
			return exchange.FailCredential
		}
		// Google does not know a member; another may. Its name stands in the message.
		if _, rest, ok := strings.Cut(f.Message, `Unknown name "`); ok && strings.Contains(rest, "Cannot find field") {
			f.Param, _, _ = strings.Cut(rest, `"`)
			f.Code = "unsupported_parameter"
			return exchange.FailUnsupported
		}
	case 403, 429:
	default:
		return exchange.FailNone
	}
	if f.Param == "" && says(balancePhrases) {
		f.Final = true
		return exchange.FailCredential
	}
	return exchange.FailNone
}

// kindOfType classifies an error that came inside a 200 answer, without a status of its own.
func kindOfType(kind string, f *exchange.Failure) exchange.FailureKind {
	switch {
	case strings.Contains(kind, "rate_limit"), strings.Contains(f.Code, "rate_limit"):
		return exchange.FailRateLimited
	case kind == "invalid_request_error" && f.Code != "", kind == "BadRequestError":
		return exchange.FailRequest
	case strings.Contains(kind, "authentication"), strings.Contains(kind, "permission"):
		return exchange.FailCredential
	}
	return exchange.FailOverloaded
}

// isPage says that a text is markup: a proxy's page instead of a message.
func isPage(s string) bool {
	if !strings.Contains(s, "<") {
		return false
	}
	s = strings.ToLower(s)
	for _, tag := range [...]string{"<!doctype", "<html", "<head", "<body", "<title", "<script", "<center", "<h1"} {
		if strings.Contains(s, tag) {
			return true
		}
	}
	return false
}
