package openai

import (
	"strings"
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

// TestDrawnImages: what a model drew earlier goes to servers that may know it, and is never left out in silence.
func TestDrawnImages(t *testing.T) {
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}`
	ask := func(vendor, provider, images string) (string, *exchange.Failure) {
		r := &exchange.Request{Operation: exchange.Chat, Body: []byte(`{"model":"m","messages":[{"role":"user","content":"draw"},{"role":"assistant","content":"here","images":` + images + `}]}`)}
		call, f := New().Request(r, &exchange.Deployment{Provider: provider, Vendor: vendor, Model: "m"}, nil)
		return string(call.Body), f
	}
	if body, f := ask("openrouter", "compatible", "["+image+"]"); f != nil || !strings.Contains(body, image) {
		t.Errorf("openrouter: %s, %+v", body, f)
	}
	for vendor, provider := range map[string]string{"": "openai", "mistral": "compatible"} {
		if _, f := ask(vendor, provider, "["+image+"]"); f == nil || f.Kind != exchange.FailUnsupported || f.Param != "messages[1].images" {
			t.Errorf("%s: %+v", provider, f)
		}
		for _, none := range []string{"[]", "null"} {
			if body, f := ask(vendor, provider, none); f != nil || strings.Contains(body, "images") || !strings.Contains(body, `"here"}`) {
				t.Errorf("%s, %s: %s, %+v", provider, none, body, f)
			}
		}
	}
}
