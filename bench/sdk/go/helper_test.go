package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// chatModels are one alias for each provider dialect behind the sidecar.
var chatModels = []string{"chat", "chat-anthropic"}

// eachModel runs a test for each of chatModels.
func eachModel(t *testing.T, run func(t *testing.T, model string)) {
	t.Helper()
	for _, model := range chatModels {
		t.Run(model, func(t *testing.T) { run(t, model) })
	}
}

// The SDKs, by their modules, with the API that a test speaks.
const (
	openaiChat        = "github.com/openai/openai-go/v3\tchat"
	openaiResponses   = "github.com/openai/openai-go/v3\tresponses"
	anthropicMessages = "github.com/anthropics/anthropic-sdk-go\tmessages"
)

// covered guards the file SLUICE_COVERED.
var covered sync.Mutex

// covers notes for docs/sdks.md, once the test has passed, that it proves features of an SDK.
func covers(t *testing.T, sdk string, features ...string) {
	t.Helper()
	name := os.Getenv("SLUICE_COVERED")
	t.Cleanup(func() {
		if t.Failed() || name == "" {
			return
		}
		covered.Lock()
		defer covered.Unlock()
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		for _, feature := range features {
			if _, err := fmt.Fprintf(f, "Go\t%s\t%s\n", sdk, feature); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

// testWait bounds every test: nothing here takes longer than a second when it works.
const testWait = 20 * time.Second

// app is one SDK client and a count of what it sent.
type app struct {
	openai.Client
	sent *counter
}

// counter is a transport that counts requests and keeps how they were answered, so that retries are seen.
type counter struct {
	http.RoundTripper
	n     atomic.Int64
	after func(status int) // called after each answer's head, if set

	mu    sync.Mutex
	heads []head
}

type head struct {
	status int
	header http.Header
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	resp, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.heads = append(c.heads, head{resp.StatusCode, resp.Header})
	c.mu.Unlock()
	if c.after != nil {
		c.after(resp.StatusCode)
	}
	return resp, nil
}

// statuses are those of the answers so far.
func (c *counter) statuses() (out []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.heads {
		out = append(out, h.status)
	}
	return out
}

// headers are those of the answers with a status.
func (c *counter) headers(status int) (out []http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.heads {
		if h.status == status {
			out = append(out, h.header)
		}
	}
	return out
}

// client is an HTTP client that counts.
func (c *counter) client() *http.Client { return &http.Client{Transport: c} }

func baseURL() string { return cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:4000/v1") }

func witnessURL() string {
	return cmp.Or(os.Getenv("SLUICE_WITNESS"), "http://127.0.0.1:9900/witness")
}

func key(t *testing.T) string {
	t.Helper()
	k := os.Getenv("SLUICE_KEY")
	if k == "" {
		t.Fatal("SLUICE_KEY is not set: bench/sdk/run starts a stack and sets it")
	}
	return k
}

// newApp makes a client with the SDK's own defaults: two retries, no timeout.
func newApp(t *testing.T, secret string) *app {
	t.Helper()
	c := &counter{RoundTripper: http.DefaultTransport}
	return &app{
		Client: openai.NewClient(
			option.WithBaseURL(baseURL()), option.WithAPIKey(secret), option.WithHTTPClient(c.client()),
		),
		sent: c,
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// ask is a chat with one message of the user.
func ask(model, prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
	}
}

// objectSchema is an object of one string, which the fake provider fills with "example".
func objectSchema(property string) map[string]any {
	return map[string]any{
		"type": "object", "properties": map[string]any{property: map[string]any{"type": "string"}},
		"required": []string{property}, "additionalProperties": false,
	}
}

// thing is a structured answer, and thingSchema the schema an app sends for it.
type thing struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	Parts []struct {
		Name string `json:"name"`
	} `json:"parts"`
}

var thingSchema = map[string]any{
	"type": "object", "required": []string{"kind", "count", "parts"}, "additionalProperties": false,
	"properties": map[string]any{
		"kind":  map[string]any{"type": "string"},
		"count": map[string]any{"type": "integer"},
		"parts": map[string]any{"type": "array", "items": objectSchema("name")},
	},
}

// checkThing reads a structured answer as an app does.
func checkThing(t *testing.T, text string) {
	t.Helper()
	var got thing
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil || got.Kind != "example" || got.Count != 7 || len(got.Parts) != 1 || got.Parts[0].Name != "example" {
		t.Errorf("%v: %s", err, text)
	}
}

// record is what the fake provider remembers of a request.
type record struct {
	MaxTokens  int64  `json:"max_tokens"`
	Outcome    string `json:"outcome"`
	TokensSent int64  `json:"tokens_sent"`
}

// awaitRecord polls the witness until the newest request with this cap has ended.
func awaitRecord(t *testing.T, ctx context.Context, maxTokens int64) record {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, ok := newest(t, ctx, maxTokens); ok && r.Outcome != "open" && r.Outcome != "" {
			return r
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the provider never saw the end of the request with max_tokens %d", maxTokens)
		case <-tick.C:
		}
	}
}

func newest(t *testing.T, ctx context.Context, maxTokens int64) (record, bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, witnessURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var w struct{ Records []record }
	if err := json.NewDecoder(resp.Body).Decode(&w); err != nil {
		t.Fatal(err)
	}
	for _, r := range w.Records {
		if r.MaxTokens == maxTokens {
			return r, true
		}
	}
	return record{}, false
}
