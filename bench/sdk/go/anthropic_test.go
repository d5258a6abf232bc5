package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"
)

// TestMessages: the same models, by both providers' dialects, through Anthropic's SDK.
func TestMessages(t *testing.T) {
	covers(t, anthropicMessages, "streaming")
	eachModel(t, func(t *testing.T, model string) {
		p := message(model, "[[tokens=5]] hello")
		p.System = []anthropic.TextBlockParam{{Text: "be brief"}}
		both := bothWays(t, p)
		for kind, m := range both {
			if said(m) == "" || m.Model != model || m.StopReason != anthropic.StopReasonEndTurn || m.Role != "assistant" ||
				m.Usage.OutputTokens != 5 || m.ID == "" {
				t.Errorf("%s: %s", kind, m.RawJSON())
			}
		}
		if usage := both["whole"].Usage; usage.InputTokens == 0 {
			t.Errorf("no input was counted: %s", usage.RawJSON())
		}
		p.MaxTokens = 3
		for kind, m := range bothWays(t, p) {
			if m.StopReason != anthropic.StopReasonMaxTokens {
				t.Errorf("%s, at the cap: %s", kind, m.RawJSON())
			}
		}
	})
}

// weatherTools are two tools with one argument each.
func weatherTools() (all []anthropic.ToolUnionParam) {
	for _, of := range [][2]string{{"get_weather", "city"}, {"get_time", "zone"}} {
		all = append(all, anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
			Properties: map[string]any{of[1]: map[string]string{"type": "string"}},
		}, of[0]))
	}
	return all
}

// TestMessagesTools: calls, whole and in a stream, one and two in parallel, and their results sent back.
func TestMessagesTools(t *testing.T) {
	covers(t, anthropicMessages, "tools")
	eachModel(t, func(t *testing.T, model string) {
		for prompt, want := range map[string][]string{
			"call get_weather": {"get_weather"}, "call get_weather and call get_time": {"get_weather", "get_time"},
		} {
			p := message(model, prompt)
			p.Tools = weatherTools()
			for kind, m := range bothWays(t, p) {
				var names []string
				var results []anthropic.ContentBlockParamUnion
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
				if !slices.Equal(names, want) || m.StopReason != anthropic.StopReasonToolUse {
					t.Fatalf("%s: calls %v, stop %s", kind, names, m.StopReason)
				}
				for _, after := range bothWays(t, reply(p, m, results...)) {
					if after.StopReason != anthropic.StopReasonEndTurn || said(after) == "" {
						t.Errorf("%s, after the results: %s", kind, after.RawJSON())
					}
				}
			}
		}
	})
}

// TestToolRunner: the SDK's own loop calls the tool and sends its result back.
func TestToolRunner(t *testing.T) {
	covers(t, anthropicMessages, "tool runner")
	eachModel(t, func(t *testing.T, model string) {
		client, _ := claude(t, key(t))
		var asked []string
		type place struct {
			City string `json:"city" jsonschema:"required"`
		}
		weather, err := toolrunner.NewBetaToolFromJSONSchema("get_weather", "says how the weather is",
			func(_ context.Context, of place) (anthropic.BetaToolResultBlockParamContentUnion, error) {
				asked = append(asked, of.City)
				return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "sunny"}}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		last, err := client.Beta.Messages.NewToolRunner([]anthropic.BetaTool{weather}, anthropic.BetaToolRunnerParams{
			BetaMessageNewParams: anthropic.BetaMessageNewParams{
				Model: model, MaxTokens: 64,
				Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("call get_weather"))},
			},
		}).RunToCompletion(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(asked, []string{"example"}) || last.StopReason != anthropic.BetaStopReasonEndTurn {
			t.Errorf("asked %v, at last %s", asked, last.RawJSON())
		}
	})
}

// TestMessagesOfSchema: an answer of the app's schema, whole and in a stream.
func TestMessagesOfSchema(t *testing.T) {
	covers(t, anthropicMessages, "structured output")
	eachModel(t, func(t *testing.T, model string) {
		p := message(model, "what is it?")
		p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: thingSchema}
		for _, m := range bothWays(t, p) {
			checkThing(t, said(m))
		}
	})
}

// TestMessagesErrors: refusals have Anthropic's types, and are not repeated.
func TestMessagesErrors(t *testing.T) {
	covers(t, anthropicMessages, "errors")
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
