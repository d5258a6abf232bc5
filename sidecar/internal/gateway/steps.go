package gateway

import (
	"slices"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/auth"
	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/route"
)

// dataClasses in rising order.
var dataClasses = []string{"public", "internal", "confidential", "restricted"}

// read is step 1.
func (g *Gateway) read(f *flow) *refusal {
	if f.rules == nil {
		return unavailable("the sidecar has no configuration yet: quotad has not been reached since its first start")
	}
	h := &f.c.Request.Header
	f.req.Body = f.c.Request.Body()
	f.req.Feature = clip(string(h.Peek("x-gw-feature")))
	if u := h.Peek("x-gw-user"); len(u) > 0 {
		f.req.UserSHA256 = hashUser(string(u))
	}
	if enc := h.ContentEncoding(); len(enc) > 0 && string(enc) != "identity" {
		return badRequest("Content-Encoding", "the body must not be compressed")
	}
	if bad := peek(&f.req); bad != nil {
		if bad.param == "" {
			return badJSON(bad.message)
		}
		return badRequest(bad.param, bad.message)
	}
	f.req.Feature = clip(f.req.Feature)
	f.input = estimate.Input{Bytes: f.req.InputBytes, Messages: f.req.Messages, Extra: f.req.InputExtra}
	return nil
}

// authenticate is step 2.
func (g *Gateway) authenticate(f *flow) *refusal {
	who, res := g.identify(f)
	if res != auth.OK {
		return unauthorized(res, g.Connected())
	}
	f.who = who
	return nil
}

func (g *Gateway) identify(f *flow) (*exchange.Principal, auth.Result) {
	h := &f.c.Request.Header
	secret := auth.Secret(string(h.Peek("Authorization")), string(h.Peek("x-api-key")))
	if secret == "" {
		secret = g.DefaultSecret
	}
	return auth.Authenticate(f.rules, f.began, secret)
}

// permit is step 3.
func (g *Gateway) permit(f *flow) *refusal {
	f.alias = f.rules.Alias(f.req.Model)
	if f.alias == nil {
		return unknownAlias(f.req.Model)
	}
	if f.who.Aliases != nil && !f.who.Aliases[f.alias.Name] {
		return aliasDenied(f.alias.Name, f.who.Key)
	}
	f.req.DefaultOutput = f.alias.DefaultMaxOutput
	f.dataClass = f.who.DefaultDataClass
	if asked := strings.ToLower(string(f.c.Request.Header.Peek("x-gw-data-class"))); asked != "" {
		if !slices.Contains(dataClasses, asked) {
			return badRequest("x-gw-data-class", "x-gw-data-class must be one of "+strings.Join(dataClasses, ", "))
		}
		f.dataClass = higher(f.dataClass, asked)
	}
	if top := f.who.MaxDataClass; top != "" && higher(f.dataClass, top) != top {
		return dataClassDenied(f.dataClass, top)
	}
	return nil
}

// higher is the higher of two data classes; an unknown one is below all.
func higher(a, b string) string {
	if slices.Index(dataClasses, a) > slices.Index(dataClasses, b) {
		return a
	}
	return b
}

// candidates is step 6, as far as it does not depend on how deployments fare. It comes before admission because what
// is reserved is the price of the dearest candidate.
func (g *Gateway) candidates(f *flow) *refusal {
	q := route.Query{Alias: f.alias, Account: f.who.Account, DataClass: f.dataClass}
	if f.req.Tools {
		q.Needs = append(q.Needs, "tools")
	}
	if f.req.JSONSchema {
		q.Needs = append(q.Needs, "json_schema")
	}
	if f.req.Vision {
		q.Needs = append(q.Needs, "vision")
	}
	targets, out := route.Candidates(q)
	if len(targets) == 0 {
		reasons := make([]string, len(out))
		for i, e := range out {
			reasons[i] = e.Deployment + ": " + e.Reason
		}
		return noCandidate(f.alias.Name, strings.Join(reasons, ", "))
	}
	f.targets = targets
	return nil
}
