package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// The kinds of objects.
const (
	KindTeam         = "team"
	KindKey          = "key"
	KindAlias        = "alias"
	KindDeployment   = "deployment"
	KindPrice        = "price"
	KindCredential   = "credential"
	KindOrg          = "org"
	KindBusinessUnit = "business_unit"
	KindFX           = "fx"
	KindSidecar      = "sidecar"
	KindCurrency     = "currency"
)

// OrgID is the id of the one object of kind org, and the owner of its resources. It is the id of its currency too.
const OrgID = "org"

// The types below are the specs of the kinds. Their JSON has the shape of the corresponding part of org.yaml, without
// the id. The parser writes defaults out, so that a stored spec means the same to every version that reads it.
// What accessors return is shared and must not be changed; copy before changing.

// Budget is a cap a calendar month.
type Budget struct {
	Monthly  Nano       `json:"monthly"`
	Currency string     `json:"currency,omitempty"` // of monthly; empty: the org's
	Hard     bool       `json:"hard"`               // refuse when spent
	AlertAt  []Permille `json:"alert_at"`
}

// RunBudget is a cap for each run of an agent: a run is the requests with one x-gw-run-id.
type RunBudget struct {
	Max      Nano   `json:"max,omitempty"`       // in the org's currency; 0 is none
	MaxCalls int64  `json:"max_calls,omitempty"` // requests; 0 is none
	Lifetime Millis `json:"lifetime"`            // what a run has spent is kept for this long after its last request
}

// Limits are limits a minute; 0 is none.
type Limits struct {
	RPM       int64 `json:"rpm,omitempty"`
	TPM       int64 `json:"tpm,omitempty"` // input and output together
	InputTPM  int64 `json:"input_tpm,omitempty"`
	OutputTPM int64 `json:"output_tpm,omitempty"`
}

// Alerts say where a team hears of its budget.
type Alerts struct {
	Webhook string `json:"webhook"`
}

// Team owns keys and a budget.
type Team struct {
	ID             string     `json:"-"`
	Budget         *Budget    `json:"budget,omitempty"`
	Limits         *Limits    `json:"limits,omitempty"`
	BusinessUnit   string     `json:"business_unit,omitempty"`
	Timezone       string     `json:"timezone,omitempty"` // IANA name; empty is UTC
	Account        string     `json:"account,omitempty"`  // provider contract, see Deployment.Account
	Weight         int64      `json:"weight"`
	Priority       string     `json:"priority"` // interactive, standard, batch
	RunBudget      *RunBudget `json:"run_budget,omitempty"`
	RequestCap     Nano       `json:"request_cap,omitempty"`     // in the org's currency; 0 is none
	EndUserLimits  *Limits    `json:"end_user_limits,omitempty"` // of each end user by itself; RPM and TPM alone
	FailedAttempts string     `json:"failed_attempts"`           // platform, team
	Alerts         *Alerts    `json:"alerts,omitempty"`
}

// Key is a virtual key.
type Key struct {
	ID               string   `json:"-"`
	Team             string   `json:"team"`
	App              string   `json:"app,omitempty"`
	SecretSHA256     string   `json:"secret_sha256,omitempty"` // 64 hex digits; empty: no secret was made yet
	Revoked          bool     `json:"revoked,omitempty"`
	Aliases          []string `json:"aliases,omitempty"` // empty: all
	Budget           *Budget  `json:"budget,omitempty"`
	Limits           *Limits  `json:"limits,omitempty"`
	MaxDataClass     string   `json:"max_data_class,omitempty"`
	DefaultDataClass string   `json:"default_data_class,omitempty"`
	Expires          Time     `json:"expires,omitempty"`
	Outage           string   `json:"outage"` // share, open, closed
}

// Alias is a model name for callers.
type Alias struct {
	ID               string   `json:"-"`
	Needs            []string `json:"needs,omitempty"`
	Targets          []Target `json:"targets"`
	Timeouts         Timeouts `json:"timeouts"`
	MaxAttempts      int64    `json:"max_attempts"`
	DefaultMaxOutput int64    `json:"default_max_output"` // tokens
	Reserve          string   `json:"reserve"`            // p95, cap
	AllowDropped     []string `json:"allow_dropped,omitempty"`
}

// Target is one deployment of an alias.
type Target struct {
	Deployment string `json:"deployment"`
	Priority   int64  `json:"priority"` // lower is tried first
	Weight     int64  `json:"weight"`
}

// Timeouts are the deadlines of an attempt.
type Timeouts struct {
	Connect    Millis `json:"connect"`
	FirstToken Millis `json:"first_token"`
	Idle       Millis `json:"idle"`
	Total      Millis `json:"total"`
}

// Deployment is one place a model runs.
type Deployment struct {
	ID            string   `json:"-"`
	Provider      string   `json:"provider"`
	Vendor        string   `json:"vendor,omitempty"`      // compatible: whose server it is; empty: any that speaks OpenAI's dialect
	Project       string   `json:"project,omitempty"`     // vertex: the Google Cloud project
	APIVersion    string   `json:"api_version,omitempty"` // azure, anthropic: empty for what the sidecar knows best
	BaseURL       string   `json:"base_url"`
	Model         string   `json:"model"`
	BaseModel     string   `json:"base_model,omitempty"` // what stands behind a name that does not tell; empty: the name tells
	Credential    string   `json:"credential,omitempty"`
	Region        string   `json:"region,omitempty"`  // bedrock, vertex: where the model runs; elsewhere for the reader
	Account       string   `json:"account,omitempty"` // only teams of this account use it; empty: all
	ContextTokens int64    `json:"context_tokens,omitempty"`
	Capabilities  []string `json:"capabilities,omitempty"` // empty: all
	DataClasses   []string `json:"data_classes,omitempty"` // empty: all
	Price         string   `json:"price,omitempty"`
	Unpriced      string   `json:"unpriced,omitempty"` // allow
	Limits        *Limits  `json:"limits,omitempty"`   // rented from the provider
}

// Credential names a provider secret. The secret itself is no part of the registry.
type Credential struct {
	ID       string `json:"-"`
	Provider string `json:"provider"`
}

// Org is the whole.
type Org struct {
	Budget   *Budget             `json:"budget,omitempty"`
	Limits   *Limits             `json:"limits,omitempty"`
	Timezone string              `json:"timezone,omitempty"`
	Classes  map[string]Permille `json:"classes,omitempty"` // priority class to its reserved share of pools
}

// BusinessUnit is what teams belong to.
type BusinessUnit struct {
	ID       string  `json:"-"`
	Budget   *Budget `json:"budget,omitempty"`
	Limits   *Limits `json:"limits,omitempty"`
	Timezone string  `json:"timezone,omitempty"`
}

// Currency is what budgets, run budgets and request caps are written in where they do not say. Without the object it
// is USD.
type Currency struct {
	Code string `json:"code"` // ISO 4217
}

// FX is a month's rates: units of a currency per USD, in billionths.
type FX struct {
	ID    string // yyyy-mm
	Rates map[string]Nano
}

// MarshalJSON writes the rates alone.
func (f *FX) MarshalJSON() ([]byte, error) { return json.Marshal(f.Rates) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *FX) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &f.Rates) }

// Sidecar says which teams an identity may serve.
type Sidecar struct {
	ID    string   `json:"-"`     // identity
	Teams []string `json:"teams"` // "*" alone: all
}

// value is a decoded spec.
type value interface {
	kind() string
	identify(id string)
	links() []link
}

// link is a reference to another object, at a path of the spec.
type link struct{ path, kind, id string }

func (*Team) kind() string         { return KindTeam }
func (*Key) kind() string          { return KindKey }
func (*Alias) kind() string        { return KindAlias }
func (*Deployment) kind() string   { return KindDeployment }
func (*PriceVersion) kind() string { return KindPrice }
func (*Credential) kind() string   { return KindCredential }
func (*Org) kind() string          { return KindOrg }
func (*BusinessUnit) kind() string { return KindBusinessUnit }
func (*FX) kind() string           { return KindFX }
func (*Sidecar) kind() string      { return KindSidecar }
func (*Currency) kind() string     { return KindCurrency }

func (t *Team) identify(id string)         { t.ID = id }
func (k *Key) identify(id string)          { k.ID = id }
func (a *Alias) identify(id string)        { a.ID = id }
func (d *Deployment) identify(id string)   { d.ID = id }
func (p *PriceVersion) identify(id string) { p.ID = id }
func (c *Credential) identify(id string)   { c.ID = id }
func (*Org) identify(string)               {}
func (b *BusinessUnit) identify(id string) { b.ID = id }
func (f *FX) identify(id string)           { f.ID = id }
func (s *Sidecar) identify(id string)      { s.ID = id }
func (*Currency) identify(string)          {}

func (t *Team) links() []link {
	return one(link{"business_unit", KindBusinessUnit, t.BusinessUnit})
}

func (k *Key) links() []link {
	ls := []link{{"team", KindTeam, k.Team}}
	for i, a := range k.Aliases {
		ls = append(ls, link{fmt.Sprintf("aliases[%d]", i), KindAlias, a})
	}
	return ls
}

func (a *Alias) links() []link {
	var ls []link
	for i, t := range a.Targets {
		ls = append(ls, link{fmt.Sprintf("targets[%d].deployment", i), KindDeployment, t.Deployment})
	}
	return ls
}

func (d *Deployment) links() []link { return one(link{"credential", KindCredential, d.Credential}) }

func (s *Sidecar) links() []link {
	var ls []link
	for i, t := range s.Teams {
		if t != "*" {
			ls = append(ls, link{fmt.Sprintf("teams[%d]", i), KindTeam, t})
		}
	}
	return ls
}

func (*PriceVersion) links() []link { return nil }
func (*Credential) links() []link   { return nil }
func (*Org) links() []link          { return nil }
func (*BusinessUnit) links() []link { return nil }
func (*FX) links() []link           { return nil }
func (*Currency) links() []link     { return nil }

// one is an optional reference.
func one(l link) []link {
	if l.id == "" {
		return nil
	}
	return []link{l}
}

// newValue makes an empty spec, nil for an unknown kind.
func newValue(kind string) value {
	switch kind {
	case KindTeam:
		return &Team{}
	case KindKey:
		return &Key{}
	case KindAlias:
		return &Alias{}
	case KindDeployment:
		return &Deployment{}
	case KindPrice:
		return &PriceVersion{}
	case KindCredential:
		return &Credential{}
	case KindOrg:
		return &Org{}
	case KindBusinessUnit:
		return &BusinessUnit{}
	case KindFX:
		return &FX{}
	case KindSidecar:
		return &Sidecar{}
	case KindCurrency:
		return &Currency{}
	}
	return nil
}

// decode reads a stored spec. Fields it does not know are kept in the object and not looked at: a newer version may
// have written them.
func decode(o Object) (value, error) {
	v := newValue(o.Kind)
	if v == nil {
		return nil, fmt.Errorf("unknown kind %s", clip(o.Kind))
	}
	if !isObject(o.Spec) {
		if n, err := decodeJSON(o.Spec); err != nil {
			return nil, fmt.Errorf("the spec %w", err)
		} else if n.Kind != yaml.MappingNode {
			return nil, errors.New("the spec is not a JSON object")
		}
	}
	if err := json.Unmarshal(o.Spec, v); err != nil {
		return nil, fmt.Errorf("decode the spec: %w", err)
	}
	v.identify(o.ID)
	return v, nil
}

// object is the canonical object of a value.
func object(id string, v value) Object {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("BUG: a spec does not encode: " + err.Error())
	}
	return Object{Kind: v.kind(), ID: id, Spec: bytes.TrimRight(b.Bytes(), "\n")}
}

// Object is the key as an object, for a change.
func (k Key) Object() Object { return object(k.ID, &k) }

// Object is the team as an object, for a change.
func (t Team) Object() Object { return object(t.ID, &t) }

// The states of a key.
const (
	KeyActive        = "active"
	KeyRevoked       = "revoked"
	KeyExpired       = "expired"
	KeyWithoutSecret = "without_secret"
)

// State is active, revoked, expired or without_secret at nowMS, Unix milliseconds.
func (k Key) State(nowMS int64) string {
	switch {
	case k.Revoked:
		return KeyRevoked
	case k.SecretSHA256 == "":
		return KeyWithoutSecret
	case k.Expires != 0 && int64(k.Expires) <= nowMS:
		return KeyExpired
	}
	return KeyActive
}

// keepSecret gives after what a file never says and a change of configuration must not lose: the secret and the
// revocation of before. A revocation is final until the key is deleted or gets a new secret by `key create`, so that
// an old file, or a rollback, never revives a key that was taken back.
func keepSecret(after, before *Key) *Key {
	k := *after
	if k.SecretSHA256 == "" {
		k.SecretSHA256 = before.SecretSHA256
	}
	k.Revoked = k.Revoked || before.Revoked
	return &k
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
