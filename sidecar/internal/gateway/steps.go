package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/auth"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/internal/route"
	"github.com/valyala/fasthttp"
)

// dataClasses in rising order.
var dataClasses = []string{"public", "internal", "confidential", "restricted"}

// authenticate is step 1.
func (g *Gateway) authenticate(f *flow) (no *refusal) {
	f.who, no = g.principal(&f.c.Request.Header, f.rules, f.began)
	return no
}

// principal finds who sends a request by its head.
func (g *Gateway) principal(h *fasthttp.RequestHeader, rules *policy.Rules, now time.Time) (*exchange.Principal, *refusal) {
	if rules == nil {
		return nil, unavailable("the sidecar has no configuration yet: quotad has not been reached since its first start")
	}
	secret := auth.Secret(string(h.Peek("Authorization")), string(h.Peek("x-api-key")))
	if secret == "" {
		secret = g.DefaultSecret
	}
	who, res := auth.Authenticate(rules, now, secret)
	if res != auth.OK {
		return nil, unauthorized(res, g.Connected())
	}
	return who, nil
}

// read is step 2.
func (g *Gateway) read(f *flow) *refusal {
	h := &f.c.Request.Header
	f.req.Body = f.c.Request.Body()
	f.req.Feature = clip(string(h.Peek("x-gw-feature")))
	if u := h.Peek("x-gw-user"); len(u) > 0 {
		f.req.UserSHA256 = hashUser(string(u))
	}
	if id, bad := runID(h.PeekAll("x-gw-run-id")); bad == nil {
		f.req.RunID = id
	} else {
		return bad
	}
	if enc := h.ContentEncoding(); len(enc) > 0 && string(enc) != "identity" {
		return badRequest("Content-Encoding", "the body must not be compressed")
	}
	if f.speaks == anthropicDialect {
		f.readMessages()
	}
	if f.req.Dialect == exchange.ResponsesDialect {
		f.req.Native, f.req.Body = f.req.Body, nil // which is made when a deployment needs it
	}
	if bad := peek(&f.req); bad != nil {
		return badBody(bad.param, bad.message)
	}
	f.req.Feature = clip(f.req.Feature)
	g.measure(f)
	return nil
}

// readMessages takes the request as one of the Messages API, and from its head what goes on to those who speak it.
func (f *flow) readMessages() {
	h := &f.c.Request.Header
	f.req.Dialect, f.req.Native, f.req.Body = exchange.MessagesDialect, f.req.Body, nil // which is made when needed
	f.req.APIVersion = string(h.Peek("anthropic-version"))
	f.req.Betas = string(bytes.Join(h.PeekAll("anthropic-beta"), []byte(",")))
	if query := string(f.c.URI().QueryString()); query == "beta=true" {
		f.req.Query = query
	}
}

const runIDMax = 128 // bytes

// runID reads x-gw-run-id. What is no id is refused: a run that its caller believes to be capped must not run without.
func runID(sent [][]byte) (string, *refusal) {
	if len(sent) == 0 {
		return "", nil
	}
	invisible := func(c byte) bool { return c <= ' ' || c > '~' }
	if id := sent[0]; len(sent) == 1 && len(id) > 0 && len(id) <= runIDMax && !slices.ContainsFunc(id, invisible) {
		return string(id), nil
	}
	return "", badRequest("x-gw-run-id", fmt.Sprintf("x-gw-run-id must be one id of 1 to %d visible ASCII characters", runIDMax))
}

func badBody(param, message string) *refusal {
	if param == "" {
		return badJSON(message)
	}
	return badRequest(param, message)
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
	f.req.AllowDropped = f.alias.AllowDropped
	if f.req.DefaultOutput = f.alias.DefaultMaxOutput; f.req.DefaultOutput > 0 {
		f.req.DefaultOutput += f.req.Thinking // the default is meant for what the caller gets to read
	}
	f.dataClass = f.who.DefaultDataClass
	if asked := strings.ToLower(string(f.c.Request.Header.Peek("x-gw-data-class"))); asked != "" {
		if !slices.Contains(dataClasses, asked) {
			return badRequest("x-gw-data-class", "x-gw-data-class must be one of "+strings.Join(dataClasses, ", "))
		}
		f.dataClass = higher(f.dataClass, asked)
	}
	if no := f.prioritise(); no != nil {
		return no
	}
	if top := f.who.MaxDataClass; top != "" && higher(f.dataClass, top) != top {
		return dataClassDenied(f.dataClass, top)
	}
	return nil
}

// prioritise settles the class: the key's, or the lower one that the caller asked for.
func (f *flow) prioritise() *refusal {
	f.priority = f.who.Priority
	asked := strings.ToLower(string(f.c.Request.Header.Peek("x-gw-priority")))
	switch rank := slices.Index(exchange.Priorities[:], asked); {
	case asked == "":
	case rank < 0:
		return badRequest("x-gw-priority", "x-gw-priority must be one of "+strings.Join(exchange.Priorities[:], ", "))
	case rank > slices.Index(exchange.Priorities[:], f.priority):
		return badRequest("x-gw-priority", fmt.Sprintf("x-gw-priority may only lower the key's class, which is %s", f.priority))
	default:
		f.priority = asked
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

// demands are the capabilities a request may need, and the member that asks for each.
var demands = [...]struct {
	capability, param string
	of                func(*exchange.Request) bool
}{
	{"tools", "tools", func(r *exchange.Request) bool { return r.Tools }},
	{"json_schema", "response_format", func(r *exchange.Request) bool { return r.JSONSchema }},
	{"vision", "messages", func(r *exchange.Request) bool { return r.Vision }},
}

// candidates is step 4, as far as it does not depend on how deployments fare. It comes before admission because what
// is reserved is the price of the dearest candidate.
func (g *Gateway) candidates(f *flow) *refusal {
	q := route.Query{Alias: f.alias, Account: f.who.Account, DataClass: f.dataClass}
	for _, d := range demands {
		if d.of(&f.req) {
			q.Needs = append(q.Needs, d.capability)
		}
	}
	var out []route.Exclusion
	if f.targets, out = route.Candidates(q); len(f.targets) > 0 {
		return nil
	}
	no := noneFits(f.alias.Name, f.dataClass, out)
	no.param = asSent(&f.req, no.param)
	return no
}

// noneFits says why no deployment of an alias may serve a request: first what the caller asked of it, then the rules.
func noneFits(alias, dataClass string, out []route.Exclusion) *refusal {
	why := map[string]bool{}
	reasons := make([]string, len(out))
	for i, e := range out {
		why[e.Reason] = true
		switch e.Reason {
		case "data_class":
			reasons[i] = fmt.Sprintf("%s takes no data of class %q", e.Deployment, dataClass)
		case "account":
			reasons[i] = e.Deployment + " is for another account"
		default:
			reasons[i] = fmt.Sprintf("%s does not list %q in its capabilities", e.Deployment, e.Reason)
		}
	}
	no := noCandidate(alias, strings.Join(reasons, ", "))
	for _, d := range demands {
		if why[d.capability] {
			no.code, no.param = "unsupported_parameter", d.param
			return no
		}
	}
	switch {
	case why["data_class"]:
		no.status, no.kind, no.code, no.param = 403, typeDenied, "data_class_not_allowed", ""
	case why["account"]:
		no.status, no.kind, no.code = 403, typeDenied, "account_not_allowed"
	}
	return no
}
