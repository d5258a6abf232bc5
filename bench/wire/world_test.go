package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// dialect is one that callers speak.
type dialect struct {
	name, path string
	read       func(*testing.T, *seen)
	body       func(f *fixture, alias string, withUsage bool) string
	// unfit says why a fixture has nothing to say to callers of the dialect; "" when it has.
	unfit func(f *fixture) string
}

// member is the name of a chat request's member in the dialect.
func (d *dialect) member(name string) string {
	if d.name == "responses" {
		switch name {
		case "max_tokens":
			return "max_output_tokens"
		case "messages":
			return "input"
		}
	}
	return name
}

func dialects() []*dialect {
	return []*dialect{
		{"chat", "/v1/chat/completions", readChat, chatBody, func(f *fixture) string {
			if f.API == "responses" {
				return "callers of the Responses dialect alone are served by this API"
			}
			return ""
		}},
		{"messages", "/v1/messages", readMessages, messagesBody, func(f *fixture) string {
			switch {
			case f.API == "responses" || f.API == "embeddings":
				return "the API is of another dialect"
			case len(f.Want.Choices) > 0:
				return "the dialect has one choice"
			}
			return ""
		}},
		{"responses", "/v1/responses", readResponses, responsesBody, func(f *fixture) string {
			switch {
			case f.API == "embeddings":
				return "the API is of another dialect"
			case len(f.Want.Choices) > 0:
				return "the dialect has one choice"
			}
			return ""
		}},
	}
}

// deployment is how a provider of testdata stands in org.yaml.
type deployment struct {
	provider, model, more string
	secret                string
}

const plainSecret = "wire-provider-secret"

// deploymentOf is where a fixture is played for callers of a dialect.
func deploymentOf(f *fixture, d *dialect) deployment {
	plain := deployment{"compatible", "fx-model", "", plainSecret}
	vendor := func(name string) deployment {
		return deployment{"compatible", "fx-model", ", vendor: " + name, plainSecret}
	}
	switch folder := f.folder(); folder {
	case "anthropic":
		return deployment{"anthropic", "claude-sonnet-4-5", "", plainSecret}
	case "azure": // this version has no Responses API
		return deployment{"azure", "fx-model", `, api_version: "2024-10-21"`, plainSecret}
	case "bedrock":
		if strings.HasPrefix(f.API, "invoke") {
			// The name does not tell that it is Claude.
			return deployment{"bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/x", ", region: us-east-1, base_model: anthropic.claude-sonnet-4-5-v1:0", plainSecret}
		}
		return deployment{"bedrock", "amazon.nova-pro-v1:0", ", region: us-east-1", plainSecret}
	case "compat":
		return plain
	case "gemini":
		if f.API == "chat/completions" {
			return vendor("gemini-openai")
		}
		return deployment{"gemini", "gemini-2.5-flash", "", plainSecret}
	case "vertex":
		return deployment{"vertex", "gemini-2.5-flash", ", project: wire, region: us-central1", `{"access_token":"` + plainSecret + `"}`}
	case "openai":
		if d.name == "responses" && f.API != "responses" {
			return plain // OpenAI answers these callers in their own dialect, and never with such an answer
		}
		return deployment{"openai", "fx-model", "", plainSecret}
	default:
		return vendor(folder)
	}
}

// endpoint is where and with which header the provider of a fixture is asked.
func endpoint(f *fixture, d deployment) (path, auth string) {
	bearer := "Bearer " + plainSecret
	switch d.provider {
	case "anthropic":
		return "/messages", "X-Api-Key"
	case "azure":
		return "/openai/deployments/" + d.model + "/chat/completions?api-version=2024-10-21", "Api-Key"
	case "bedrock":
		return "/model/" + d.model + "/" + f.API, bearer
	case "gemini", "vertex":
		path = "/models/" + d.model + ":generateContent"
		if f.Stream {
			path = "/models/" + d.model + ":streamGenerateContent?alt=sse"
		}
		if d.provider == "vertex" {
			return "/projects/wire/locations/us-central1/publishers/google" + path, bearer
		}
		return path, "X-Goog-Api-Key"
	}
	if f.API == "ollama /api/chat" {
		return "/api/chat", bearer
	}
	return "/" + f.API, bearer
}

// under is what follows in the base URL of a fixture's deployment.
func under(f *fixture) string {
	if f.API == "ollama /api/chat" { // Ollama's own API is known by it
		return "/api"
	}
	return ""
}

// Prices of everything, in dollars a million tokens.
const prices = "input: 3.00, cache_read: 0.30, cache_write_5m: 3.75, cache_write_1h: 6.00, output: 15.00, image_output: 60.00, " +
	"speeds: { fast: 6.0 }, inference_geo: { us: 1.1 }"

// key is the secret of a deployment's credential, by provider and secret: what differs needs one of its own.
func (d deployment) key() string { return d.provider }

// target is one deployment and the alias that leads to it alone.
type target struct {
	name string // of both
	base string
	deployment
}

// organisation writes org.yaml and the secrets of its credentials. chains are aliases with a second target.
func organisation(targets []target, chains map[string][2]string) (string, map[string]string) {
	var y strings.Builder
	y.WriteString("version: 1\ncurrency: USD\nprices:\n  - id: p1\n    valid_from: 2026-01-01T00:00:00Z\n")
	fmt.Fprintf(&y, "    per_million_usd: { fx: { %s } }\ncredentials:\n", prices)
	secrets := map[string]string{}
	for _, t := range targets {
		secrets[t.key()] = t.secret
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		fmt.Fprintf(&y, "  %s: { provider: %s }\n", name, name)
	}
	y.WriteString("deployments:\n")
	for _, t := range targets {
		fmt.Fprintf(&y, "  - { id: %q, provider: %s, base_url: %q, model: %q, credential: %s, price: fx%s }\n",
			t.name, t.provider, t.base, t.model, t.key(), t.more)
	}
	y.WriteString("aliases:\n")
	for _, t := range targets {
		fmt.Fprintf(&y, "  %q: { max_attempts: 1, targets: [ { deployment: %q } ] }\n", t.name, t.name)
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		c := chains[name]
		fmt.Fprintf(&y, "  %q: { max_attempts: 2, targets: [ { deployment: %q }, { deployment: %q, priority: 2 } ] }\n", name, c[0], c[1])
	}
	fmt.Fprintf(&y, "teams:\n  t: {}\nkeys:\n  - { id: app, team: t, secret_sha256: %s }\n", sum(appKey))
	return y.String(), secrets
}

// toolNames are those that a fixture's answer calls.
func (f *fixture) toolNames() (names []string) {
	for _, c := range f.Want.Calls {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

func object(members map[string]any) string {
	b, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var anySchema = map[string]any{"type": "object", "properties": map[string]any{}}

func chatBody(f *fixture, alias string, withUsage bool) string {
	if f.API == "embeddings" {
		return object(map[string]any{"model": alias, "input": "a heron", "encoding_format": "float"})
	}
	m := map[string]any{
		"model": alias, "max_tokens": 64, "messages": []any{map[string]any{"role": "user", "content": "What is there?"}},
	}
	if f.Stream {
		m["stream"] = true
		if withUsage {
			m["stream_options"] = map[string]any{"include_usage": true}
		}
	}
	if len(f.Want.Choices) > 1 {
		m["n"] = len(f.Want.Choices)
	}
	var tools []any
	for _, name := range f.toolNames() {
		tools = append(tools, map[string]any{"type": "function", "function": map[string]any{"name": name, "parameters": anySchema}})
	}
	if tools != nil {
		m["tools"] = tools
	}
	return object(m)
}

func messagesBody(f *fixture, alias string, _ bool) string {
	m := map[string]any{
		"model": alias, "max_tokens": 64, "messages": []any{map[string]any{"role": "user", "content": "What is there?"}},
	}
	if f.Stream {
		m["stream"] = true
	}
	var tools []any
	for _, name := range f.toolNames() {
		tools = append(tools, map[string]any{"name": name, "input_schema": anySchema})
	}
	if tools != nil {
		m["tools"] = tools
	}
	return object(m)
}

func responsesBody(f *fixture, alias string, _ bool) string {
	m := map[string]any{"model": alias, "max_output_tokens": 64, "input": "What is there?"}
	if f.Stream {
		m["stream"] = true
	}
	var tools []any
	for _, name := range f.toolNames() {
		tools = append(tools, map[string]any{"type": "function", "name": name, "parameters": anySchema})
	}
	if tools != nil {
		m["tools"] = tools
	}
	return object(m)
}
