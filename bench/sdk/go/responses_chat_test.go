package sdk

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// TestResponsesCustomTool goes once around as Codex does: a tool that takes a text, what it is told, its output, and the
// answer. Where the provider knows only functions the caller sees no difference.
func TestResponsesCustomTool(t *testing.T) {
	for _, model := range chatModels {
		for _, stream := range []bool{false, true} {
			name := model
			if stream {
				name += "/stream"
			}
			t.Run(name, func(t *testing.T) {
				const prompt = "call apply_patch and call get_time"
				p := askResponses(model, prompt)
				p.Tools = []responses.ToolUnionParam{
					{OfCustom: &responses.CustomToolParam{Name: "apply_patch", Description: openai.String("takes a patch")}},
					responseTool("get_time", "zone"),
				}
				var got *responses.Response
				if stream {
					var types []string
					got, types = drainResponses(t, testContext(t), p)
					for _, want := range []string{"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "response.function_call_arguments.done"} {
						if !slices.Contains(types, want) {
							t.Errorf("no %s in %v", want, types)
						}
					}
				} else {
					var err error
					if got, err = newApp(t, key(t)).Responses.New(testContext(t), p); err != nil {
						t.Fatal(err)
					}
				}
				if len(got.Output) != 2 || got.Output[0].Type != "custom_tool_call" || got.Output[1].Type != "function_call" {
					t.Fatalf("output %s", got.RawJSON())
				}
				call := got.Output[0].AsCustomToolCall()
				if call.Name != "apply_patch" || call.Input != "example" || call.CallID == "" || call.ID == "" {
					t.Errorf("call %s", call.RawJSON())
				}
				p.Input = param.Override[responses.ResponseNewParamsInputUnion]([]any{
					map[string]any{"role": "user", "content": prompt},
					json.RawMessage(call.RawJSON()), json.RawMessage(got.Output[1].RawJSON()),
					map[string]any{"type": "custom_tool_call_output", "call_id": call.CallID, "output": "done"},
					map[string]any{"type": "function_call_output", "call_id": got.Output[1].CallID, "output": "noon"},
				})
				again, err := newApp(t, key(t)).Responses.New(testContext(t), p)
				if err != nil || again.OutputText() == "" || again.Status != "completed" {
					t.Errorf("%v %s", err, again.RawJSON())
				}
			})
		}
	}
}

// TestResponsesGrammar: a text that must be of a grammar goes only where the Responses API is spoken.
func TestResponsesGrammar(t *testing.T) {
	for _, model := range chatModels {
		p := askResponses(model, "call apply_patch")
		p.Tools = []responses.ToolUnionParam{{OfCustom: &responses.CustomToolParam{
			Name: "apply_patch", Format: shared.CustomToolInputFormatUnionParam{
				OfGrammar: &shared.CustomToolInputFormatGrammarParam{Syntax: "lark", Definition: `start: "a"`},
			},
		}}}
		got, err := newApp(t, key(t)).Responses.New(testContext(t), p)
		if model == claudeModel {
			var e *openai.Error
			if !errors.As(err, &e) || e.StatusCode != 400 || e.Code != "unsupported_parameter" || e.Param != "tools[0].format" {
				t.Errorf("%s: %v", model, err)
			}
		} else if err != nil || len(got.Output) != 1 || got.Output[0].Type != "custom_tool_call" {
			t.Errorf("%s: %v %s", model, err, got.RawJSON())
		}
	}
}

// TestResponsesLogprobs: a provider that knows only chat tells them too, in every place where OpenAI does.
func TestResponsesLogprobs(t *testing.T) {
	only := org{chat: true}.made(t)
	for model, secret := range map[string]string{"chat": key(t), only.model: only.secret} {
		t.Run(model, func(t *testing.T) {
			p := askResponses(model, "[[tokens=5]] hello")
			p.Include = []responses.ResponseIncludable{responses.ResponseIncludableMessageOutputTextLogprobs}
			p.TopLogprobs = openai.Int(2)
			client := newApp(t, secret)
			whole, err := client.Responses.New(testContext(t), p)
			if err != nil {
				t.Fatal(err)
			}
			check := func(r *responses.Response) {
				t.Helper()
				said, logprobs := r.OutputText(), r.Output[0].Content[0].Logprobs
				tokens := ""
				for _, l := range logprobs {
					tokens += l.Token
					if l.Logprob != -0.5 || len(l.TopLogprobs) != 2 || len(l.Bytes) != len(l.Token) {
						t.Errorf("%s", l.RawJSON())
					}
				}
				if len(logprobs) != 5 || tokens != said || r.TopLogprobs != 2 && model != "chat" {
					t.Errorf("%q of %q: %s", tokens, said, r.RawJSON())
				}
			}
			check(whole)
			s := client.Responses.NewStreaming(testContext(t), p)
			defer func() { _ = s.Close() }()
			told, said := "", ""
			for s.Next() {
				switch e := s.Current(); e.Type {
				case "response.output_text.delta":
					said += e.Delta
					for _, l := range e.AsResponseOutputTextDelta().Logprobs {
						told += l.Token
					}
				case "response.output_text.done":
					if n := len(e.AsResponseOutputTextDone().Logprobs); n != 5 || told != said || said != e.Text {
						t.Errorf("%d in the end, %q of %q", n, told, said)
					}
				case "response.completed":
					check(&e.Response)
				}
			}
			if s.Err() != nil || said == "" {
				t.Errorf("%v %q", s.Err(), said)
			}
		})
	}
	p := askResponses(claudeModel, "hello")
	p.Include = []responses.ResponseIncludable{responses.ResponseIncludableMessageOutputTextLogprobs}
	var e *openai.Error
	if _, err := newApp(t, key(t)).Responses.New(testContext(t), p); !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "include" {
		t.Errorf("Claude tells none: %v", err)
	}
}
