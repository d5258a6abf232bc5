package registry

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestKeysOfProviders: a key stands where its provider reads it, in the form that it has, and the fault names its line.
func TestKeysOfProviders(t *testing.T) {
	for name, tc := range map[string]struct{ keys, want string }{
		"vendor":                 {"provider: compatible\n  vendor: mistral", ""},
		"vendor unknown":         {"provider: compatible\n  vendor: mistrall", `:4: deployments[d].vendor: "mistrall" is not allowed (allowed: vllm, sglang,`},
		"vendor of another":      {"provider: openai\n  vendor: mistral", ":4: deployments[d].vendor: is for provider compatible, not openai"},
		"project of another":     {"provider: azure\n  project: p", ":4: deployments[d].project: is for provider vertex, not azure"},
		"vertex":                 {"provider: vertex\n  project: p\n  region: global", ""},
		"vertex without region":  {"provider: vertex\n  project: p", ":3: deployments[d].region: is missing: provider vertex needs it"},
		"vertex without project": {"provider: vertex\n  region: r", ":3: deployments[d].project: is missing: provider vertex needs it"},
		"bedrock":                {"provider: bedrock\n  region: eu-central-1", ""},
		"bedrock without region": {"provider: bedrock", ":3: deployments[d].region: is missing: provider bedrock needs it"},
		"version of another":     {"provider: openai\n  api_version: v1", ":4: deployments[d].api_version: is for provider azure or anthropic, not openai"},
		"azure":                  {"provider: azure", ""},
		"azure v1":               {"provider: azure\n  api_version: v1", ""},
		"azure dated":            {"provider: azure\n  api_version: 2025-04-01-preview", ""},
		"azure odd version":      {"provider: azure\n  api_version: v2", `:4: deployments[d].api_version: "v2" is not a version (allowed: v1, preview, or a date,`},
		"azure no date":          {"provider: azure\n  api_version: 2024-13-01", `:4: deployments[d].api_version: "2024-13-01" is not a version`},
		"azure deployments": {
			"provider: azure\n  api_version: v1\n  base_url: https://x/openai/deployments/d",
			":4: deployments[d].api_version: must be a date, like 2024-10-21: base_url has /openai/deployments in it",
		},
		"azure deployments without": {
			"provider: azure\n  base_url: https://x/openai/deployments/d", ":3: deployments[d].api_version: must be a date",
		},
		"azure v1 with a date": {
			"provider: azure\n  api_version: 2024-10-21\n  base_url: https://x/openai/v1/",
			":4: deployments[d].api_version: must be v1 or preview, or left out: base_url ends in /openai/v1",
		},
		"a call's address": {
			"provider: openai\n  base_url: https://api.openai.com/v1/chat/completions/",
			":4: deployments[d].base_url: must end before /chat/completions, which is added to it",
		},
		"Azure's call": {
			"provider: azure\n  api_version: 2024-10-21\n  base_url: https://x/openai/deployments/d/embeddings",
			":5: deployments[d].base_url: must end before /embeddings",
		},
		"a host alone": {
			"provider: anthropic\n  base_url: https://api.anthropic.com/",
			":4: deployments[d].base_url: must have the version of the API in it: https://api.anthropic.com/v1",
		},
		"a proxy's host alone": {"provider: anthropic\n  base_url: https://proxy.internal", ""},
		"another region": {
			"provider: bedrock\n  region: us-east-1\n  base_url: https://bedrock-runtime.eu-west-1.amazonaws.com",
			":5: deployments[d].base_url: is in region eu-west-1, and region says us-east-1",
		},
		"the same region": {"provider: bedrock\n  region: eu-west-1\n  base_url: https://bedrock-runtime.eu-west-1.amazonaws.com", ""},
		"unknown alone":   {"provider: Gemini", `:3: deployments[d].provider: "Gemini" is not allowed`},
		"a profile elsewhere": {
			"provider: bedrock\n  region: us-east-1\n  model: arn:aws:bedrock:eu-west-1:1:inference-profile/x",
			":5: deployments[d].model: is in region eu-west-1, and region says us-east-1",
		},
		"a profile here":        {"provider: bedrock\n  region: us-gov-west-1\n  model: arn:aws-us-gov:bedrock:us-gov-west-1:1:inference-profile/x", ""},
		"no region of AWS":      {"provider: bedrock\n  region: eu", `:4: deployments[d].region: "eu" is not a region, like us-east-1`},
		"Google's for AWS":      {"provider: bedrock\n  region: europe-west4", `:4: deployments[d].region: "europe-west4" is not a region`},
		"price and none":        {"provider: compatible\n  base_url: http://h\n  price: mid", `:8: deployments[d].unpriced: stands beside price "mid", which a slip would make 0 without a word: leave one of them out`},
		"capability misspelt":   {"provider: openai\n  capabilities: [tools, vison]", `:4: deployments[d].capabilities[1]: "vison" is none of tools, json_schema, vision, and no alias needs it: did you mean vision?`},
		"capability of nobody":  {"provider: openai\n  capabilities: [chess]", `:4: deployments[d].capabilities[0]: "chess" is none of tools, json_schema, vision, and no alias needs it`},
		"base model":            {"provider: bedrock\n  region: eu-central-1\n  base_model: anthropic.claude-opus-4-6-v1", ""},
		"base model empty":      {"provider: azure\n  base_model: ''", ":4: deployments[d].base_model:"},
		"anthropic":             {"provider: anthropic\n  api_version: 2026-10-21", ""},
		"anthropic odd version": {"provider: anthropic\n  api_version: v1", `:4: deployments[d].api_version: "v1" is not a version, like 2023-06-01`},
		"anthropic preview":     {"provider: anthropic\n  api_version: 2026-10-21-preview", `:4: deployments[d].api_version:`},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(tc.keys, "base_url") && name != "unknown alone" {
				tc.keys += "\n  base_url: https://h"
			}
			if !strings.Contains(tc.keys, " model:") {
				tc.keys += "\n  model: m"
			}
			_, _, err := ParseOrg("org.yaml", []byte("version: 1\ndeployments:\n- "+tc.keys+"\n  id: d\n  unpriced: allow\n"))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "org.yaml"+tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestBaseURLOfGoogle: who has one place for all, or one in each region, needs no base_url.
func TestBaseURLOfGoogle(t *testing.T) {
	for name, tc := range map[string]struct{ keys, want string }{
		"gemini":       {"provider: gemini", "https://generativelanguage.googleapis.com/v1beta"},
		"own":          {"provider: gemini, base_url: 'https://h/v1/'", "https://h/v1"},
		"vertex":       {"provider: vertex, project: p, region: europe-west4", "https://europe-west4-aiplatform.googleapis.com/v1"},
		"global":       {"provider: vertex, project: p, region: global", "https://aiplatform.googleapis.com/v1"},
		"bedrock":      {"provider: bedrock, region: eu-central-1", "https://bedrock-runtime.eu-central-1.amazonaws.com"},
		"in China":     {"provider: bedrock, region: cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"},
		"a VPC's own":  {"provider: bedrock, region: us-east-1, base_url: 'https://vpce-1.vpce.amazonaws.com/'", "https://vpce-1.vpce.amazonaws.com"},
		"unsigned":     {"provider: bedrock", "org.yaml:2: deployments[d].region: is missing: provider bedrock needs it"},
		"odd signed":   {"provider: bedrock, region: US_1, base_url: 'https://h'", `org.yaml:2: deployments[d].region: "US_1" is not a region, like us-east-1`},
		"multi-region": {"provider: vertex, project: p, region: eu", "https://aiplatform.eu.rep.googleapis.com/v1"},
		"others":       {"provider: openai", "org.yaml:2: deployments[d].base_url: is missing"},
		"no region":    {"provider: vertex, project: p", "org.yaml:2: deployments[d].region: is missing: provider vertex needs it"},
		"AWS's":        {"provider: vertex, project: p, region: us-east-1", `org.yaml:2: deployments[d].region: "us-east-1" is not a region, like europe-west4, eu or global`},
		"odd region":   {"provider: vertex, project: p, region: a.b", `org.yaml:2: deployments[d].region: "a.b" is not a region, like europe-west4, eu or global`},
	} {
		t.Run(name, func(t *testing.T) {
			org, _, err := ParseOrg("org.yaml", []byte("version: 1\ndeployments: [{id: d, model: m, unpriced: allow, "+tc.keys+"}]\n"))
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = gjson.GetBytes(org[0].Spec, "base_url").Str
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestCapabilityOfOnesOwn: a name that an alias needs is a capability.
func TestCapabilityOfOnesOwn(t *testing.T) {
	mustParse(t, `version: 1
deployments: [{ id: d, provider: openai, base_url: "https://h/v1", model: m, unpriced: allow, capabilities: [chess, vision] }]
aliases: { a: { needs: [chess], targets: [{ deployment: d }] } }
`)
}
