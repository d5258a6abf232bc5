package bedrock

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/tidwall/gjson"

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
		// What tier served a request would stand in the head of the answer alone, where nobody reads it who makes out the price.
		Version: claudeVersion, Tierless: true, StreamByPath: true, BetasInBody: true, TakesBeta: takesBeta, Event: chunk, Failure: classify,
	})
}

// takesBeta reports whether Bedrock knows a beta (Bedrock user guide: Anthropic Claude Messages API, request and response).
// One that it does not know makes it refuse the request.
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
		return nil, adapter.InvalidAnswer("an event of the provider's stream is not JSON")
	}
	inner, err := base64.StdEncoding.DecodeString(gjson.GetBytes(data, "bytes").Str)
	if err != nil {
		return nil, adapter.InvalidAnswer("an event of the provider's stream is not base64")
	}
	if bytes.IndexByte(inner, '\n') >= 0 && !adapter.Valid(inner) { // a frame is one event: no lines are glued in it
		return nil, adapter.InvalidAnswer("an event of the provider's stream is not JSON")
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
