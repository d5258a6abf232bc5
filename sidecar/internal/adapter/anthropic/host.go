package anthropic

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// Host is how a place that serves Claude takes Messages requests. The zero Host is Anthropic's own API; others, such as
// Bedrock and Vertex, have paths of their own, say the version in the body and the model in the path.
type Host struct {
	// Path is where a request goes, empty for an operation that the host does not have. nil is Anthropic's own.
	Path func(r *exchange.Request, d *exchange.Deployment) string
	// Version is the body's anthropic_version. With one, the body of a chat has no model, no anthropic-version goes
	// into the head, and the secret is left to whoever makes the host's credentials.
	Version string
	// Tierless: the body must not say service_tier.
	Tierless bool
	// StreamByPath: the body must not say stream.
	StreamByPath bool
	// BetasInBody: betas go into the body as anthropic_beta, else into the head.
	BetasInBody bool
	// TakesBeta says which of the caller's betas the host knows; nil is all. Others make it refuse the request.
	TakesBeta func(beta string) bool
	// Event takes the Messages event out of an event of the host; nil is the event itself. It may fail instead.
	Event func(name, data []byte) (inner []byte, f *exchange.Failure)
	// Failure classifies the host's errors; nil is Anthropic's way.
	Failure func(status int, h adapter.Header, body []byte) *exchange.Failure
}

const (
	pathMessages = "/messages"
	pathCount    = "/messages/count_tokens"
)

func (h *Host) path(r *exchange.Request, d *exchange.Deployment) string {
	switch {
	case h.Path != nil:
		return h.Path(r, d)
	case r.Operation == exchange.Chat:
		return pathMessages
	case r.Operation == exchange.CountTokens:
		return pathCount
	}
	return ""
}

// call is the request around a body. version and betas are what its head says, where the host wants them there.
func (h *Host) call(path, version, betas string, body, secret []byte) adapter.Call {
	c := adapter.Call{Path: path, Body: body, Header: []adapter.Field{{Name: "content-type", Value: "application/json"}}}
	add := func(name, value string) {
		if value != "" {
			c.Header = append(c.Header, adapter.Field{Name: name, Value: value})
		}
	}
	if h.Version == "" {
		add("anthropic-version", version)
	}
	if !h.BetasInBody {
		add("anthropic-beta", betas)
	}
	if h.Version == "" {
		add("x-api-key", string(secret))
	}
	return c
}

// betas are those of a comma separated list that the host knows.
func (h *Host) betas(list string) string {
	if h.TakesBeta == nil || list == "" {
		return list
	}
	var kept []string
	for beta := range strings.SplitSeq(list, ",") {
		if beta = strings.TrimSpace(beta); h.TakesBeta(beta) {
			kept = append(kept, beta)
		}
	}
	return strings.Join(kept, ",")
}

// appendVersion appends the members that a host wants in the body, each with a comma behind it.
func (h *Host) appendVersion(dst []byte, betas string) []byte {
	if h.Version != "" {
		dst = append(adapter.AppendString(append(dst, `"anthropic_version":`...), h.Version), ',')
	}
	if !h.BetasInBody || betas == "" {
		return dst
	}
	dst = append(dst, `"anthropic_beta":[`...)
	for beta := range strings.SplitSeq(betas, ",") {
		dst = append(adapter.AppendString(dst, strings.TrimSpace(beta)), ',')
	}
	return append(dst[:len(dst)-1], `],`...)
}

// namesModel reports whether the body of an operation names the model.
func (h *Host) namesModel(op exchange.Operation) bool { return h.Version == "" || op != exchange.Chat }

func (h *Host) classify(status int, head adapter.Header, body []byte) *exchange.Failure {
	if h.Failure != nil {
		return h.Failure(status, head, body)
	}
	return classify(status, head, body)
}

// unwrapped is a stream whose events the host has wrapped.
type unwrapped struct {
	adapter.Stream
	event func(name, data []byte) ([]byte, *exchange.Failure)
}

// Event implements adapter.Stream.
func (u unwrapped) Event(dst, name, data []byte) ([]byte, adapter.Progress) {
	inner, f := u.event(name, data)
	switch {
	case f != nil:
		return dst, adapter.Progress{Failure: f}
	case len(inner) == 0:
		return dst, adapter.Progress{}
	}
	return u.Stream.Event(dst, nil, inner)
}

// Ping implements adapter.Pinger.
func (u unwrapped) Ping() string {
	if p, ok := u.Stream.(adapter.Pinger); ok {
		return p.Ping()
	}
	return sse.KeepAlive
}

func (h *Host) unwrap(s adapter.Stream) adapter.Stream {
	if h.Event == nil {
		return s
	}
	return unwrapped{s, h.Event}
}
