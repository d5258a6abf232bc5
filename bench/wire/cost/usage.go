package cost

import (
	"encoding/json"
	"math/big"
	"strings"
)

// Usage is what an answer used. Nothing is counted twice, except that Reasoning is part of Output.
type Usage struct {
	Input, CacheRead, CacheWrite5m, CacheWrite1h, AudioInput, ImageInput int64
	Output, Reasoning, AudioOutput, ImageOutput                          int64
	WebSearches                                                          int64
	Tier, Speed, Geo                                                     string
}

// Prompt is every token of the prompt.
func (u Usage) Prompt() int64 {
	return u.Input + u.CacheRead + u.CacheWrite5m + u.CacheWrite1h + u.AudioInput + u.ImageInput
}

// Completion is every token of the answer.
func (u Usage) Completion() int64 { return u.Output + u.AudioOutput + u.ImageOutput }

// Includes says who includes what: how a provider counts what it used. Names are members of its usage object, the first
// that is there counts; "a.b" is member b of a, and "a[AUDIO]" the tokenCount of the element of a whose modality is AUDIO.
type Includes struct {
	Who string
	// Prompt counts the prompt; PromptToo counts parts of it that Prompt leaves out.
	Prompt, PromptToo []string
	// Read, Write, Write5m and Write1h count what is cached. CacheIn: Prompt has it in it.
	Read, Write, Write5m, Write1h []string
	CacheIn                       bool
	// AudioIn and ImageIn are parts of Prompt.
	AudioIn, ImageIn []string
	// Completion counts the answer, ReasoningIn: with the reasoning. AudioOut and ImageOut are parts of it.
	Completion, Reasoning, AudioOut, ImageOut []string
	ReasoningIn                               bool
	// Total is of everything. What it has more than its parts is output that nobody named, where TotalTells.
	Total      []string
	TotalTells bool
	// Searches counts searches of the web.
	Searches []string
	// Passes counts the passes of one answer, each as a usage object. The members beside them leave some out.
	Passes string
}

var chat = Includes{
	Who: "OpenAI chat and embeddings, Azure, and what copies them", Prompt: names("prompt_tokens"),
	Read:    names("prompt_tokens_details.cached_tokens", "prompt_token_details.cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens"),
	Write:   names("prompt_tokens_details.cache_write_tokens"),
	CacheIn: true, AudioIn: names("prompt_tokens_details.audio_tokens"),
	Completion: names("completion_tokens"), Reasoning: names("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
	ReasoningIn: true, AudioOut: names("completion_tokens_details.audio_tokens"),
	ImageOut: names("completion_tokens_details.image_tokens"), Total: names("total_tokens"),
}

// Table is who includes what.
var Table = map[string]Includes{
	"chat": chat,
	"xai": chat.but(func(c *Includes) {
		c.Who, c.ReasoningIn = "xAI: the reasoning stands beside the completion", false
	}),
	"gemini-openai": chat.but(func(c *Includes) {
		c.Who, c.TotalTells = "Gemini's OpenAI surface: thinking is in the total alone", true
	}),
	"responses": {
		Who: "OpenAI Responses", Prompt: names("input_tokens"), Read: names("input_tokens_details.cached_tokens"),
		Write: names("input_tokens_details.cache_write_tokens"), CacheIn: true, Completion: names("output_tokens"),
		Reasoning: names("output_tokens_details.reasoning_tokens"), ReasoningIn: true, Total: names("total_tokens"),
	},
	"messages": {
		Who: "Anthropic, also on Bedrock and Vertex: the cache stands beside the input", Prompt: names("input_tokens"),
		Read: names("cache_read_input_tokens"), Write: names("cache_creation_input_tokens"),
		Write5m: names("cache_creation.ephemeral_5m_input_tokens"), Write1h: names("cache_creation.ephemeral_1h_input_tokens"),
		Completion: names("output_tokens"), Reasoning: names("output_tokens_details.thinking_tokens"), ReasoningIn: true,
		Searches: names("server_tool_use.web_search_requests"), Passes: "iterations",
	},
	"converse": {
		Who: "Bedrock Converse: the cache stands beside the input", Prompt: names("inputTokens"), Read: names("cacheReadInputTokens"),
		Write: names("cacheWriteInputTokens"), Write5m: names("cacheDetails[5m]"), Write1h: names("cacheDetails[1h]"),
		Completion: names("outputTokens"), ReasoningIn: true, Total: names("totalTokens"),
	},
	"gemini": {
		Who: "Gemini and Vertex: the thoughts stand beside the candidates, and tools' input beside the prompt", Prompt: names("promptTokenCount"),
		PromptToo: names("toolUsePromptTokenCount"), Read: names("cachedContentTokenCount"), CacheIn: true,
		AudioIn: names("promptTokensDetails[AUDIO]"), ImageIn: names("promptTokensDetails[IMAGE]"),
		Completion: names("candidatesTokenCount"), Reasoning: names("thoughtsTokenCount"),
		AudioOut: names("candidatesTokensDetails[AUDIO]"), ImageOut: names("candidatesTokensDetails[IMAGE]"), Total: names("totalTokenCount"),
	},
	"ollama": {Who: "Ollama's own API", Prompt: names("prompt_eval_count"), Completion: names("eval_count"), ReasoningIn: true},
}

func names(of ...string) []string { return of }

func (in Includes) but(change func(*Includes)) Includes {
	change(&in)
	return in
}

// Of reads a usage object.
func (in Includes) Of(usage map[string]any) Usage {
	if passes, ok := usage[in.Passes].([]any); ok && len(passes) > 0 {
		var sum Usage
		for _, p := range passes {
			pass, _ := p.(map[string]any)
			sum = sum.plus(in.Of(pass))
		}
		return sum
	}
	of := func(names []string) int64 { return first(usage, names) }
	prompt := of(in.Prompt)
	u := Usage{CacheRead: of(in.Read), CacheWrite1h: of(in.Write1h), WebSearches: of(in.Searches)}
	u.CacheWrite5m = max(of(in.Write5m), of(in.Write)-u.CacheWrite1h)
	if in.CacheIn {
		u.CacheWrite5m = min(u.CacheWrite5m, prompt-u.CacheRead)
		prompt -= u.CacheRead + u.CacheWrite5m
	}
	prompt += of(in.PromptToo)
	u.AudioInput = min(of(in.AudioIn), prompt)
	u.ImageInput = min(of(in.ImageIn), prompt-u.AudioInput)
	u.Input = prompt - u.AudioInput - u.ImageInput

	completion := of(in.Completion)
	u.Reasoning = of(in.Reasoning)
	if !in.ReasoningIn {
		completion += u.Reasoning
	}
	if total := of(in.Total); in.TotalTells {
		completion = max(completion, total-u.Prompt())
	}
	u.AudioOutput = min(of(in.AudioOut), completion)
	u.ImageOutput = min(of(in.ImageOut), completion-u.AudioOutput)
	u.Output = completion - u.AudioOutput - u.ImageOutput
	return u
}

func (u Usage) plus(o Usage) Usage {
	return Usage{
		u.Input + o.Input, u.CacheRead + o.CacheRead, u.CacheWrite5m + o.CacheWrite5m, u.CacheWrite1h + o.CacheWrite1h,
		u.AudioInput + o.AudioInput, u.ImageInput + o.ImageInput, u.Output + o.Output, u.Reasoning + o.Reasoning,
		u.AudioOutput + o.AudioOutput, u.ImageOutput + o.ImageOutput, u.WebSearches + o.WebSearches, u.Tier, u.Speed, u.Geo,
	}
}

func first(usage map[string]any, names []string) int64 {
	for _, name := range names {
		if n := count(usage, name); n > 0 {
			return n
		}
	}
	return 0
}

// count finds a member by its name. What is no number is 0.
func count(usage map[string]any, name string) int64 {
	if list, key, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok {
		elements, _ := usage[list].([]any)
		var sum int64
		for _, e := range elements {
			m, _ := e.(map[string]any)
			if m["modality"] == key || m["ttl"] == key {
				sum += max(number(m["tokenCount"]), number(m["inputTokens"]))
			}
		}
		return sum
	}
	outer, inner, nested := strings.Cut(name, ".")
	if nested {
		m, _ := usage[outer].(map[string]any)
		return count(m, inner)
	}
	return number(usage[outer])
}

// number reads whole numbers, and what servers write instead: 12.0, "12".
func number(v any) int64 {
	var text string
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || r.Sign() < 0 {
		return 0
	}
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}
