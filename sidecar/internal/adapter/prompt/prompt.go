// Package prompt reads chat requests, for the adapters of providers that speak another dialect: it turns the caller's
// body into a typed value, which an adapter then maps into its provider's words from top to bottom.
//
// What is malformed, so that nobody can honour it, is found here, once and before anything else: it fails with FailRequest
// and names the param. What a provider cannot honour is the adapter's to say, by Cannot and Refuse, which let go what the
// alias allows to be dropped. What no other dialect has at all (custom tools, messages of functions, spoken answers in the
// history) is refused here too, with FailUnsupported: an OpenAI deployment takes it.
//
// Texts and schemas are kept as they stand in the body, escapes and all, so that they go out without being written anew.
//
// The rules are those of OpenAI's API reference for POST /v1/chat/completions
// (https://platform.openai.com/docs/api-reference/chat/create) and of its OpenAPI document: CreateChatCompletionRequest for
// the members and their ranges, ChatCompletionRequestMessage for the roles and what content each may have,
// ChatCompletionTool and ChatCompletionToolChoiceOption for tools, StopConfiguration, ResponseFormatJsonSchema,
// ReasoningEffort and ServiceTier for the rest. Beyond it, reasoning_details and cache_control are OpenRouter's,
// thinking_blocks and a file's format LiteLLM's, extra_content Google's, and the efforts go up to max.
package prompt

import (
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Chat is a chat request that was found well-formed. It shares the memory of the body it was read from.
type Chat struct {
	Messages []Message // one of them at least is no system's and says something
	Tools    []Tool    // those that may be called
	Choice   Choice    // nothing is said without tools
	Serial   bool      // no two calls in one turn; false without tools
	Stop     []Text    // they may be empty
	Format   Format

	Temperature Number // 0 to 2
	TopP        Number // 0 to 1
	Effort      string // a word that adapter.ThinkingTokens knows, or none; "" when it was not said
	Tier        string // auto, default, flex, scale or priority; "" when it was not said
	Limit       int64  // of output tokens: the caller's, else the alias's; 0 for none
	// Rest is what few providers have, and what nobody knows. n, seed, top_k, frequency_penalty, presence_penalty, logprobs and
	// top_logprobs in it are well-formed.
	Rest []Member

	vendor    string // who cannot honour what is refused
	droppable []string
	stops     bool // Stop was sent as a list
}

// Text is a JSON string: as it stands, with its quotes, and what it says. The zero Text is none.
type Text struct{ Raw, Str string }

// Number is a number as it was written, and its value. The zero Number is none.
type Number struct {
	Raw   string
	Value float64
}

// Member is a top-level member that is not null.
type Member struct {
	Name  string
	Value gjson.Result
}

// Format is what the answer must be like. The zero Format is text.
type Format struct {
	JSON              bool   // an object of any kind
	Schema            string // raw JSON, "" for none
	Name, Description Text   // of the schema
}

// Read reads the chat request r, whose body is a valid JSON object without a member twice. vendor is the name by which a
// failure tells who cannot honour something.
func Read(r *exchange.Request, vendor string) (*Chat, *exchange.Failure) {
	p := reader{count: int(min(r.Messages, countMax))}
	p.vendor, p.droppable = vendor, r.AllowDropped
	if p.Limit = r.MaxOutput; p.Limit == 0 {
		p.Limit = r.DefaultOutput
	}
	if f := adapter.EachMember(r.Body, nil, p.member); f != nil { // Cannot knows what may be dropped
		return nil, f
	}
	if p.Messages == nil {
		return nil, adapter.Invalid("messages", "messages is required")
	}
	if !p.said {
		return nil, adapter.Invalid("messages", "messages must hold some content besides system texts")
	}
	if f := p.choose(); f != nil {
		return nil, f
	}
	return &p.Chat, nil
}

// Cannot is the failure of what a provider cannot honour at param, nil where the alias lets its member go.
func (c *Chat) Cannot(param, message string) *exchange.Failure {
	if adapter.MayDrop(c.droppable, param) {
		return nil
	}
	return adapter.Unsupported(param, message)
}

// Refuse is the failure of a member that the vendor has no counterpart for, nil where its value asks for nothing or the
// alias lets it go. Members nobody knows are refused too: to drop one silently would change what the caller asked for.
func (c *Chat) Refuse(m Member) *exchange.Failure {
	if adapter.Harmless(m.Name, m.Value) {
		return nil
	}
	return c.Cannot(m.Name, c.vendor+" cannot honour "+adapter.Printable(m.Name))
}

// StopAt is the param of a stop sequence.
func (c *Chat) StopAt(i int) string {
	if !c.stops {
		return "stop"
	}
	return fmt.Sprintf("stop[%d]", i)
}

// countMax bounds the room that is made for messages before they are read.
const countMax = 1 << 10

// reader is a Chat in the making.
type reader struct {
	Chat
	count  int  // of messages, as far as it is known before
	said   bool // a message that is no system's says something
	voices adapter.Voices
	parts  []Part // of all messages, which have pieces of it
	calls  []Call
	allow  []string // the names of the tools that may be called; nil for all
	// few is room for a short conversation, so that it costs no memory of its own.
	few struct {
		messages [2]Message
		parts    [2]Part
	}
}

// text reads a string.
func text(v gjson.Result) Text { return Text{v.Raw, v.Str} }

// first takes a member of an object, unless it has been there before: the first one counts, here as in the estimate.
func first(to *gjson.Result, v gjson.Result) {
	if !to.Exists() {
		*to = v
	}
}
