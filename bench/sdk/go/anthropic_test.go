package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// claude is Anthropic's SDK with a base URL, a key, and its own defaults. It adds /v1 itself.
func claude(t *testing.T, secret string) (anthropic.Client, *counter) {
	t.Helper()
	c := &counter{RoundTripper: http.DefaultTransport}
	return anthropic.NewClient(
		option.WithBaseURL(strings.TrimSuffix(baseURL(), "/v1")), option.WithAPIKey(secret), option.WithHTTPClient(c.client()),
	), c
}

func message(model, prompt string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(model), MaxTokens: 64,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

// streamed is the message that the SDK makes of a stream.
func streamed(ctx context.Context, t *testing.T, client anthropic.Client, p anthropic.MessageNewParams) (*anthropic.Message, error) {
	t.Helper()
	s := client.Messages.NewStreaming(ctx, p)
	defer func() { _ = s.Close() }()
	var m anthropic.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			t.Fatalf("%v: %s", err, s.Current().RawJSON())
		}
	}
	return &m, s.Err()
}

func said(m *anthropic.Message) (all string) {
	for _, b := range m.Content {
		all += b.Text
	}
	return all
}

// TestMessages: the same models, by both providers' dialects, through Anthropic's SDK.
func TestMessages(t *testing.T) {
	for _, model := range chatModels {
		t.Run(model, func(t *testing.T) {
			client, _ := claude(t, key(t))
			p := message(model, "[[tokens=5]] hello")
			p.System = []anthropic.TextBlockParam{{Text: "be brief"}}
			whole, err := client.Messages.New(testContext(t), p)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := streamed(testContext(t), t, client, p)
			if err != nil {
				t.Fatal(err)
			}
			for kind, m := range map[string]*anthropic.Message{"whole": whole, "stream": stream} {
				if said(m) == "" || string(m.Model) != model || m.StopReason != anthropic.StopReasonEndTurn || m.Role != "assistant" ||
					m.Usage.OutputTokens != 5 || m.ID == "" {
					t.Errorf("%s: %s", kind, m.RawJSON())
				}
			}
			if whole.Usage.InputTokens == 0 {
				t.Errorf("no input was counted: %s", whole.Usage.RawJSON())
			}
			p.MaxTokens = 3
			if m, err := streamed(testContext(t), t, client, p); err != nil || m.StopReason != anthropic.StopReasonMaxTokens {
				t.Errorf("at the cap: %v, %+v", err, m)
			}
		})
	}
}

// TestMessagesTools: calls, whole and in a stream, one and two in parallel, and their results sent back.
func TestMessagesTools(t *testing.T) {
	for _, model := range chatModels {
		for prompt, want := range map[string][]string{
			"call get_weather": {"get_weather"}, "call get_weather and call get_time": {"get_weather", "get_time"},
		} {
			t.Run(model+"/"+prompt, func(t *testing.T) {
				client, _ := claude(t, key(t))
				p := message(model, prompt)
				for name, property := range map[string]string{"get_weather": "city", "get_time": "zone"} {
					tool := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
						Properties: map[string]any{property: map[string]string{"type": "string"}},
					}, name)
					p.Tools = append(p.Tools, tool)
				}
				whole, err := client.Messages.New(testContext(t), p)
				if err != nil {
					t.Fatal(err)
				}
				stream, err := streamed(testContext(t), t, client, p)
				if err != nil {
					t.Fatal(err)
				}
				var results []anthropic.ContentBlockParamUnion
				for kind, m := range map[string]*anthropic.Message{"whole": whole, "stream": stream} {
					results = nil
					var names []string
					for _, b := range m.Content {
						if b.Type != "tool_use" {
							continue
						}
						var input map[string]any
						if err := json.Unmarshal(b.Input, &input); err != nil || b.ID == "" {
							t.Errorf("%s: %v in %s", kind, err, b.RawJSON())
						}
						names = append(names, b.Name)
						results = append(results, anthropic.NewToolResultBlock(b.ID, "sunny", false))
					}
					if strings.Join(names, " ") != strings.Join(want, " ") || m.StopReason != anthropic.StopReasonToolUse {
						t.Errorf("%s: calls %v, stop %s", kind, names, m.StopReason)
					}
					again := p
					again.Messages = append(append([]anthropic.MessageParam{}, p.Messages...), m.ToParam(), anthropic.NewUserMessage(results...))
					after, err := client.Messages.New(testContext(t), again)
					if err != nil || after.StopReason != anthropic.StopReasonEndTurn || said(after) == "" {
						t.Errorf("%s, after the results: %v, %+v", kind, err, after)
					}
				}
			})
		}
	}
}

// TestMessagesErrors: refusals have Anthropic's types, and are not repeated.
func TestMessagesErrors(t *testing.T) {
	for name, row := range map[string]struct {
		secret string
		p      anthropic.MessageNewParams
		status int
		kind   string
	}{
		"wrong key":     {"sk-sluice-wrong", message("chat", "a"), 401, "authentication_error"},
		"unknown model": {key(t), message("nope", "a"), 404, "not_found_error"},
		"negative cap":  {key(t), anthropic.MessageNewParams{Model: "chat", MaxTokens: -1, Messages: message("chat", "a").Messages}, 400, "invalid_request_error"},
		"its own fault": {key(t), message("chat", "[[status=400 code=bad_thing]] hello"), 400, "invalid_request_error"},
	} {
		t.Run(name, func(t *testing.T) {
			client, sent := claude(t, row.secret)
			_, whole := client.Messages.New(testContext(t), row.p)
			_, stream := streamed(testContext(t), t, client, row.p)
			for _, err := range []error{whole, stream} {
				var e *anthropic.Error
				if !errors.As(err, &e) {
					t.Fatalf("error %v, want an API error", err)
				}
				var body struct {
					Type  string
					Error struct{ Type, Message string }
				}
				if json.Unmarshal([]byte(e.RawJSON()), &body) != nil || e.StatusCode != row.status || body.Type != "error" ||
					body.Error.Type != row.kind || body.Error.Message == "" || e.RequestID == "" {
					t.Errorf("status %d, request %q, %s", e.StatusCode, e.RequestID, e.RawJSON())
				}
			}
			if n := sent.n.Load(); n != 2 {
				t.Errorf("%d requests, want one of each kind", n)
			}
		})
	}
}

// TestMessagesBrokenStream: a stream that breaks is an error, never an end.
func TestMessagesBrokenStream(t *testing.T) {
	for _, broken := range []string{"fault=cut after=2", "fault=error-mid after=2"} {
		for _, model := range chatModels {
			client, _ := claude(t, key(t))
			m, err := streamed(testContext(t), t, client, message(model, "[[tokens=20 "+broken+"]] hello"))
			if err == nil {
				t.Errorf("%s, %s: no error, stop %q after %q", model, broken, m.StopReason, said(m))
			}
		}
	}
}
