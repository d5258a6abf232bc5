package anthropic

import (
	"fmt"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// think turns the caller's word into what the model understands: a word of its own, or a number of tokens.
func (t *translation) think() *exchange.Failure {
	if t.Effort == "" {
		return nil
	}
	switch how := mindOf(t.base); {
	case t.Effort == "none" && how == mindNone:
		return nil
	case t.Effort == "none":
		t.thinking = `{"type":"disabled"}`
		return nil
	case how == mindNone:
		return t.Cannot("reasoning_effort", "this model cannot think before it answers")
	case how == mindBudget:
		t.budget(adapter.ThinkingTokens(t.Effort))
	case t.Effort == "minimal":
		t.thinking, t.effort = `{"type":"adaptive"}`, "low" // the least there is
	default:
		t.thinking, t.effort = `{"type":"adaptive"}`, t.Effort
	}
	t.thinks = true
	return nil
}

// budget has the model think up to so many tokens. They are part of the output: the cap must be above them, and
// something must be left for the answer.
func (t *translation) budget(tokens int64) {
	switch {
	case t.Limit == 0:
		t.Limit = outputDefault + tokens
	case t.Limit < adapter.ThinkingRoom:
		t.Limit = adapter.ThinkingRoom
	}
	tokens = max(adapter.ThinkingLeast, min(tokens, t.Limit-adapter.ThinkingLeast))
	t.thinking = fmt.Sprintf(`{"type":"enabled","budget_tokens":%d}`, tokens)
}
