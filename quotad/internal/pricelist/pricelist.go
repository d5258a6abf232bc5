// Package pricelist reads public tables of prices: LiteLLM's model_prices_and_context_window.json and the api.json of
// models.dev. It turns a model's entry into one of an org.yaml, to the nano-dollar, and tells what it leaves out.
//
// It is pure: bytes in, prices and remarks out. People keep these tables, and they err: what comes out is to be read.
package pricelist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

// The formats.
const (
	LiteLLM   = "litellm"
	ModelsDev = "models.dev"
)

// Formats lists the formats.
func Formats() []string { return []string{LiteLLM, ModelsDev} }

// FileBytesMax bounds a table. The largest known has 2 MB.
const FileBytesMax = 32 << 20

// Table is a table of prices by the name of the model.
type Table struct {
	Format string
	models map[string]map[string]any
}

// Read reads a table; without a format it is told by its shape.
func Read(format string, text []byte) (*Table, error) {
	if len(text) > FileBytesMax {
		return nil, fmt.Errorf("is longer than %d bytes", FileBytesMax)
	}
	text = bytes.TrimPrefix(text, []byte("\uFEFF")) // a byte order mark
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a price must not become a float on the way
	var root map[string]any
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("is no JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows after the JSON object")
	}
	if err := once(text); err != nil {
		return nil, err
	}
	t := &Table{Format: format, models: map[string]map[string]any{}}
	if format == "" {
		t.Format = guess(root)
	}
	switch t.Format {
	case LiteLLM:
		for name, v := range root {
			if entry, ok := v.(map[string]any); ok && name != "sample_spec" { // which explains the fields
				t.models[name] = entry
			}
		}
	case ModelsDev:
		t.addProviders(root)
	default:
		return nil, fmt.Errorf("looks like none of %s: say which it is", strings.Join(Formats(), ", "))
	}
	if len(t.models) == 0 {
		return nil, fmt.Errorf("holds no models in the format of %s", t.Format)
	}
	return t, nil
}

func guess(root map[string]any) string {
	for _, v := range root {
		entry, _ := v.(map[string]any)
		if entry["models"] != nil || entry["cost"] != nil {
			return ModelsDev
		}
		if entry["litellm_provider"] != nil || entry["input_cost_per_token"] != nil {
			return LiteLLM
		}
	}
	return ""
}

// addProviders adds the models of api.json as provider/model. A file of models alone has them by name.
func (t *Table) addProviders(root map[string]any) {
	for name, v := range root {
		entry, _ := v.(map[string]any)
		models, ok := entry["models"].(map[string]any)
		if !ok {
			if entry["cost"] != nil {
				t.models[name] = entry
			}
			continue
		}
		for id, m := range models {
			if model, ok := m.(map[string]any); ok {
				t.models[name+"/"+id] = model
			}
		}
	}
}

// Has reports whether the table has the model.
func (t *Table) Has(model string) bool { return t.models[model] != nil }

// Models lists the models by name.
func (t *Table) Models() []string { return slices.Sorted(maps.Keys(t.models)) }

// Price is the price of a model as JSON in the shape of an entry of per_million_usd, with remarks on all that the table
// says and the entry does not, or that the entry says and the table does not.
func (t *Table) Price(model string) (entry []byte, remarks []string, err error) {
	m := t.models[model]
	if m == nil {
		return nil, nil, fmt.Errorf("%s: is not in the table", model)
	}
	d := &draft{rates: map[string]map[int64]rates{}}
	if t.Format == LiteLLM {
		d.readLiteLLM(m)
	} else {
		d.readModelsDev(m)
	}
	entry = d.finish()
	for i, r := range d.remarks {
		d.remarks[i] = model + ": " + r
	}
	for i, f := range d.faults {
		d.faults[i] = fmt.Errorf("%s: %w", model, f)
	}
	slices.Sort(d.remarks)
	return entry, d.remarks, errors.Join(d.faults...)
}

// rates are nano-dollars per million tokens by the keys of org.yaml.
type rates map[string]registry.Nano

// draft is a price being read.
type draft struct {
	rates     map[string]map[int64]rates // by service tier, and by the tokens above which they hold
	webSearch *registry.Nano
	speeds    map[string]registry.Nano
	geos      map[string]registry.Nano
	remarks   []string
	faults    []error
}

func (d *draft) remark(format string, args ...any) {
	d.remarks = append(d.remarks, fmt.Sprintf(format, args...))
}

func (d *draft) set(tier string, above int64, key string, v registry.Nano) {
	if d.rates[tier] == nil {
		d.rates[tier] = map[int64]rates{}
	}
	if d.rates[tier][above] == nil {
		d.rates[tier][above] = rates{}
	}
	d.rates[tier][above][key] = v
}

// number reads a decimal times 10^digits, exactly. null is none.
func (d *draft) number(field string, v any, digits int) (registry.Nano, bool) {
	if v == nil {
		return 0, false
	}
	n, ok := v.(json.Number)
	if !ok {
		d.faults = append(d.faults, fmt.Errorf("%s: is not a number", field))
		return 0, false
	}
	x, err := registry.ParseDecimal(n.String(), digits)
	if err != nil {
		d.faults = append(d.faults, fmt.Errorf("%s: %s %w", field, n, err))
		return 0, false
	}
	return registry.Nano(x), true
}

// entryJSON is an entry of per_million_usd.
type entryJSON struct {
	rates
	PerCall *registry.PerCall
	Above   []map[string]any
	Tiers   map[string]registry.Nano
	Speeds  map[string]registry.Nano
	Geos    map[string]registry.Nano
}

func (e entryJSON) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	for key, v := range e.rates {
		out[key] = v
	}
	if e.PerCall != nil {
		out["per_call_usd"] = e.PerCall
	}
	if len(e.Above) > 0 {
		out["above"] = e.Above
	}
	if len(e.Tiers) > 0 {
		out["service_tiers"] = e.Tiers
	}
	if len(e.Speeds) > 0 {
		out["speeds"] = e.Speeds
	}
	if len(e.Geos) > 0 {
		out["inference_geo"] = e.Geos
	}
	return json.Marshal(out)
}

func (d *draft) finish() []byte {
	base := d.rates[""][0]
	if _, ok := base["input"]; !ok {
		d.faults = append(d.faults, errors.New("has no price of input"))
		return nil
	}
	e := entryJSON{rates: base, Tiers: map[string]registry.Nano{}, Speeds: d.speeds, Geos: d.geos}
	if d.webSearch != nil {
		e.PerCall = &registry.PerCall{WebSearch: *d.webSearch}
	}
	for _, tier := range slices.Sorted(maps.Keys(d.rates)) {
		if tier == "" {
			continue
		}
		if times, ok := d.times(tier); ok {
			e.Tiers[tier] = times
		}
	}
	for _, above := range slices.Sorted(maps.Keys(d.rates[""])) {
		if above == 0 {
			continue
		}
		step := map[string]any{"tokens": above}
		for key, v := range d.complete(above) {
			step[key] = v
		}
		e.Above = append(e.Above, step)
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic("BUG: a price does not encode: " + err.Error())
	}
	return b
}

// complete is a step with what the table does not state of it: as dear as below the step, and cached input as dear as any.
func (d *draft) complete(above int64) rates {
	base, step := d.rates[""][0], d.rates[""][above]
	for _, key := range slices.Sorted(maps.Keys(base)) {
		if _, ok := step[key]; ok {
			continue
		}
		v := base[key]
		if strings.HasPrefix(key, "cache_") {
			v = max(v, step["input"])
		}
		step[key] = v
		d.remark("%s above %d tokens is not stated: %s is taken", key, above, v.USD())
	}
	return step
}

// times is how many times the usual price a tier costs, when that is one number for all that is stated. What is not stated
// goes with it where that is the dearer reading.
func (d *draft) times(tier string) (registry.Nano, bool) {
	const one = 1_000_000_000
	var times *big.Int
	var missing []string
	for _, above := range slices.Sorted(maps.Keys(d.rates[""])) {
		for _, key := range slices.Sorted(maps.Keys(d.rates[""][above])) {
			usual := d.rates[""][above][key]
			v, ok := d.rates[tier][above][key]
			switch {
			case !ok:
				missing = append(missing, at(key, above))
				continue
			case usual == 0 && v == 0:
				continue
			case usual == 0:
				d.remark("service tier %s is not taken over: %s has no usual price", tier, at(key, above))
				return 0, false
			}
			x, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(one)), big.NewInt(int64(usual)), new(big.Int))
			if rest.Sign() != 0 || times != nil && times.Cmp(x) != 0 || !x.IsInt64() {
				d.remark("service tier %s is not taken over: its prices are not one multiple of the usual ones (%s is %s, usually %s)",
					tier, at(key, above), v.USD(), usual.USD())
				return 0, false
			}
			times = x
		}
	}
	for _, above := range slices.Sorted(maps.Keys(d.rates[tier])) {
		for _, key := range slices.Sorted(maps.Keys(d.rates[tier][above])) {
			if _, ok := d.rates[""][above][key]; !ok {
				d.remark("service tier %s is not taken over: %s has no usual price", tier, at(key, above))
				return 0, false
			}
		}
	}
	switch {
	case times == nil:
		return 0, false
	case len(missing) > 0 && times.Int64() < one:
		d.remark("service tier %s is not taken over: it states no price of %s", tier, strings.Join(missing, ", "))
		return 0, false
	case len(missing) > 0:
		d.remark("service tier %s states no price of %s: times %s is taken there too", tier, strings.Join(missing, ", "),
			registry.Nano(times.Int64()).In(""))
	}
	return registry.Nano(times.Int64()), true
}

func at(key string, above int64) string {
	if above == 0 {
		return key
	}
	return fmt.Sprintf("%s above %d", key, above)
}
