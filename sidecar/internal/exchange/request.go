// Package exchange holds the nouns the rooms of the sidecar share, and the facts of one request on its way through
// them. It decides nothing.
package exchange

import (
	"cmp"
	"time"
)

// Operation is what the caller asked for.
type Operation uint8

// The operations.
const (
	Chat        Operation = iota + 1 // POST /v1/chat/completions, and what is translated to it
	Embeddings                       // POST /v1/embeddings
	CountTokens                      // POST /v1/messages/count_tokens
)

// Dialect is the API the caller speaks.
type Dialect uint8

// The dialects.
const (
	ChatDialect      Dialect = iota // OpenAI's chat completions, and embeddings
	MessagesDialect                 // Anthropic's Messages API
	ResponsesDialect                // OpenAI's Responses API
)

// Request is the caller's request as far as the sidecar reads it. Body is never changed.
type Request struct {
	ID        string // x-request-id
	Operation Operation
	Dialect   Dialect
	// CreatedUnix is when the request arrived, in seconds: adapters have no clock, and some answers need a time.
	CreatedUnix int64
	Body        []byte // the caller's JSON, as a chat request when its dialect is another, made when it is needed; valid until the attempt has been sent
	// Native is the caller's own JSON when its dialect is not chat: for deployments that speak it themselves.
	Native []byte
	// NativeOnly is set when Native could not be turned into a chat request: no other deployment can serve it.
	NativeOnly *Failure
	// What the head of a Messages request says, for deployments that speak the dialect themselves.
	APIVersion string // anthropic-version
	Betas      string // anthropic-beta, comma separated
	Query      string // beta=true when that stood behind the path
	// InputEstimate is what the prompt is taken for at the deployment that is asked, in tokens: some answers state it
	// before the provider does.
	InputEstimate int64
	Model         string // the alias, as sent
	Stream        bool
	// IncludeUsage is stream_options.include_usage: the caller wants the usage chunk.
	IncludeUsage bool
	MaxOutput    int64 // the caller's cap on output tokens, 0 when none was sent
	// DefaultOutput is the cap the provider is told when the caller sent none; 0 for none.
	DefaultOutput int64
	Thinking      int64 // tokens the model may think at the reasoning_effort asked for, 0 for none; part of the output
	Choices       int64 // n, at least 1
	InputBytes    int64 // bytes of text in the prompt, tool schemas included, for the estimate
	InputExtra    int64 // tokens known otherwise: images by formula, token ids as sent
	// Earlier names the turns before, which the provider keeps: an answer of the Responses API, or a conversation.
	Earlier, Conversation string
	Messages              int64
	Tools                 bool
	JSONSchema            bool
	Vision                bool
	Audio                 bool   // the prompt holds audio
	AudioAnswer           bool   // the answer may be spoken
	NoImages              bool   // the answer may hold none: models that draw do so unasked
	WebSearches           int64  // that the provider may make, as far as it is known before
	SearchesAlways        bool   // once for each answer, told or not
	ServiceTier           string // asked for; "" or auto leaves it to the provider
	Speed                 string // asked for of Anthropic, as its inference_geo
	Geo                   string
	AllowDropped          []string // members of the body that may go where they cannot be honoured
	Feature               string   // x-gw-feature, or metadata.feature
	RunID                 string   // x-gw-run-id, empty when none
	UserSHA256            string   // of x-gw-user, safety_identifier, user or metadata.user; hex, empty when none
}

// Deployment is one place a model runs.
type Deployment struct {
	ID            string
	Provider      string // openai, anthropic, azure, bedrock, gemini, vertex, compatible
	Vendor        string // compatible: whose server it is, empty for any
	Project       string // vertex
	APIVersion    string // azure, anthropic; empty for the one the adapter was made for
	BaseURL       string // up to and without /chat/completions or /messages
	Model         string // the provider's name
	BaseModel     string // what stands behind a name that does not tell; empty where Model does
	Credential    string // name, empty for none
	Region        string
	Account       string
	ContextTokens int64 // 0 for unknown
	Capabilities  []string
	DataClasses   []string
	PriceName     string
	Unpriced      bool // no price: served and counted at 0
	// Pools are the limits rented from the provider. An attempt draws on all of them.
	Pools []*Resource
}

// Base is the model that decides what a deployment can do and how it is asked for it.
func (d *Deployment) Base() string { return cmp.Or(d.BaseModel, d.Model) }

// Timeouts are the deadlines of one attempt. None is zero.
type Timeouts struct {
	Connect    time.Duration // TCP and TLS
	FirstToken time.Duration // from the attempt's start to the first real token
	Idle       time.Duration // between upstream bytes after that
	Total      time.Duration // the whole attempt
}

// UsageSource says how token counts are known.
type UsageSource uint8

// The sources, as in usage.v1.Source.
const (
	FromProvider UsageSource = iota + 1
	FromEstimate
	FromPartial
	FromReservation
)

// Usage is what an attempt used.
type Usage struct {
	Tokens
	Source      UsageSource
	ServiceTier string // as the provider answered, empty when it named none
	Speed       string // the same of Anthropic's speed
	Geo         string // and of its inference_geo
	Answer      string // the id of a Responses API's answer, by which the next request may name it
	Raw         string // the provider's usage as it stood, JSON; empty when there was none or it was longer than 4 KiB
}

// Terms are what the provider says it served under.
func (u Usage) Terms() Terms { return Terms{u.ServiceTier, u.Speed, u.Geo} }
