package registry

import (
	"fmt"
	"strings"
)

// PriceVersion is a price list in force from a moment until the next one's.
type PriceVersion struct {
	ID            string           `json:"-"`
	ValidFrom     Time             `json:"valid_from"`
	PerMillionUSD map[string]Price `json:"per_million_usd"`
}

// Price is what a deployment costs. What a list from before has no words for is left out when it is not stated, so that
// the list stays what it was.
type Price struct {
	Rates
	PerCallUSD *PerCall `json:"per_call_usd,omitempty"`
	// Above prices requests with longer prompts: the last step that is exceeded prices all of the request.
	Above []Step `json:"above,omitempty"`
	// ServiceTiers says how many times the rates a provider's service tier costs. One that is not named costs the rates.
	ServiceTiers map[string]Nano `json:"service_tiers,omitempty"`
	// Speeds and InferenceGeo say the same of Anthropic's members of these names. Each comes on top of the others.
	Speeds       map[string]Nano `json:"speeds,omitempty"`
	InferenceGeo map[string]Nano `json:"inference_geo,omitempty"`
}

// Rates is in nano-dollars per million tokens.
type Rates struct {
	Input        Nano  `json:"input"`
	CacheRead    Nano  `json:"cache_read"`
	CacheWrite5m Nano  `json:"cache_write_5m"`
	CacheWrite1h Nano  `json:"cache_write_1h"`
	Output       Nano  `json:"output"`
	AudioInput   *Nano `json:"audio_input,omitempty"`  // nil: as input
	AudioOutput  *Nano `json:"audio_output,omitempty"` // nil: as output
	ImageInput   *Nano `json:"image_input,omitempty"`  // nil: as input
	ImageOutput  *Nano `json:"image_output,omitempty"` // nil: as output
}

// PerCall is in nano-dollars a call. Service tiers do not change it.
type PerCall struct {
	WebSearch Nano `json:"web_search"`
}

// Step is the rates of requests whose whole prompt, cached tokens included, is longer than Tokens.
type Step struct {
	Tokens int64 `json:"tokens"`
	Rates
}

func (m *mapping) readPrices() *PriceVersion {
	p := &PriceVersion{PerMillionUSD: map[string]Price{}}
	m.with(m.need("valid_from"), "valid_from", parseMoment(&p.ValidFrom))
	n := m.need("per_million_usd")
	list := m.rd.mapping(n, m.sub("per_million_usd"))
	if list == nil || n == nil {
		return p
	}
	if len(list.keys) == 0 {
		m.rd.fault(n.Line, list.path, "is empty: name at least one price")
	}
	for _, name := range list.keys {
		if !validID(name) {
			m.rd.fault(list.from[name], list.sub(name), "is not a name (1 to %d of a-z A-Z 0-9 . _ -)", idBytesMax)
			continue
		}
		var x Price
		if pm := m.rd.mapping(list.take(name), list.sub(name)); pm != nil {
			x = pm.price()
			pm.close()
		}
		p.PerMillionUSD[name] = x
	}
	return p
}

func (m *mapping) price() Price {
	x := Price{Rates: m.rates()}
	if n := m.take("per_call_usd"); n != nil {
		if c := m.rd.mapping(n, m.sub("per_call_usd")); c != nil {
			x.PerCallUSD = &PerCall{}
			c.with(c.need("web_search"), "web_search", parseNano(&x.PerCallUSD.WebSearch, 0, moneyMax))
			c.close()
		}
	}
	x.Above = m.steps()
	x.ServiceTiers = m.times("service_tiers", "tier")
	x.Speeds = m.times("speeds", "speed")
	x.InferenceGeo = m.times("inference_geo", "geography")
	return x
}

// rateKeys are the keys of Rates.
func rateKeys() []string {
	return []string{
		"input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "audio_input", "audio_output", "image_input",
		"image_output",
	}
}

// rates reads what tokens cost. A cached token whose price is not stated costs what an uncached one does: too much is
// seen and put right, nothing at all is not.
func (m *mapping) rates() Rates {
	var x Rates
	m.with(m.need("input"), "input", parseNano(&x.Input, 0, moneyMax))
	x.CacheRead = x.Input
	m.with(m.take("cache_read"), "cache_read", parseNano(&x.CacheRead, 0, moneyMax))
	x.CacheWrite5m = x.Input
	m.with(m.take("cache_write_5m"), "cache_write_5m", parseNano(&x.CacheWrite5m, 0, moneyMax))
	x.CacheWrite1h = x.CacheWrite5m
	m.with(m.take("cache_write_1h"), "cache_write_1h", parseNano(&x.CacheWrite1h, 0, moneyMax))
	m.with(m.take("output"), "output", parseNano(&x.Output, 0, moneyMax))
	for _, apart := range []struct {
		key string
		to  **Nano
	}{{"audio_input", &x.AudioInput}, {"audio_output", &x.AudioOutput}, {"image_input", &x.ImageInput}, {"image_output", &x.ImageOutput}} {
		if n := m.take(apart.key); n != nil {
			*apart.to = new(Nano)
			m.with(n, apart.key, parseNano(*apart.to, 0, moneyMax))
		}
	}
	return x
}

// steps reads above. A step states whatever the entry around it does: what it left out would cost more than it should, or
// nothing.
func (m *mapping) steps() []Step {
	n := m.take("above")
	if n == nil {
		return nil
	}
	path := m.sub("above")
	before := len(m.rd.faults)
	nodes := m.rd.items(n, path, stepsMax)
	if len(nodes) == 0 && len(m.rd.faults) == before {
		m.rd.fault(n.Line, path, "is empty: leave it out, or state a step")
	}
	var out []Step
	for i, c := range nodes {
		sm := m.rd.mapping(c, fmt.Sprintf("%s[%d]", path, i))
		if sm == nil {
			continue
		}
		var s Step
		if sm.need("tokens") != nil {
			sm.integer("tokens", &s.Tokens, 0, 1, tokensMax)
		}
		s.Rates = sm.rates()
		for _, key := range rateKeys() {
			if m.at[key] != nil && sm.at[key] == nil && key != "input" {
				m.rd.fault(sm.line, sm.sub(key), "is missing: the price itself states it, so that every step must")
			}
		}
		if len(out) > 0 && s.Tokens > 0 && s.Tokens <= out[len(out)-1].Tokens {
			m.rd.fault(m.rd.lineOf(sm.sub("tokens")), sm.sub("tokens"), "%d is not above the step before, %d",
				s.Tokens, out[len(out)-1].Tokens)
		}
		sm.close()
		out = append(out, s)
	}
	return out
}

// times reads how many times the rates each of some kind costs.
func (m *mapping) times(key, kind string) map[string]Nano {
	n := m.take(key)
	if n == nil {
		return nil
	}
	tm := m.rd.mapping(n, m.sub(key))
	if tm == nil {
		return nil
	}
	switch {
	case len(tm.keys) == 0:
		m.rd.fault(n.Line, tm.path, "is empty: leave it out, or name a %s", kind)
	case len(tm.keys) > timesMax:
		m.rd.fault(n.Line, tm.path, "has %d names, more than %d", len(tm.keys), timesMax)
	}
	out := map[string]Nano{}
	for _, name := range tm.keys {
		v := tm.take(name)
		if !validID(name) || name != strings.ToLower(name) {
			m.rd.fault(tm.from[name], tm.sub(name), "is not the name of a %s (1 to %d of a-z 0-9 . _ -)", kind, idBytesMax)
			continue
		}
		var times Nano
		tm.with(v, name, parseNano(&times, 0, timesMost))
		out[name] = times
	}
	return out
}

// ParseDecimal reads a decimal, also with an exponent, and returns it times 10^digits. It never goes through a float: what
// cannot be kept exactly is an error.
func ParseDecimal(text string, digits int) (int64, error) { return parseDecimal(text, digits) }

// Compare shows what makes one object another. An object without a spec is none.
func Compare(before, after Object) Difference { return difference(before, after) }

// newer names what in the list the first version does not know.
func (p *PriceVersion) newer() string {
	for _, name := range sortedKeys(p.PerMillionUSD) {
		x := p.PerMillionUSD[name]
		for _, k := range []struct {
			key string
			is  bool
		}{
			{"audio_input", x.AudioInput != nil}, {"audio_output", x.AudioOutput != nil}, {"image_input", x.ImageInput != nil},
			{"image_output", x.ImageOutput != nil}, {"speeds", len(x.Speeds) > 0}, {"inference_geo", len(x.InferenceGeo) > 0},
			{"per_call_usd", x.PerCallUSD != nil}, {"above", len(x.Above) > 0}, {"service_tiers", len(x.ServiceTiers) > 0},
		} {
			if k.is {
				return k.key + " of price " + name
			}
		}
	}
	return ""
}
