package gemini

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// claude is the adapter for Anthropic's models on Vertex AI.
var claude = anthropic.NewAt(anthropic.Host{Path: claudePath, Version: "vertex-2023-10-16", Failure: claudeFailure})

const claudeModels = "publishers/anthropic/models/"

func isClaude(model string) bool {
	return strings.HasPrefix(model, claudeModels) || strings.HasPrefix(model, "claude-")
}

func claudePath(r *exchange.Request, d *exchange.Deployment) string {
	model, verb := strings.TrimPrefix(d.Model, claudeModels), ":rawPredict"
	switch {
	case r.Operation == exchange.CountTokens:
		model = "count-tokens"
	case r.Stream:
		verb = ":streamRawPredict"
	}
	return location(d) + claudeModels + escaped(model) + verb
}

// claudeFailure classifies a refusal: by Anthropic's server, or by what Google has before it, which has a status of its
// own.
func claudeFailure(status int, h adapter.Header, body []byte) *exchange.Failure {
	if errorOf(body).Get("status").Type == gjson.String {
		return classify(status, h, body)
	}
	return anthropic.New().Failure(status, h, body)
}
