package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// prepare makes the call to a deployment, or says why there can be none.
func (g *Gateway) prepare(f *flow, d *exchange.Deployment) (adapter.Call, *exchange.Failure) {
	ad, native := g.adapterFor(f, d)
	secret, known := g.Policy.Secret(d.Credential)
	fault := ""
	switch {
	case ad == nil:
		fault = fmt.Sprintf("provider %q is not known to this version", d.Provider)
	case d.Credential != "" && !known:
		fault = fmt.Sprintf("credential %q has not been received", d.Credential)
	case f.req.Operation == exchange.CountTokens && !native:
		return adapter.Call{}, &exchange.Failure{Kind: exchange.FailUnsupported, Message: "the provider does not count tokens"}
	case !native && !f.translated():
		return adapter.Call{}, f.req.NativeOnly
	default:
		call, no := ad.Request(&f.req, d, secret)
		if no == nil {
			no = g.Credentials.Authorize(&f.cancel, time.Now(), d, secret, &call, hostOf(d.BaseURL))
		}
		switch {
		case no != nil && no.Kind == exchange.FailConnect: // where tokens are fetched: no call shows it
			g.tokenless(d, secret, no)
			return call, no
		case no == nil || no.Kind != exchange.FailCredential:
			return call, no
		}
		fault = no.Message
	}
	g.misconfigured(d, secret, fault)
	return adapter.Call{}, &exchange.Failure{Kind: exchange.FailCredential, Message: fault}
}

// translated makes the chat request of one in another dialect, once: most go to deployments that need none. false when
// chat cannot say it.
func (f *flow) translated() bool {
	r := &f.req
	if r.Body != nil || r.NativeOnly != nil {
		return r.NativeOnly == nil
	}
	switch r.Dialect {
	case exchange.MessagesDialect:
		r.Body, r.NativeOnly = messages.Chat(r.Native, r.AllowDropped)
	case exchange.ResponsesDialect:
		r.Body, r.NativeOnly = responses.Chat(r.Native, r.AllowDropped)
	}
	return r.NativeOnly == nil
}

// reauthorize makes a call anew whose token the provider did not take: it may have been taken back before its end.
func (g *Gateway) reauthorize(f *flow, d *exchange.Deployment, call *adapter.Call) bool {
	secret, _ := g.Policy.Secret(d.Credential)
	if !g.Credentials.Refused(time.Now(), d, secret, call) {
		return false
	}
	again, no := g.prepare(f, d)
	if no == nil {
		*call = again
	}
	return no == nil
}

// hostOf is the Host field of calls to a base URL.
func hostOf(base string) string {
	_, rest, _ := strings.Cut(base, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// adapterFor is what a deployment is spoken to with: in the caller's own dialect where the provider speaks it, else by way
// of chat. nil when the provider is not known.
func (g *Gateway) adapterFor(f *flow, d *exchange.Deployment) (ad adapter.Adapter, native bool) {
	ad = g.Adapters[d.Provider]
	if c, ok := ad.(adapter.Chooser); ok {
		ad = c.For(d)
	}
	if ad == nil || f.req.Dialect == exchange.ChatDialect {
		return ad, false
	}
	if s, ok := ad.(adapter.Speaker); ok {
		if own := s.Speak(f.req.Dialect, d); own != nil {
			return own, true
		}
	}
	if f.req.Dialect == exchange.ResponsesDialect {
		return responses.Face{Adapter: ad}, false
	}
	return messages.Face{Adapter: ad}, false
}

// inChat is a param that a deployment's server named, by the name it has in chat.
func (g *Gateway) inChat(f *flow, d *exchange.Deployment, param string) string {
	if n, ok := g.Adapters[d.Provider].(adapter.Namer); ok && param != "" && f.req.Body != nil {
		return n.Sent(&f.req, d, param)
	}
	return param
}
