package pricelist

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// perMillion are the decimals between dollars and nano-dollars.
const perMillion = 9

// modelsDevRates are the fields of cost that price a kind of tokens.
var modelsDevRates = map[string]string{
	"input":        "input",
	"output":       "output",
	"cache_read":   "cache_read",
	"cache_write":  "cache_write_5m",
	"input_audio":  "audio_input",
	"output_audio": "audio_output",
	"reasoning":    reasoning,
}

// over200k is made from tiers, for readers that do not know those.
const over200k = "context_over_200k"

func (d *draft) readModelsDev(m map[string]any) {
	cost, _ := m["cost"].(map[string]any)
	steps, _ := cost["tiers"].([]any)
	for _, field := range slices.Sorted(maps.Keys(cost)) {
		switch {
		case modelsDevRates[field] != "":
			d.rate("cost."+field, field, 0, cost[field])
		case field == "tiers" && (steps != nil || cost[field] == nil):
		case field == over200k && len(steps) > 0:
			// The tiers say it.
		case field == over200k:
			d.step("cost."+field, 200_000, cost[field])
		default:
			d.remark("cost.%s is not understood, and not taken over", field)
		}
	}
	for i, v := range steps {
		path := fmt.Sprintf("cost.tiers[%d]", i)
		step, _ := v.(map[string]any)
		tier, _ := step["tier"].(map[string]any)
		size, _ := tier["size"].(json.Number)
		tokens, err := size.Int64()
		kind, typed := tier["type"].(string)
		if err != nil || tokens <= 0 || typed && kind != "context" {
			d.remark("%s is not understood, and not taken over", path)
			continue
		}
		d.step(path, tokens, step)
	}
	d.dropReasoning()
}

func (d *draft) rate(path, field string, above int64, v any) {
	if n, ok := d.number(path, v, perMillion); ok {
		d.set("", above, modelsDevRates[field], n)
	}
}

func (d *draft) step(path string, above int64, v any) {
	step, ok := v.(map[string]any)
	if !ok {
		d.remark("%s is not understood, and not taken over", path)
		return
	}
	for _, field := range slices.Sorted(maps.Keys(step)) {
		if field == "tier" { // which says where the step begins
			continue
		}
		if modelsDevRates[field] == "" {
			d.remark("%s.%s is not understood, and not taken over", path, field)
			continue
		}
		d.rate(path+"."+field, field, above, step[field])
	}
}
