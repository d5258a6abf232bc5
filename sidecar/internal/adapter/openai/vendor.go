package openai

import (
	"slices"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// ways are what a server does otherwise than OpenAI with requests. What servers do otherwise in answers needs no table:
// it shows there, and is put right wherever it comes from.
type ways struct {
	limit   string            // its name for the cap on output tokens
	names   map[string]string // its own names for members
	refuses []string          // members it cannot honour: it refuses them, or, worse, does not look at them
	forgets []string          // members it refuses to read, without which its answer is the same
	models  []model           // what some of its models refuse besides; the first that fits counts
	mute    bool              // it knows no stream_options, and states usage unasked or not at all
	strict  bool              // it refuses members of messages that OpenAI does not have
	shortID bool              // ids of tool calls must be nine letters and digits
	stops   bool              // stop must be a list
	system  bool              // a developer's message is a system's
	schema  bool              // it cannot hold an answer to a JSON schema
	plain   bool              // its only tools are functions
	nobody  bool              // it refuses messages with the name of who speaks
}

// model is a family of models that refuse what others of their vendor take.
type model struct {
	prefix  string
	infix   string // what the name holds behind its beginning
	refuses []string
	freeAt  string // the reasoning_effort at which, or without any, they refuse nothing
}

// hosted are the members that no engine of open models has.
var hosted = []string{
	"functions", "function_call", "prediction", "modalities", "audio", "web_search_options", "verbosity", "service_tier",
	"moderation", "store",
}

// bookkeeping are the members that are for the provider's records and caches.
var bookkeeping = []string{
	"user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
}

// sampling are the members that models which reason take at their defaults only.
var sampling = []string{
	"temperature", "top_p", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "logit_bias",
}

// reasoners are OpenAI's models, by provider openai and azure. Names of others mean nothing here.
var reasoners = []model{
	{prefix: "gpt-5-chat"},
	{prefix: "gpt-5.", refuses: sampling, freeAt: "none"},
	{prefix: "gpt-5", refuses: sampling},
	{prefix: "gpt-6", refuses: sampling},
	{prefix: "o1", refuses: and(sampling, "parallel_tool_calls")},
	{prefix: "o3", refuses: and(sampling, "parallel_tool_calls", "stop")},
	{prefix: "o4", refuses: and(sampling, "parallel_tool_calls", "stop")},
}

var (
	ownWays   = &ways{limit: newCap, models: reasoners, strict: true, refuses: []string{"top_k"}}
	azureWays = &ways{limit: newCap, models: reasoners, strict: true, refuses: []string{"top_k", "web_search_options"}}
	// azureOldWays are the versions of Azure's API before azureNewCap.
	azureOldWays = &ways{limit: oldCap, models: reasoners, strict: true, refuses: []string{"top_k", "web_search_options"}, mute: true}
	// anyWays are those of a server of which nothing is known: it may know only the old name of the cap. All else it judges itself.
	anyWays = &ways{limit: oldCap}
)

// azureNewCap is the first version of Azure's API that has max_completion_tokens and stream_options.
const azureNewCap = "2024-09-01"

// vendors are the servers whose ways are known, by the deployment's vendor. quotad's registry has the same names:
// TestNamesAreTheSame at the module's root sees to that.
var vendors = map[string]*ways{
	"vllm":     {limit: oldCap, refuses: hosted, system: true, plain: true},
	"sglang":   {limit: oldCap, refuses: hosted, system: true, plain: true},
	"llamacpp": {limit: oldCap, refuses: hosted, stops: true, system: true, plain: true},
	"ollama": {
		limit: oldCap, system: true, plain: true,
		refuses: and(hosted, "top_k", "n", "tool_choice", "parallel_tool_calls", "logit_bias"),
	},
	"mistral": {
		limit: oldCap, mute: true, strict: true, shortID: true, system: true, plain: true,
		names:   map[string]string{"seed": "random_seed", "dimensions": "output_dimension"},
		refuses: and(hosted, "top_k", "logprobs", "top_logprobs", "logit_bias"),
		forgets: bookkeeping,
	},
	// logprobs, logit_bias, top_logprobs, names and n above 1 are 400 (Groq docs: OpenAI compatibility).
	"groq": {
		limit: newCap, plain: true, nobody: true,
		refuses: []string{"top_k", "n", "logprobs", "top_logprobs", "logit_bias", "prediction", "modalities", "audio", "web_search_options", "verbosity", "moderation", "store"},
	},
	"deepseek": {
		limit: oldCap, schema: true, system: true, plain: true,
		refuses: and(hosted, "top_k", "n", "seed", "logit_bias", "parallel_tool_calls"),
	},
	// logit_bias is not supported (xAI's REST API reference).
	"xai": {
		limit: newCap, plain: true,
		refuses: []string{"top_k", "functions", "function_call", "logit_bias", "prediction", "modalities", "audio", "verbosity", "moderation", "store"},
		models:  groks,
	},
	"openrouter": {limit: oldCap},
	// Nothing says what Gemini does not know here, so all but bookkeeping is passed on: it answers 400 to names it lacks.
	"gemini-openai": {limit: oldCap, plain: true, forgets: bookkeeping},
}

// unsaid are the members that Grok models which reason refuse. All that are named here decide themselves how much they
// reason, if at all, and refuse to be told, but for the small one and the one to which it is a number of agents (xAI
// docs: Reasoning). Of models that are not in it nothing is known.
var unsaid = []string{"stop", "frequency_penalty", "presence_penalty"}

var groks = []model{
	{prefix: "grok-", infix: "-non-reasoning", refuses: []string{"reasoning_effort"}},
	{prefix: "grok-4.20-multi-agent", refuses: unsaid},
	{prefix: "grok-4.20", refuses: and(unsaid, "reasoning_effort")},
	{prefix: "grok-4."},
	{prefix: "grok-4", refuses: and(unsaid, "reasoning_effort")},
	{prefix: "grok-code", refuses: and(unsaid, "reasoning_effort")},
	{prefix: "grok-3-mini", refuses: unsaid},
	{prefix: "grok-3", refuses: []string{"reasoning_effort"}},
}

// Sent implements adapter.Namer.
func (*Adapter) Sent(r *exchange.Request, d *exchange.Deployment, param string) string {
	name, end := param, strings.IndexAny(param, ".[")
	if end >= 0 {
		name = param[:end]
	}
	for ours, theirs := range waysOf(d).names {
		if name == theirs && !find(r.Body, whole(r.Body), theirs).is() {
			return ours + param[len(name):]
		}
	}
	return param
}

func and(a []string, b ...string) []string { return slices.Concat(a, b) }

// waysOf are the ways of a deployment's server.
func waysOf(d *exchange.Deployment) *ways {
	switch d.Provider {
	case "openai":
		return ownWays
	case "azure":
		if v := d.APIVersion; v != "" && v < azureNewCap { // v1 and preview come after any date
			return azureOldWays
		}
		return azureWays
	}
	if w, ok := vendors[d.Vendor]; ok {
		return w
	}
	return anyWays
}

// cannot reports whether a model of this server cannot honour a member. effort is the request's reasoning_effort.
func (w *ways) cannot(name, modelName, effort string) bool {
	if slices.Contains(w.refuses, name) {
		return true
	}
	for i := range w.models {
		m := &w.models[i]
		if strings.HasPrefix(modelName, m.prefix) && strings.Contains(modelName, m.infix) {
			free := m.freeAt != "" && (effort == "" || effort == m.freeAt)
			return !free && slices.Contains(m.refuses, name)
		}
	}
	return false
}
