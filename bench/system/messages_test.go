package system

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestMessagesAPI: callers of Anthropic's Messages API get its answers and streams from a model behind OpenAI's dialect,
// and what they use is in the books like anything else.
func TestMessagesAPI(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 1, hard: true }", "{ rpm: 600000 }") })
	sc := s.sidecars[0]
	body := func(more string) string {
		return `{"model":"chat","max_tokens":20,"messages":[{"role":"user","content":"[[tokens=5]] hello"}]` + more + `}`
	}
	a := s.call(t.Context(), sc, "/v1/messages", appKey, body(""))
	if m := gjson.Parse(a.body); a.status != 200 || m.Get("type").Str != "message" || m.Get("content.0.text").Str == "" ||
		m.Get("usage.output_tokens").Int() != 5 || m.Get("stop_reason").Str != "end_turn" || m.Get("x_gateway.deployment").Str != "main" {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = s.call(t.Context(), sc, "/v1/messages", appKey, body(`,"stream":true`))
	for _, want := range []string{"event: message_start\n", "event: content_block_delta\n", `"output_tokens":5`, "event: message_stop\n"} {
		if a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%d, no %q in %s", a.status, want, a.body)
		}
	}
	a = s.call(t.Context(), sc, "/v1/messages", appKey, body(`,"container":"c"`))
	if a.status != 400 || gjson.Get(a.body, "error.type").Str != "invalid_request_error" || gjson.Get(a.body, "error.details.param").Str != "container" {
		t.Errorf("%d %s", a.status, a.body)
	}
	w := s.fake.Witness(0).Totals
	if w.Completed != 2 {
		t.Errorf("%d answers, want 2", w.Completed)
	}
	s.eventually("the books agree", func() bool { return s.budget("t").Settled == w.CostNano })
	s.eventually("so does usage", func() bool { return s.usageCLI().cost == w.CostNano })
}
