// Package adapter states what a provider's dialect must do: turn the caller's request into the provider's and the
// provider's answer into the caller's. Adapters work on bytes and own no connection, clock or goroutine. It also holds what
// several of them need; package prompt reads the chat requests, and package reply writes the answers, of those whose
// providers speak no chat.
package adapter

import "github.com/sluice-gateway/sluice/sidecar/internal/exchange"

// Call is one upstream HTTP request.
type Call struct {
	Method string  // "" for POST
	Path   string  // appended to the deployment's base URL, begins with "/"
	Header []Field // without Host, Content-Length and hop-by-hop fields
	Body   []byte
}

// Field is one HTTP header field.
type Field struct{ Name, Value string }

// Header reads a header field of the provider's answer, "" when absent; names in any case.
type Header func(name string) string

// Annotate is asked once an answer is complete, and for its end only. It appends the value of the x_gateway member (a
// JSON object) and returns the usage that is settled: what the provider stated, or, for a Source of FromEstimate, what
// the prompt and the delivered bytes come to. The caller is told that usage and no other.
type Annotate func(dst []byte, u exchange.Usage, delivered Delivered) ([]byte, exchange.Usage)

// Delivered is how much of an answer was translated for the caller.
type Delivered struct {
	Bytes  int64 // of text, tool arguments and reasoning; DrawnBytes for an image
	Pieces int64 // events that brought any of it, 0 for an answer that is no stream
}

// DrawnBytes is what an image that was drawn counts for in Delivered: the text that its usual 1,290 tokens would be. Its own
// bytes say nothing of its tokens.
const DrawnBytes = 1_290 * 4

// Adapter is one provider's dialect, towards OpenAI-dialect callers. It is stateless and safe for concurrent use.
type Adapter interface {
	// Request builds the provider's request. secret may be empty. A *exchange.Failure names the field (Param) at fault:
	// with kind FailUnsupported this deployment cannot honour it and is passed over, with FailRequest nobody can.
	Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (Call, *exchange.Failure)

	// Response turns a complete 2xx answer to a request without stream into the caller's body, with the model
	// renamed to the alias, the settled usage and the x_gateway member in it. It returns the settled usage. It fails with FailInvalid when the body is no answer, and
	// with the kind of the error when a 200 carries one.
	Response(r *exchange.Request, body []byte, a Annotate) ([]byte, exchange.Usage, *exchange.Failure)

	// Stream starts translating a 2xx answer to a request with stream. A contentType other than text/event-stream is
	// sniffed by the relay before: Stream sees events only.
	Stream(r *exchange.Request, a Annotate) Stream

	// Failure classifies a non-2xx answer.
	Failure(status int, h Header, body []byte) *exchange.Failure
}

// Namer is an Adapter that calls members of a request otherwise than the chat dialect does, by the deployment.
type Namer interface {
	// Sent is the chat dialect's name of the param that a failure of a deployment's server names. What the caller itself
	// called so keeps the name.
	Sent(r *exchange.Request, d *exchange.Deployment, param string) string
}

// Chooser is an Adapter of a provider that has models of several makers, some with dialects of their own.
type Chooser interface {
	// For returns the adapter that serves a deployment in the place of this one. It may be a Speaker.
	For(d *exchange.Deployment) Adapter
}

// Speaker is an Adapter whose provider speaks other dialects than chat itself.
type Speaker interface {
	// Speak returns the adapter that serves callers of a dialect at a deployment byte for byte, the model's name aside:
	// it reads r.Native. nil when the deployment does not speak it.
	Speak(dialect exchange.Dialect, d *exchange.Deployment) Adapter
}

// Replayer is an adapter whose streams are no chat chunks. It makes one of an answer that came whole although a stream was
// asked for: a stream without events, all of which comes at its end.
type Replayer interface {
	// Replay takes what Response made of the answer.
	Replay(r *exchange.Request, body []byte, u exchange.Usage) Stream
}

// Marker is an Adapter some of whose deployments have to be told what is worth keeping in a cache, by cache_control on
// parts of the content. Others keep what they like, and many refuse the mark.
type Marker interface {
	Marks(d *exchange.Deployment) bool
}

// Face is an adapter towards callers of another dialect, before one towards OpenAI-dialect callers.
type Face interface {
	Adapter
	// Behind is the adapter that the face stands before.
	Behind() Adapter
	// Translate turns a stream of chat chunks into the callers' dialect.
	Translate(r *exchange.Request, s Stream) Stream
}

// Stream translates one stream, event by event, in order. It has one user at a time.
type Stream interface {
	// Event takes one upstream server-sent event (name is "" when it had none; data lines joined by \n) and appends
	// to dst what the caller should see of it: whole events, each ending in a blank line, or nothing.
	// What it appends before Real is reported must be harmless to drop: another deployment may be tried.
	// [DONE] is not appended here but by End. Beside a Failure stands only what came whole in the same event before it.
	Event(dst []byte, name, data []byte) ([]byte, Progress)

	// End is called once, when the upstream body has ended cleanly or Progress.Done was reported. It appends what is
	// still owed, the usage chunk (if the caller asked for it) and data: [DONE] last; or, when the stream did not
	// come to a finish, a Failure of kind FailCut and nothing.
	End(dst []byte) ([]byte, *exchange.Failure)

	// Abort appends the error event that tells the caller that the stream broke: never [DONE], never a finish.
	Abort(dst []byte, f *exchange.Failure) []byte

	// Usage is what has been used so far: the provider's numbers when it stated them; otherwise zero tokens with
	// Source FromEstimate, and the gateway estimates from Delivered. After End it is what the caller was told.
	Usage() exchange.Usage

	// Delivered counts what was appended so far.
	Delivered() Delivered
}

// Pinger is a Stream whose dialect has an event of its own that shows a waiting caller that the stream lives.
type Pinger interface{ Ping() string }

// Progress is what an event meant.
type Progress struct {
	Real    bool              // text, tool-call bytes or reasoning was appended
	Done    bool              // the provider says the stream is complete
	Failure *exchange.Failure // the provider reported an error inside the stream
}
