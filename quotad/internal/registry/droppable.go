package registry

import (
	"fmt"
	"slices"
)

// requestMembers are members of requests as OpenAI documents them for chat completions and embeddings. Servers know more;
// so a name that is none of these is only refused where it is a slip of one.
var requestMembers = []string{
	"audio", "dimensions", "encoding_format", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
	"max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls", "prediction",
	"presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
	"response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream_options", "temperature",
	"tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
}

// otherMembers are those of other servers that look like a slip of one of OpenAI's.
var otherMembers = []string{"top_a", "top_k", "top_n"}

// neededMembers are what a request is none without.
var neededMembers = []string{"input", "messages", "model", "stream"}

func parseDroppable(to *string) func(string) error {
	return func(text string) error {
		if err := parseID(to)(text); err != nil {
			return err
		}
		if slices.Contains(neededMembers, text) {
			return fmt.Errorf("%s cannot be dropped: there is no request without it", text)
		}
		if slices.Contains(requestMembers, text) || slices.Contains(otherMembers, text) {
			return nil
		}
		for _, name := range requestMembers {
			if len(name) > 3 && slips(text, name) == 1 {
				return fmt.Errorf("%s is no member of a request: did you mean %s?", text, name)
			}
		}
		return nil
	}
}
