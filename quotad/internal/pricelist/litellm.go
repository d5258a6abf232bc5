package pricelist

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

// perToken are the decimals between dollars a token and nano-dollars a million tokens.
const perToken = 6 + 9

// liteLLMRates are the fields that price a kind of tokens, before their suffixes.
var liteLLMRates = map[string]string{
	"input_cost_per_token":                      "input",
	"output_cost_per_token":                     "output",
	"cache_read_input_token_cost":               "cache_read",
	"cache_creation_input_token_cost":           "cache_write_5m",
	"cache_creation_input_token_cost_above_1hr": "cache_write_1h",
	"input_cost_per_audio_token":                "audio_input",
	"output_cost_per_audio_token":               "audio_output",
	"input_cost_per_image_token":                "image_input",
	"output_cost_per_image_token":               "image_output",
	"output_cost_per_reasoning_token":           reasoning,
}

// reasoning is output here: its price must be that of output.
const reasoning = "reasoning"

// liteLLMTiers are the suffixes of service tiers.
var liteLLMTiers = map[string]string{"_flex": "flex", "_priority": "priority", "_batches": "batch"}

var aboveTokens = regexp.MustCompile(`_above_(\d{1,6})k_tokens$`)

// liteLLMOther are fields that have nothing to do with prices.
var liteLLMOther = []string{
	"litellm_provider", "mode", "source", "sources", "deprecation_date", "metadata", "comment", "rpm", "tpm", "output_vector_size",
	"tool_use_system_prompt_tokens", "uses_embed_content",
}

func (d *draft) readLiteLLM(m map[string]any) {
	for _, field := range slices.Sorted(maps.Keys(m)) {
		base, tier, above := fieldParts(field)
		key, ok := liteLLMRates[base]
		switch {
		case ok:
			if v, ok := d.number(field, m[field], perToken); ok {
				d.set(tier, above, key, v)
			}
		case field == "search_context_cost_per_query":
			d.searches(field, m[field])
		case field == "provider_specific_entry" && m["litellm_provider"] == "anthropic":
			d.terms(field, m[field])
		case slices.Contains(liteLLMOther, field), strings.HasPrefix(field, "supports_"), strings.HasPrefix(field, "supported_"),
			strings.HasPrefix(field, "max_"):
		case m[field] != nil:
			d.remark("%s is not understood, and not taken over", field)
		}
	}
	d.dropReasoning()
}

// fieldParts takes the suffixes off a field. They come in any order.
func fieldParts(field string) (base, tier string, above int64) {
	for {
		before := field
		for suffix, name := range liteLLMTiers {
			if rest, ok := strings.CutSuffix(field, suffix); ok && tier == "" {
				field, tier = rest, name
			}
		}
		if g := aboveTokens.FindStringSubmatch(field); g != nil && above == 0 {
			thousands, _ := strconv.ParseInt(g[1], 10, 64) // digits, and few
			field, above = strings.TrimSuffix(field, g[0]), thousands*1_000
		}
		if field == before {
			return field, tier, above
		}
	}
}

// terms reads how many times the rates Anthropic's models cost where they are asked to be fast, or to stay in a geography.
func (d *draft) terms(field string, v any) {
	each, ok := v.(map[string]any)
	if !ok {
		d.remark("%s is not understood, and not taken over", field)
	}
	for _, name := range slices.Sorted(maps.Keys(each)) {
		to := map[string]*map[string]registry.Nano{"fast": &d.speeds, "us": &d.geos}[name]
		if to == nil {
			d.remark("%s.%s is not understood, and not taken over", field, name)
		} else if times, ok := d.number(field+"."+name, each[name], 9); ok {
			*to = map[string]registry.Nano{name: times}
		}
	}
}

// searches reads the price of a search, when it is the same for contexts of every size.
func (d *draft) searches(field string, v any) {
	sizes, ok := v.(map[string]any)
	if !ok {
		d.remark("%s is not understood, and not taken over", field)
		return
	}
	var each []registry.Nano
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		if x, ok := d.number(field+"."+size, sizes[size], 9); ok {
			each = append(each, x)
		}
	}
	switch {
	case len(each) == 0:
	case slices.Min(each) != slices.Max(each):
		d.remark("%s differs by the size of the context, and is not taken over", field)
	default:
		d.webSearch = &each[0]
	}
}

// dropReasoning takes out what reasoning costs, which is what output costs or is told.
func (d *draft) dropReasoning() {
	for _, tier := range slices.Sorted(maps.Keys(d.rates)) {
		for above, r := range d.rates[tier] {
			if v, ok := r[reasoning]; ok && v != r["output"] {
				d.remark("reasoning costs %s, not what output does, %s: it is counted as output", v.USD(), r["output"].USD())
			}
			if delete(r, reasoning); len(r) == 0 {
				delete(d.rates[tier], above)
			}
		}
	}
}
