package bedrock

import (
	"encoding/base64"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// claudeVersion is Anthropic's API as every Claude on Bedrock knows it.
const claudeVersion = "bedrock-2023-05-31"

// isClaude reports whether a model's id tells that it is Claude. That of an application's own inference profile tells
// nothing: unless the deployment's base model does, Converse serves it, whatever it is.
func isClaude(base string) bool {
	return strings.Contains(base, "anthropic.claude") || strings.HasPrefix(base, "claude-")
}

func claude() *anthropic.Adapter {
	return anthropic.NewAt(anthropic.Host{
		Path: func(r *exchange.Request, d *exchange.Deployment) string {
			switch {
			case r.Operation != exchange.Chat:
				return ""
			case r.Stream:
				return path(d.Model, "invoke-with-response-stream")
			}
			return path(d.Model, "invoke")
		},
		Version: claudeVersion, StreamByPath: true, BetasInBody: true, TakesBeta: takesBeta, Event: chunk, Failure: classify,
	})
}

// takesBeta reports whether Bedrock knows a beta. One that it does not know makes it refuse the request.
func takesBeta(beta string) bool {
	for _, known := range [...]string{
		"computer-use-", "token-efficient-tools-", "interleaved-thinking-", "output-128k-", "dev-full-thinking-", "context-1m-",
		"context-management-", "effort-", "tool-search-tool-", "tool-examples-",
	} {
		if strings.HasPrefix(beta, known) {
			return true
		}
	}
	return false
}

// invoke builds a request in Anthropic's dialect. What tier served it would stand in the head of the answer alone, where
// nobody reads it who makes out the price: other tiers than the usual one are refused.
func invoke(r *exchange.Request, d *exchange.Deployment) (adapter.Call, *exchange.Failure) {
	if tier := gjson.GetBytes(r.Body, "service_tier"); tier.Exists() {
		if f := usualTier(r, tier); f != nil {
			return adapter.Call{}, f
		}
		body, err := sjson.DeleteBytes(r.Body, "service_tier") // a copy: the body itself is never changed
		if err != nil {
			return adapter.Call{}, invalid("", "the body is not a JSON object")
		}
		plain := *r
		plain.Body = body
		r = &plain
	}
	return claude().Request(r, d, nil)
}

func usualTier(r *exchange.Request, tier gjson.Result) *exchange.Failure {
	switch {
	case tier.Type == gjson.Null, tier.Str == "auto", tier.Str == "default", mayDrop(r, "service_tier"):
		return nil
	case tier.Str == "flex", tier.Str == "priority", tier.Str == "scale":
		return unsupported("service_tier", "Claude on Bedrock is asked for in the service tiers auto and default alone")
	}
	return invalid("service_tier", "service_tier must be auto, default, flex, scale or priority")
}

// isMessage reports whether an answer is in Anthropic's dialect.
func isMessage(body []byte) bool {
	return adapter.Valid(body) && gjson.GetBytes(body, "type").Str == "message"
}

// chunk takes Anthropic's event out of an event of invoke-with-response-stream.
func chunk(name, data []byte) ([]byte, *exchange.Failure) {
	if f := exception(name, data); f != nil {
		return nil, f
	}
	if string(name) != "chunk" {
		return nil, nil
	}
	if !adapter.Valid(data) {
		return nil, invalidAnswer("an event of the provider's stream is not JSON")
	}
	inner, err := base64.StdEncoding.DecodeString(gjson.GetBytes(data, "bytes").Str)
	if err != nil {
		return nil, invalidAnswer("an event of the provider's stream is not base64")
	}
	return inner, nil
}

// stream is a stream whose dialect its first event tells.
type stream struct {
	adapter.Stream
	r      *exchange.Request
	note   adapter.Annotate
	claude bool
}

// Event implements adapter.Stream.
func (s *stream) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	if !s.claude && string(name) == "chunk" {
		s.claude, s.Stream = true, claude().Stream(s.r, s.note)
	}
	return s.Stream.Event(dst, name, data)
}
