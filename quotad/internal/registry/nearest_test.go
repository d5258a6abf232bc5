package registry

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"input", "output", "cache_read", "base_url", "region", "tools"}
	for word, want := range map[string]string{
		"outptu": "output", "utput": "output", "outputs": "output", "imput": "input", "toosl": "tools", "baseurl": "base_url",
		"cache_raed": "cache_read", "no_such_key": "", "x": "", "": "", "key": "", "value": "", strings.Repeat("output", 20): "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

// TestMistakesNameTheCure: what was probably meant is named, each allowed name once, and one mistake is one fault.
func TestMistakesNameTheCure(t *testing.T) {
	for keys, want := range map[string]string{
		"provider: vllm, base_url: 'https://h/v1'": `provider: "vllm" is not allowed: it is a vendor: write provider: compatible, vendor: vllm (allowed: openai,`,
		"provider: ollama":                         `provider: "ollama" is not allowed: it is a vendor: write provider: compatible, vendor: ollama (allowed: openai,`,
		"provider: antropic":                       `provider: "antropic" is not allowed: did you mean anthropic? (allowed: openai,`,
		"provider: cohere":                         `provider: "cohere" is not allowed (allowed: openai,`,
		"provider: openai, base_url: 'https://h/v1', contxt_tokens: 9":         "contxt_tokens: unknown key: did you mean context_tokens? (allowed: id, provider,",
		"provider: openai, base_url: 'https://h/v1', zzz: 9":                   "zzz: unknown key (allowed: id, provider,",
		"provider: vertex, project: p, region: eu, location: eu":               "location: unknown key: did you mean region? (allowed:",
		"provider: openai, base_url: 'https://h/v1', endpoint: 'https://h/v1'": "endpoint: unknown key: did you mean base_url? (allowed:",
		"provider: openai, base_url: 'https://h/v1', context_tokens: 128k":     `context_tokens: "128k" is not a whole number, like 128000 (allowed: 1 to 100000000)`,
		"provider: openai, base_url: 'https://h/v1', context_tokens: 1.5":      `context_tokens: "1.5" must be a whole number (allowed:`,
	} {
		_, _, err := ParseOrg("org.yaml", []byte("version: 1\ndeployments: [{ id: d, model: m, unpriced: allow, "+keys+" }]\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "org.yaml:2: deployments[d]."+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\ngot  %v\nwant %s", keys, err, want)
			continue
		}
		_, list, _ := strings.Cut(err.Error(), "(allowed: ")
		seen := map[string]bool{}
		for name := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ", ") {
			if seen[name] {
				t.Errorf("%s: %s stands in the list twice: %s", keys, name, list)
			}
			seen[name] = true
		}
	}
}

// TestWhatMayBeDropped: a slip in a member's name is refused, which else would drop nothing and say nothing.
func TestWhatMayBeDropped(t *testing.T) {
	for name, want := range map[string]string{
		"seed": "", "top_k": "", "top_a": "", "min_p": "", "chat_template_kwargs": "", "sed": "did you mean seed?", "seeed": "did you mean seed?",
		"top_b": "did you mean top_p?", "logit_bais": "did you mean logit_bias?", "messages": "cannot be dropped", "input": "cannot be dropped",
	} {
		_, _, err := ParseOrg("org.yaml", []byte("version: 1\naliases:\n  a:\n    targets: [{ deployment: d }]\n    allow_dropped: [n, "+name+"]\n"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		const at = "org.yaml:5: aliases.a.allow_dropped[1]: "
		if want == "" && strings.Contains(got, "allow_dropped") || want != "" && !strings.Contains(got, at+name+" ") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
