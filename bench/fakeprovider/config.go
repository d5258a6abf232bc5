// Package fakeprovider is a model provider that invents its answers and tells the truth about what it served.
//
// It speaks the OpenAI and the Anthropic dialect over plain net/http. Whole-system tests and benchmarks use it as the
// outside witness: whatever a gateway in front of it claims about tokens, money, retries and cancellations can be
// compared with what really arrived here and what really went out. It shares no code with the gateway for that reason,
// not even the price arithmetic.
//
// The README beside this folder describes directives, control calls and the witness for people who use it over HTTP.
package fakeprovider

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config is the start state of a Server. Everything but the last three fields can be changed later with Apply.
type Config struct {
	Keys          []Key               // accepted API keys; with none, every request gets 401
	Models        []string            // names for GET /v1/models; empty: "fake-large", "fake-small", "fake-embed"
	StrictModels  bool                // answer 404 for a model that is not in Models
	Defaults      Settings            // apply to every request
	ModelSettings map[string]Settings // apply after Defaults, by model name
	Rules         []Rule              // apply after ModelSettings, the first that fires
	Prices        map[string]Price    // by model name; "*" stands for every other model
	Limits        map[string]Limits   // by model name; a model without has none

	RecordsMax int  // requests remembered, 1..1,048,576; default 10,000
	Detail     bool // records keep header names and the first 64 KiB of the body
	Seed       uint64
	// Seed is mixed into request ids so that two servers do not give the same ones; 0 takes the start time.
}

// Key is one accepted API key. Name stands for it in the witness, which never shows Secret.
type Key struct {
	Name   string `json:"name"`
	Secret string `json:"secret,omitempty"`
}

// Price is nano-dollars per million tokens of each kind.
type Price struct {
	Input        int64 `json:"input"`
	CacheRead    int64 `json:"cache_read"`
	CacheWrite5m int64 `json:"cache_write_5m"`
	CacheWrite1h int64 `json:"cache_write_1h"`
	Output       int64 `json:"output"`
}

// Settings are control settings by name: the same names and values as in a directive ("tokens": "20").
// In JSON a value may also be a number or a boolean.
type Settings map[string]string

// UnmarshalJSON accepts strings, numbers and booleans as values.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	out := make(Settings, len(raw))
	for key, value := range raw {
		text := string(value)
		switch {
		case strings.HasPrefix(text, `"`):
			if err := json.Unmarshal(value, &text); err != nil {
				return fmt.Errorf("setting %s: %w", key, err)
			}
		case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["), text == "null":
			return fmt.Errorf("setting %s: want a string, a number or a boolean", key)
		}
		out[key] = text
	}
	*s = out
	return nil
}

// list returns the settings in the order they are applied: by name, so that "status" comes after "fault" and wins.
func (s Settings) list() []Setting {
	out := make([]Setting, 0, len(s))
	for _, key := range slices.Sorted(maps.Keys(s)) {
		out = append(out, Setting{Key: key, Value: s[key]})
	}
	return out
}

// Rule changes the behaviour for some requests.
//
// A rule sees the authorised, well-formed requests that match Model, Key and Endpoint (empty matches all). It fires on
// every Every-th of them (0 and 1: on each), at most Next times (0: no limit), and not later than For after it was
// installed (0: no end). Rules stand in order and only the first that fires is applied. A rule behind one that fired
// does not see the request.
type Rule struct {
	Model    string   `json:"model,omitempty"`
	Key      string   `json:"key,omitempty"`      // a key's name
	Endpoint string   `json:"endpoint,omitempty"` // chat, responses, messages, embeddings, count_tokens
	Next     int64    `json:"next,omitempty"`
	Every    int64    `json:"every,omitempty"`
	For      Duration `json:"for,omitempty"`
	Set      Settings `json:"set"`
}

// Duration is a time.Duration that is written "1.5s" in JSON.
type Duration time.Duration

// MarshalText writes the Go form of a duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the Go form of a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	*d = Duration(v)
	return nil
}

// WithDefaults fills the empty fields.
func (c Config) WithDefaults() Config {
	if len(c.Models) == 0 {
		c.Models = []string{"fake-large", "fake-small", "fake-embed"}
	}
	if c.RecordsMax == 0 {
		c.RecordsMax = recordsDefault
	}
	return c
}

// Validate reports every fault of the config together.
func (c Config) Validate() error {
	var faults []error
	if c.RecordsMax < 0 || c.RecordsMax > recordsMax {
		faults = append(faults, fmt.Errorf("records max %d: want 1..%d", c.RecordsMax, recordsMax))
	}
	faults = append(faults, Control{
		Keys: &c.Keys, Models: &c.Models, Defaults: &c.Defaults, ModelSettings: &c.ModelSettings,
		Rules: &c.Rules, Prices: &c.Prices, Limits: &c.Limits,
	}.Validate())
	return errors.Join(faults...)
}

// Control is a change of a running Server. A nil section stays as it is; any other replaces the section whole, so that
// an empty Rules ends all rules.
type Control struct {
	Keys          *[]Key               `json:"keys,omitempty"`
	Models        *[]string            `json:"models,omitempty"`
	StrictModels  *bool                `json:"strict_models,omitempty"`
	Defaults      *Settings            `json:"defaults,omitempty"`
	ModelSettings *map[string]Settings `json:"model_settings,omitempty"`
	Rules         *[]Rule              `json:"rules,omitempty"`
	AddRules      []Rule               `json:"add_rules,omitempty"` // behind the rules in force
	Prices        *map[string]Price    `json:"prices,omitempty"`
	Limits        *map[string]Limits   `json:"limits,omitempty"` // all begin full
}

// Validate reports every fault of the change together.
func (c Control) Validate() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Keys != nil {
		faults = append(faults, validateKeys(*c.Keys)...)
	}
	if c.Models != nil && len(*c.Models) > modelsMax {
		add("models: %d names, at most %d", len(*c.Models), modelsMax)
	}
	if c.Defaults != nil {
		if err := checkSettings(*c.Defaults); err != nil {
			add("defaults: %w", err)
		}
	}
	if c.ModelSettings != nil {
		for _, model := range slices.Sorted(maps.Keys(*c.ModelSettings)) {
			if err := checkSettings((*c.ModelSettings)[model]); err != nil {
				add("model settings %q: %w", model, err)
			}
		}
	}
	if c.Rules != nil {
		faults = append(faults, validateRules(*c.Rules)...)
	}
	faults = append(faults, validateRules(c.AddRules)...)
	if c.Prices != nil {
		for _, model := range slices.Sorted(maps.Keys(*c.Prices)) {
			p := (*c.Prices)[model]
			if min(p.Input, p.CacheRead, p.CacheWrite5m, p.CacheWrite1h, p.Output) < 0 {
				add("price %q: negative", model)
			}
		}
		if len(*c.Prices) > modelsMax {
			add("prices: %d models, at most %d", len(*c.Prices), modelsMax)
		}
	}
	if c.Limits != nil {
		for _, model := range slices.Sorted(maps.Keys(*c.Limits)) {
			if !(*c.Limits)[model].valid() {
				add("limits %q: want 0..%d", model, limitMax)
			}
		}
		if len(*c.Limits) > modelsMax {
			add("limits: %d models, at most %d", len(*c.Limits), modelsMax)
		}
	}
	return errors.Join(faults...)
}

func validateKeys(keys []Key) (faults []error) {
	if len(keys) > keysMax {
		faults = append(faults, fmt.Errorf("keys: %d, at most %d", len(keys), keysMax))
	}
	secrets, names := map[string]bool{}, map[string]bool{}
	for i, k := range keys {
		switch {
		case k.Name == "" || len(k.Name) > nameBytesMax:
			faults = append(faults, fmt.Errorf("key %d: want a name of 1..%d bytes", i, nameBytesMax))
		case k.Secret == "":
			faults = append(faults, fmt.Errorf("key %q: no secret", k.Name))
		case secrets[k.Secret] || names[k.Name]:
			faults = append(faults, fmt.Errorf("key %q: name or secret appears twice", k.Name))
		}
		secrets[k.Secret], names[k.Name] = true, true
	}
	return faults
}

func validateRules(rules []Rule) (faults []error) {
	if len(rules) > rulesMax {
		faults = append(faults, fmt.Errorf("rules: %d, at most %d", len(rules), rulesMax))
	}
	for i, r := range rules {
		if min(r.Next, r.Every, int64(r.For)) < 0 {
			faults = append(faults, fmt.Errorf("rule %d: next, every and for must not be negative", i))
		}
		if r.Endpoint != "" && !slices.Contains(endpoints(), Endpoint(r.Endpoint)) {
			faults = append(faults, fmt.Errorf("rule %d: unknown endpoint %q", i, r.Endpoint))
		}
		if err := checkSettings(r.Set); err != nil {
			faults = append(faults, fmt.Errorf("rule %d: %w", i, err))
		}
	}
	return faults
}

// checkSettings applies s to a behaviour that nobody uses.
func checkSettings(s Settings) error {
	b := NewBehavior()
	return b.Apply(s.list())
}
