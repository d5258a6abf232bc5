package openai

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestSignedIDs: the signature that a Gemini model's call has in its id goes to no other server, most of which bound the
// length of ids.
func TestSignedIDs(t *testing.T) {
	const history = `{"model":"a","messages":[{"role":"assistant","tool_calls":[{"id":"call_gem_1_gsig_c2ln","type":"function"}]},` +
		`{"role":"tool","tool_call_id":"call_gem_1_gsig_c2ln","content":"_gsig_"}]}`
	const plain = `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"ID","type":"function"}]},` +
		`{"role":"tool","tool_call_id":"ID","content":"_gsig_"}]}`
	for name, c := range map[string]struct {
		d  exchange.Deployment
		id string
	}{
		"openai":     {exchange.Deployment{Provider: "openai"}, "call_gem_1"},
		"compatible": {exchange.Deployment{Provider: "compatible"}, "call_gem_1"},
		"mistral":    {exchange.Deployment{Provider: "compatible", Vendor: "mistral"}, shortID("call_gem_1")},
	} {
		t.Run(name, func(t *testing.T) {
			c.d.Model = "m"
			call, f := New().Request(&exchange.Request{Operation: exchange.Chat, Body: []byte(history)}, &c.d, nil)
			if want := replace(plain, "ID", c.id); f != nil || string(call.Body) != want {
				t.Errorf("got  %s, %+v\nwant %s", call.Body, f, want)
			}
		})
	}
}
