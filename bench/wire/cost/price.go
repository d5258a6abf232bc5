// Package cost is a second opinion on what an answer costs: it reads the provider's raw answer and the price list as
// people write them, and computes with fractions of any size. It shares no code with what it judges.
package cost

import (
	"fmt"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Price is an entry of per_million_usd: the decimals as they are written, "" where there is none.
type Price struct {
	Rates        `yaml:",inline"`
	PerCall      map[string]string `yaml:"per_call_usd"`
	Above        []Step            `yaml:"above"`
	ServiceTiers map[string]string `yaml:"service_tiers"`
	Speeds       map[string]string `yaml:"speeds"`
	InferenceGeo map[string]string `yaml:"inference_geo"`
}

// Rates are dollars per million tokens.
type Rates struct {
	Input        string `yaml:"input"`
	CacheRead    string `yaml:"cache_read"`
	CacheWrite5m string `yaml:"cache_write_5m"`
	CacheWrite1h string `yaml:"cache_write_1h"`
	Output       string `yaml:"output"`
	AudioInput   string `yaml:"audio_input"`
	AudioOutput  string `yaml:"audio_output"`
	ImageInput   string `yaml:"image_input"`
	ImageOutput  string `yaml:"image_output"`
}

// Step is the rates of requests with longer prompts.
type Step struct {
	Tokens int64 `yaml:"tokens"`
	Rates  `yaml:",inline"`
}

// Prices reads the price versions of an org.yaml, by version and name.
func Prices(org []byte) (map[string]map[string]Price, error) {
	var file struct {
		Prices []struct {
			ID            string           `yaml:"id"`
			PerMillionUSD map[string]Price `yaml:"per_million_usd"`
		} `yaml:"prices"`
	}
	if err := yaml.Unmarshal(org, &file); err != nil {
		return nil, err
	}
	out := map[string]map[string]Price{}
	for _, v := range file.Prices {
		out[v.ID] = v.PerMillionUSD
	}
	return out, nil
}

// Exact reads a decimal of dollars as nano-dollars, of which it must be a whole number.
func Exact(dollars string) (*big.Int, error) {
	r, ok := new(big.Rat).SetString(dollars)
	if ok {
		r.Mul(r, big.NewRat(1_000_000_000, 1))
	}
	if !ok || !r.IsInt() {
		return nil, fmt.Errorf("%q is no number of nano-dollars", dollars)
	}
	return r.Num(), nil
}

// Nano is what was used costs, in nano-dollars, rounded half up once.
func (p Price) Nano(u Usage) (*big.Int, error) {
	rates := p.Rates
	for _, s := range p.Above {
		if u.Prompt() > s.Tokens {
			rates = s.Rates
		}
	}
	var err error
	decimal := func(texts ...string) *big.Rat {
		for _, text := range texts {
			if text == "" {
				continue
			}
			r, ok := new(big.Rat).SetString(text)
			if !ok {
				err = fmt.Errorf("%q is no decimal", text)
				break
			}
			return r
		}
		return new(big.Rat)
	}
	total := new(big.Rat)
	add := func(n int64, each *big.Rat) { total.Add(total, each.Mul(each, new(big.Rat).SetInt64(n))) }
	// Behind each kind stands what it costs where nothing else is said.
	add(u.Input, decimal(rates.Input))
	add(u.CacheRead, decimal(rates.CacheRead, rates.Input))
	add(u.CacheWrite5m, decimal(rates.CacheWrite5m, rates.Input))
	add(u.CacheWrite1h, decimal(rates.CacheWrite1h, rates.CacheWrite5m, rates.Input))
	add(u.AudioInput, decimal(rates.AudioInput, rates.Input))
	add(u.ImageInput, decimal(rates.ImageInput, rates.Input))
	add(u.Output, decimal(rates.Output))
	add(u.AudioOutput, decimal(rates.AudioOutput, rates.Output))
	add(u.ImageOutput, decimal(rates.ImageOutput, rates.Output))
	total.Quo(total, big.NewRat(1_000_000, 1))
	for word, list := range map[*string]map[string]string{&u.Tier: p.ServiceTiers, &u.Speed: p.Speeds, &u.Geo: p.InferenceGeo} {
		if times, listed := list[strings.ToLower(*word)]; listed {
			total.Mul(total, decimal(times))
		}
	}
	add(u.WebSearches, decimal(p.PerCall["web_search"]))
	total.Mul(total, big.NewRat(1_000_000_000, 1))
	total.Add(total, big.NewRat(1, 2))
	return new(big.Int).Div(total.Num(), total.Denom()), err
}
