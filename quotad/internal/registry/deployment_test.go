package registry

import (
	"strings"
	"testing"
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
		"anthropic":             {"provider: anthropic\n  api_version: 2026-10-21", ""},
		"anthropic odd version": {"provider: anthropic\n  api_version: v1", `:4: deployments[d].api_version: "v1" is not a version, like 2023-06-01`},
		"anthropic preview":     {"provider: anthropic\n  api_version: 2026-10-21-preview", `:4: deployments[d].api_version:`},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(tc.keys, "base_url") {
				tc.keys += "\n  base_url: https://h"
			}
			_, err := ParseOrg("org.yaml", []byte("version: 1\ndeployments:\n- "+tc.keys+"\n  id: d\n  model: m\n  unpriced: allow\n"))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "org.yaml"+tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
