package gateway

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// faults are what is wrong with the configuration of deployments, by their ids. The zero value is ready.
type faults struct {
	mu   sync.Mutex
	open map[string]fault
}

// fault is what is wrong, and what it was found in: it is told until one of them is another.
type fault struct {
	deployment *exchange.Deployment
	secret     []byte
	text       string // has nothing of the secret in it
}

// misconfigured counts and logs a fault of a deployment, and keeps it for operators until a request succeeds there or
// what is at fault has changed.
func (g *Gateway) misconfigured(d *exchange.Deployment, secret []byte, text string, more ...zap.Field) {
	g.Metrics.UpstreamFailures.WithLabelValues(d.ID, kindName(exchange.FailCredential)).Inc()
	g.Log.Error("deployment is misconfigured", append(more, zap.String("deployment", d.ID), zap.String("fault", text))...)
	g.note(d, secret, "is misconfigured: "+text)
}

// tokenless does the same of a deployment whose tokens are not to be had at present: no call shows it.
func (g *Gateway) tokenless(d *exchange.Deployment, secret []byte, f *exchange.Failure) {
	g.Metrics.UpstreamFailures.WithLabelValues(d.ID, kindName(f.Kind)).Inc()
	g.Log.Warn("deployment has no token", zap.String("deployment", d.ID), zap.String("fault", f.Message))
	g.note(d, secret, "cannot be used: "+f.Message)
}

func (g *Gateway) note(d *exchange.Deployment, secret []byte, text string) {
	g.faults.mu.Lock()
	defer g.faults.mu.Unlock()
	if g.faults.open == nil {
		g.faults.open = map[string]fault{}
	}
	g.faults.open[d.ID] = fault{d, secret, text}
}

// refusedBy says what a provider refused the gateway for. The provider's text is not told: it may quote the key.
func refusedBy(f *exchange.Failure) string {
	what := "the provider refuses its credential or account"
	if f.Kind == exchange.FailNotFound {
		what = "the provider does not know its model or path"
	}
	what = fmt.Sprintf("%s: status %d", what, f.Status)
	if f.Code != "" {
		what += ", code " + visible(clip(f.Code))
	}
	return what
}

// healed forgets the fault of a deployment that answered.
func (g *Gateway) healed(d *exchange.Deployment) {
	g.faults.mu.Lock()
	defer g.faults.mu.Unlock()
	delete(g.faults.open, d.ID)
}

// Misconfigured lists what operators must mend, by deployment.
func (g *Gateway) Misconfigured() (list []string) {
	g.faults.mu.Lock()
	defer g.faults.mu.Unlock()
	rules := g.Policy.Rules()
	for id, f := range g.faults.open {
		secret, _ := g.Policy.Secret(f.deployment.Credential)
		if !bytes.Equal(secret, f.secret) || !reflect.DeepEqual(rules.Deployment(id), f.deployment) {
			delete(g.faults.open, id)
			continue
		}
		list = append(list, fmt.Sprintf("deployment %s %s", id, f.text))
	}
	slices.Sort(list)
	return list
}
