package adapter

// ThinkingFormat marks the reasoning_details that carry Anthropic's blocks of thinking (OpenRouter's name for it).
const ThinkingFormat = "anthropic-claude-v1"

// ThinkingLeast is the smallest number of tokens a model may be told to think.
const ThinkingLeast = 1_024

// ThinkingRoom is the least output cap of a model that is told how much to think: as much again is left for its
// answer. A smaller cap is raised to it, on its way to the provider and in what is reserved.
const ThinkingRoom = 2 * ThinkingLeast

// ThinkingTokens is how many tokens a model may think at a reasoning_effort, 0 for words that ask for none: none, and
// those nobody knows. Providers that take a number are told it, and a cap that is not the caller's own grows by it.
func ThinkingTokens(effort string) int64 {
	switch effort {
	case "minimal":
		return ThinkingLeast
	case "low":
		return 2_048
	case "medium":
		return 8_192
	case "high":
		return 16_384
	case "xhigh":
		return 24_576
	case "max":
		return 32_000
	}
	return 0
}

// ThinkingEffort is the least reasoning_effort that allows that many tokens, of those that every provider knows.
func ThinkingEffort(tokens int64) string {
	for _, effort := range [...]string{"low", "medium"} {
		if tokens <= ThinkingTokens(effort) {
			return effort
		}
	}
	return "high"
}
