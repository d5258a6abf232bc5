package openai

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestForeignItems: what the gateway made of other models' thoughts is left out of an input, and so are their signatures
// in the ids of calls, for OpenAI bounds those at 64 bytes. All else stays byte for byte.
func TestForeignItems(t *testing.T) {
	for in, want := range map[string]string{
		`[{"role":"user","content":"_gsig_"}, {"type":"function_call","call_id":"c1_gsig_AA","name":"f","arguments":"_gsig_"},{"type":"function_call_output", "call_id" : "c1_gsig_AA","output":"a"}]`: `[{"role":"user","content":"_gsig_"}, {"type":"function_call","call_id":"c1","name":"f","arguments":"_gsig_"},{"type":"function_call_output", "call_id" : "c1","output":"a"}]`,
		`[{"type":"reasoning","encrypted_content":"sluice1.e30"},{"type":"function_call","call_id":"c2_gsig_AA"}]`:                                                                                     `[{"type":"function_call","call_id":"c2"}]`,
		`[{"type":"reasoning","encrypted_content":"ENCO"},{"type":"function_call","call_id":"c3"}]`:                                                                                                    `[{"type":"reasoning","encrypted_content":"ENCO"},{"type":"function_call","call_id":"c3"}]`,
		`"c4_gsig_AA"`: `"c4_gsig_AA"`,
	} {
		r := &exchange.Request{Operation: exchange.Chat, Dialect: exchange.ResponsesDialect, Native: []byte(`{"model":"m","input":` + in + `}`)}
		call, f := native{New()}.Request(r, &exchange.Deployment{Provider: "openai", Model: "m"}, nil)
		if body := `{"model":"m","input":` + want + `}`; f != nil || string(call.Body) != body {
			t.Errorf("%v\ngot  %s\nwant %s", f, call.Body, body)
		}
	}
}
