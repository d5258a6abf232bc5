package gateway

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestPeekPrice(t *testing.T) {
	const chat = `"model":"m","messages":[{"role":"user","content":"x"}]`
	const claude = `"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]`
	const response = `"model":"m","input":"x"`
	type facts struct {
		tier     string
		searches int64
		hears    bool
		speaks   bool
	}
	for name, c := range map[string]struct {
		dialect exchange.Dialect
		body    string
		want    facts
	}{
		"nothing":              {exchange.ChatDialect, chat, facts{}},
		"a tier":               {exchange.ChatDialect, chat + `,"service_tier":"flex"`, facts{tier: "flex"}},
		"no tier":              {exchange.ChatDialect, chat + `,"service_tier":null`, facts{}},
		"a search":             {exchange.ChatDialect, chat + `,"web_search_options":{}`, facts{searches: 1}},
		"no search":            {exchange.ChatDialect, chat + `,"web_search_options":null,"tools":[{"type":"function"}]`, facts{}},
		"spoken":               {exchange.ChatDialect, chat + `,"modalities":["text","audio"]`, facts{speaks: true}},
		"heard":                {exchange.ChatDialect, `"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA"}}]}]`, facts{hears: true}},
		"Claude's tier":        {exchange.MessagesDialect, claude + `,"service_tier":"standard_only"`, facts{tier: "standard_only"}},
		"Claude's searches":    {exchange.MessagesDialect, claude + `,"tools":[{"type":"web_search_20250305","max_uses":3}]`, facts{searches: 3}},
		"without a bound":      {exchange.MessagesDialect, claude + `,"tools":[{"type":"web_search_20250305"}]`, facts{searches: searchesLikely}},
		"a bound without end":  {exchange.MessagesDialect, claude + `,"tools":[{"type":"web_search_20250305","max_uses":1e9}]`, facts{searches: searchesMost}},
		"a response's tier":    {exchange.ResponsesDialect, response + `,"service_tier":"priority"`, facts{tier: "priority"}},
		"a response's search":  {exchange.ResponsesDialect, response + `,"tools":[{"type":"web_search"}]`, facts{searches: searchesLikely}},
		"a number for a tier":  {exchange.ChatDialect, chat + `,"service_tier":5`, facts{}},
		"a word for the tools": {exchange.ChatDialect, chat + `,"tools":"web_search"`, facts{}},
	} {
		r := exchange.Request{Operation: exchange.Chat, Dialect: c.dialect}
		if body := []byte("{" + c.body + "}"); c.dialect == exchange.ChatDialect {
			r.Body = body
		} else {
			r.Native = body
		}
		if bad := peek(&r); bad != nil {
			t.Errorf("%s: %s", name, bad.message)
			continue
		}
		if always := name == "a search"; r.SearchesAlways != always {
			t.Errorf("%s: searches always: %v", name, r.SearchesAlways)
		}
		if got := (facts{r.ServiceTier, r.WebSearches, r.Audio, r.AudioAnswer}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	r := exchange.Request{Operation: exchange.Chat, Body: []byte(`{` + chat + `,"Service_Tier":"priority"}`)}
	if bad := peek(&r); bad == nil || bad.param != "Service_Tier" {
		t.Errorf("a tier that some providers would read was let pass: %+v", bad)
	}
}
