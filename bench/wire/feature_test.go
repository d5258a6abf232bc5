package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is what TestFeatures keeps true; SLUICE_WIRE_WRITE=1 writes it anew.
const document = "../../docs/providers.md"

// feature is something a caller may ask for. more are members that a request gets on top of a plain one's.
type feature struct {
	name, path string
	more       map[string]any
	own        string // a member no dialect knows: it arrives where the provider is spoken to in the caller's words
	arrives    string // a pattern of what the provider must see of it, in its path, head or body; "" for nothing
}

const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func features() []feature {
	const chat = "/v1/chat/completions"
	m := func(pairs ...any) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i].(string)] = pairs[i+1]
		}
		return out
	}
	user := func(part map[string]any) map[string]any {
		return m("messages", []any{m("role", "user", "content", []any{m("type", "text", "text", "What is it?"), part})})
	}
	tool := []any{m("type", "function", "function", m("name", "look", "parameters", anySchema))}
	format := func(more map[string]any) map[string]any { return m("response_format", more) }
	schema := m("type", "object", "properties", m("a", m("type", "string")), "required", []any{"a"}, "additionalProperties", false)
	return []feature{
		{"text", chat, nil, "", `What is there`},
		{"stream", chat, m("stream", true), "", `tream`},
		{"system message", chat, m("messages", []any{m("role", "system", "content", "Be brief."), m("role", "user", "content", "?")}), "", `Be brief`},
		{"several who speak", chat, m("messages", []any{m("role", "user", "name", "ann", "content", "?"), m("role", "user", "name", "ben", "content", "!")}), "", `(ann.*ben)`},
		{"a member of a message that nobody knows", chat, m("messages", []any{m("role", "user", "content", "?", "wish", true)}), "", `"wish":true`},
		{"stop", chat, m("stop", []any{"END"}), "", `"END"`},
		{"temperature, top_p", chat, m("temperature", 0.5, "top_p", 0.9), "", `0\.5.*0\.9|0\.9.*0\.5`},
		{"penalties", chat, m("presence_penalty", 0.5, "frequency_penalty", 0.5), "", `0\.5.*0\.5`},
		{"seed", chat, m("seed", 7), "", `[sS]eed":7`},
		{"n", chat, m("n", 2), "", `("n|candidateCount)":2`},
		{"logprobs", chat, m("logprobs", true), "", `[lL]ogprobs`},
		{"tools", chat, m("tools", tool), "", `"look"`},
		{"tool_choice: required", chat, m("tools", tool, "tool_choice", "required"), "", `"required"|"any"|"ANY"`},
		{"tool_choice: a tool", chat, m("tools", tool, "tool_choice", m("type", "function", "function", m("name", "look"))), "", `(name|allowedFunctionNames|tool).*"look".*(name|allowedFunctionNames|tool).*"look"`},
		{"parallel_tool_calls: false", chat, m("tools", tool, "parallel_tool_calls", false), "", `parallel_tool_calls":false|disable_parallel_tool_use":true`},
		{"json_object", chat, format(m("type", "json_object")), "", `json_object|application/json|"format":"json"`},
		{"json_schema", chat, format(m("type", "json_schema", "json_schema", m("name", "n", "schema", schema))), "", `additionalProperties.*false|"required":\["a"\]|properties`},
		{"reasoning_effort", chat, m("reasoning_effort", "low"), "", `"low"|"LOW"|[tT]hinking|budget`},
		{"image, as data", chat, user(m("type", "image_url", "image_url", m("url", onePixel))), "", `iVBORw0KGgo`},
		{"image, by URL", chat, user(m("type", "image_url", "image_url", m("url", "https://images.invalid/a.png"))), "", `images\.invalid`},
		{"image in a tool's result", chat, m("tools", tool, "messages", []any{
			m("role", "user", "content", "?"), m("role", "assistant", "tool_calls", []any{m("id", "call_1", "type", "function", "function", m("name", "look", "arguments", "{}"))}),
			m("role", "tool", "tool_call_id", "call_1", "content", []any{m("type", "image_url", "image_url", m("url", onePixel))}),
		}), "", `iVBORw0KGgo`},
		{"audio", chat, user(m("type", "input_audio", "input_audio", m("data", "AAAA", "format", "wav"))), "", `AAAA`},
		{"PDF", chat, user(m("type", "file", "file", m("filename", "a.pdf", "file_data", "data:application/pdf;base64,JVBERi0="))), "", `JVBERi0`},
		{"service_tier", chat, m("service_tier", "flex"), "", `flex`},
		{"embeddings", "/v1/embeddings", nil, "", `a heron`},
		{"custom tool", chat, m("tools", []any{m("type", "custom", "custom", m("name", "look"))}), "", `"custom".*"look"`},
		{"Messages API", "/v1/messages", nil, "x_wire_probe", `What is there`},
		{"top_k, in the Messages API", "/v1/messages", m("top_k", 7), "", `[tT]op_?[kK]":7`},
		{"count_tokens", "/v1/messages/count_tokens", nil, "x_wire_probe", `What is there`},
		{"Responses API", "/v1/responses", nil, "x_wire_probe", `What is there`},
		{"custom tool, in the Responses API", "/v1/responses", m("tools", []any{m("type", "custom", "name", "look")}), "", `"look"`},
		{"its grammar", "/v1/responses", m("tools", []any{m("type", "custom", "name", "look", "format", m("type", "grammar", "syntax", "lark", "definition", "start: /a/"))}), "", `start: /a/`},
		{"logprobs, in the Responses API", "/v1/responses", m("include", []any{"message.output_text.logprobs"}, "top_logprobs", 3), "", `logprobs`},
		{"web_search, in the Responses API", "/v1/responses", m("tools", []any{m("type", "web_search")}), "", `"web_search"`},
	}
}

func (x feature) body(alias string) string {
	hello := []any{map[string]any{"role": "user", "content": "What is there?"}}
	m := map[string]any{"model": alias, "messages": hello, "max_tokens": 64}
	switch {
	case x.path == "/v1/embeddings":
		m = map[string]any{"model": alias, "input": "a heron"}
	case strings.HasSuffix(x.path, "count_tokens"):
		delete(m, "max_tokens")
	case x.path == "/v1/responses":
		m = map[string]any{"model": alias, "input": "What is there?"}
	}
	maps.Copy(m, x.more)
	return object(m)
}

// server is a row of the document.
type server struct {
	name, folder string
	deployment
	under string
}

func servers() []server {
	vendor := func(name string) deployment {
		return deployment{"compatible", "fx-model", ", vendor: " + name, plainSecret}
	}
	aws, google := ", region: us-east-1", ", project: wire, region: us-central1"
	out := []server{
		{"openai", "openai", deployment{"openai", "fx-model", "", plainSecret}, ""},
		{"azure", "azure", deployment{"azure", "fx-model", "", plainSecret}, ""},
		{"anthropic", "anthropic", deployment{"anthropic", "claude-sonnet-4-5", "", plainSecret}, ""},
		{"bedrock", "bedrock", deployment{"bedrock", "amazon.nova-pro-v1:0", aws, plainSecret}, ""},
		{"bedrock, Claude", "", deployment{"bedrock", "anthropic.claude-sonnet-4-5-v1:0", aws, plainSecret}, ""},
		{"gemini", "gemini", deployment{"gemini", "gemini-2.5-flash", "", plainSecret}, ""},
		{"vertex", "vertex", deployment{"vertex", "gemini-2.5-flash", google, `{"access_token":"` + plainSecret + `"}`}, ""},
		{"vertex, Claude", "", deployment{"vertex", "claude-sonnet-4-5", google, `{"access_token":"` + plainSecret + `"}`}, ""},
		{"compatible", "compat", deployment{"compatible", "fx-model", "", plainSecret}, ""},
	}
	for _, name := range []string{"vllm", "sglang", "llamacpp", "ollama", "mistral", "groq", "deepseek", "xai", "openrouter"} {
		out = append(out, server{name, name, vendor(name), ""})
	}
	return append(out,
		server{"ollama, own API", "", vendor("ollama"), "/api"},
		server{"gemini-openai", "", vendor("gemini-openai"), ""})
}

// verdict is what a provider makes of a feature.
type verdict struct {
	sent  bool   // the provider was asked for it
	own   bool   // in the caller's own words
	param string // the member that the refusal named
}

// TestFeatures asks every kind of server for every feature, through a real sidecar. What a server cannot honour is refused
// with 400 and the member's name before it is asked, never left out. docs/providers.md says which is which.
func TestFeatures(t *testing.T) {
	p := listen(t)
	var targets []target
	for i, s := range servers() {
		for k := range features() {
			name := fmt.Sprintf("s%d-f%d", i, k)
			p.will(name, play{raw: answer("503 Busy", "application/json", `{"error":{"message":"busy"}}`)})
			targets = append(targets, target{name, p.base(name) + s.under, s.deployment})
		}
	}
	st := launch(t, p, targets, nil)
	all := make([]map[string]verdict, len(servers()))
	for i, s := range servers() {
		all[i] = map[string]verdict{}
		for k, x := range features() {
			t.Run(s.name+"/"+x.name, func(t *testing.T) {
				all[i][x.name] = st.feature(t, p, fmt.Sprintf("s%d-f%d", i, k), x)
			})
		}
	}
	if t.Failed() {
		return
	}
	text := describe(t, all)
	if os.Getenv("SLUICE_WIRE_WRITE") != "" {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(document); err != nil || string(b) != text {
		t.Errorf("docs/providers.md is not what the sidecar does (%v): SLUICE_WIRE_WRITE=1 go test ./bench/wire -run TestFeatures writes it", err)
	}
}

// feature asks for one and says what became of it.
func (s *stack) feature(t *testing.T, p *provider, name string, x feature) verdict {
	t.Helper()
	got := s.do(t, x.path, x.body(name))
	requests := p.requests(name)
	if len(requests) == 0 {
		if strings.HasSuffix(x.path, "count_tokens") && got.status == http.StatusOK {
			return verdict{} // estimated here
		}
		got.readError(t, string(got.body))
		if got.status != http.StatusBadRequest || got.err.Param == "" && got.err.Code == "" {
			t.Errorf("refused with %d %s", got.status, got.body)
		}
		return verdict{param: got.err.Param}
	}
	v := verdict{sent: true}
	if r := requests[0]; !regexp.MustCompile(x.arrives).MatchString(fmt.Sprint(r.path, r.header, string(r.body))) {
		t.Errorf("dropped in silence: %s %s", r.path, r.body)
	}
	if x.own != "" {
		// Whether the words are the caller's own shows in a member that nobody knows.
		before := len(requests)
		var m map[string]any
		decode(t, x.body(name), &m)
		m[x.own] = "1"
		s.do(t, x.path, object(m))
		if after := p.requests(name); len(after) > before {
			v.own = json.Valid(after[before].body) && strings.Contains(string(after[before].body), x.own)
		}
	}
	return v
}

// describe writes the document.
func describe(t *testing.T, all []map[string]verdict) string {
	t.Helper()
	var y strings.Builder
	y.WriteString("# What each provider is asked for\n\nWritten by [TestFeatures](../bench/wire/feature_test.go), which asks every kind of server " +
		"for every feature through a real\nsidecar, and fails when this page says otherwise. Callers of chat unless said otherwise.\n\n" +
		"- **yes**: the server is asked for it. **own**: in the caller's own words, byte for byte but for the model's name.\n" +
		"- **no**: refused with 400 naming the member, unless the alias has it in `allow_dropped`. Another deployment of the alias may take it.\n" +
		"- **here**: answered by the sidecar, as an estimate.\n\n" +
		"Whether a model can do what its server is asked for is the model's affair: `capabilities` of a deployment say it. How each is\n" +
		"written in org.yaml: [org.md](org.md#deployments).\n\n")
	for half := range slices.Chunk(indexes(len(servers())), 10) {
		y.WriteString("| |")
		for _, i := range half {
			y.WriteString(" " + servers()[i].name + " |")
		}
		y.WriteString("\n|---|" + strings.Repeat("---|", len(half)) + "\n")
		for _, x := range features() {
			y.WriteString("| " + x.name + " |")
			for _, i := range half {
				y.WriteString(" " + cell(servers()[i], x, all[i][x.name]) + " |")
			}
			y.WriteString("\n")
		}
		y.WriteString("\n")
	}
	y.WriteString("# Recorded answers\n\nEach file is a server's raw answer. [TestFixtures](../bench/wire/wire_test.go) plays it whole, byte by byte and in splits\n" +
		"to callers of each dialect, and holds what they, the books and the server saw against what it must come to.\n\n" +
		"| | text | tools | reasoning | cached tokens | stopped early | errors | broken streams |\n|---|---|---|---|---|---|---|---|\n")
	fixtures := load(t)
	for _, s := range servers() {
		if s.folder == "" {
			continue
		}
		y.WriteString("| " + s.name + " |")
		for _, kind := range recorded {
			var links []string
			for _, f := range fixtures {
				if f.folder() == s.folder && f.API != "models" && kind(f) {
					links = append(links, fmt.Sprintf("[%d](../bench/wire/testdata/%s %q)", len(links)+1, f.File, strings.TrimSuffix(filepath.Base(f.File), filepath.Ext(f.File))))
				}
			}
			y.WriteString(" " + strings.Join(links, " ") + " |")
		}
		y.WriteString("\n")
	}
	return y.String()
}

// recorded are the columns of the second table.
var recorded = []func(*fixture) bool{
	func(f *fixture) bool { return f.Want.Error == nil && len(f.Want.Calls) == 0 },
	func(f *fixture) bool { return len(f.Want.Calls) > 0 },
	func(f *fixture) bool {
		return f.Want.Reasoning != "" || (f.Want.Usage != nil && f.Want.Usage.Reasoning > 0)
	},
	func(f *fixture) bool { return f.Want.Usage != nil && f.Want.Usage.Cached > 0 },
	func(f *fixture) bool {
		return f.Want.Finish == "length" || f.Want.Finish == "content_filter" || f.Want.Refusal != ""
	},
	func(f *fixture) bool { return f.refused() },
	func(f *fixture) bool { return f.broken() },
}

func indexes(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// cell links the test behind it.
func cell(s server, x feature, v verdict) string {
	word := "yes"
	switch {
	case v.own:
		word = "own"
	case !v.sent && strings.HasSuffix(x.path, "count_tokens"):
		word = "here"
	case !v.sent:
		word = "no"
	}
	return fmt.Sprintf("[%s](../bench/wire/feature_test.go \"TestFeatures/%s\")", word, strings.ReplaceAll(s.name+"/"+x.name, " ", "_"))
}
