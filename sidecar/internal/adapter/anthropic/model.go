package anthropic

import "regexp"

// mind is how a model is told how much to think.
type mind uint8

const (
	mindAdaptive mind = iota // it decides itself, guided by output_config.effort
	mindBudget               // it takes a number of tokens
	mindNone                 // it cannot think
)

// Only the models of the past are known by name. Any other is taken for a new one.
var (
	unthinking = regexp.MustCompile(`claude-(?:instant|2|3[-.]5|3-(?:opus|sonnet|haiku))`)
	budgeted   = regexp.MustCompile(`claude-(?:3[-.]7|(?:opus|sonnet|haiku)-4(?:[-.][0-5])?(?:$|[-@:](?:\D|20\d{6})))`)
	unschooled = regexp.MustCompile(`claude-(?:instant|2|3)`) // know no output_config.format
	// Take system texts before the conversation only: those before Opus 4.8 (Claude API docs: Mid-conversation system
	// messages). It is the same at Bedrock and Vertex AI.
	hoisting = regexp.MustCompile(`claude-(?:instant|2|3|(?:opus|sonnet|haiku)-4(?:[-.][0-7])?(?:$|[-@:](?:\D|20\d{6})))`)
)

func mindOf(model string) mind {
	switch {
	case unthinking.MatchString(model):
		return mindNone
	case budgeted.MatchString(model):
		return mindBudget
	}
	return mindAdaptive
}

func knowsFormat(model string) bool { return !unschooled.MatchString(model) }

// takesSystemLater reports whether a model takes a system text between the turns.
func takesSystemLater(model string) bool { return !hoisting.MatchString(model) }
