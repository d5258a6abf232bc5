package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// askResponses is a request of the Responses API with one message of the user. Of chatModels, the first is served by a
// provider that speaks the API itself and the second by way of chat.
func askResponses(model, prompt string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)}, Store: openai.Bool(false),
	}
}

func TestResponses(t *testing.T) {
	eachModel(t, func(t *testing.T, model string) {
		p := askResponses(model, "[[tokens=7]] hello")
		p.Instructions = openai.String("be brief")
		got, err := newApp(t, key(t)).Responses.New(testContext(t), p)
		if err != nil {
			t.Fatal(err)
		}
		if got.Model != model || got.Status != "completed" || len(strings.Fields(got.OutputText())) != 7 || got.Error.Message != "" {
			t.Errorf("%s", got.RawJSON())
		}
		checkResponse(t, got, 7)
	})
}

// checkResponse checks usage and cost of a response.
func checkResponse(t *testing.T, got *responses.Response, output int64) {
	t.Helper()
	if u := got.Usage; u.OutputTokens != output || u.InputTokens <= 0 || u.TotalTokens != u.InputTokens+output {
		t.Errorf("usage %s, want %d output tokens", u.RawJSON(), output)
	}
	checkCost(t, got.JSON.ExtraFields["x_gateway"].Raw())
}

func TestResponsesStream(t *testing.T) {
	covers(t, openaiResponses, "streaming")
	for _, prompt := range []string{
		"[[tokens=20 gap=1ms]] hello", "[[tokens=20 text=unicode sse=split]] hello", "[[tokens=20 sse=crlf,nospace,comment]] hello",
		"[[tokens=20 reasoning=5]] hello",
	} {
		for _, model := range chatModels {
			t.Run(prompt+"/"+model, func(t *testing.T) {
				got, types := drainResponses(t, testContext(t), askResponses(model, prompt))
				if got.Model != model || len(strings.Fields(got.OutputText())) != 20 || got.Status != "completed" {
					t.Errorf("%s", got.RawJSON())
				}
				if types[0] != "response.created" || types[len(types)-1] != "response.completed" {
					t.Errorf("events %v", types)
				}
				output := int64(20)
				if strings.Contains(prompt, "reasoning") {
					output += 5
				}
				checkResponse(t, got, output)
			})
		}
	}
}

// drainResponses reads a stream to its end. The SDK's accumulator must make of the events what the last one holds.
func drainResponses(t *testing.T, ctx context.Context, p responses.ResponseNewParams) (final *responses.Response, types []string) {
	t.Helper()
	s := newApp(t, key(t)).Responses.NewStreaming(ctx, p)
	defer func() { _ = s.Close() }()
	var sum responses.ResponseAccumulator
	var before responses.ResponseAccumulatorSnapshot
	for s.Next() {
		e := s.Current()
		types = append(types, e.Type)
		if e.SequenceNumber != int64(len(types)-1) {
			t.Errorf("event %d has number %d", len(types)-1, e.SequenceNumber)
		}
		if e.Type == "response.completed" || e.Type == "response.incomplete" || e.Type == "response.failed" {
			final, before = &e.Response, sum.Snapshot()
		}
		var same responses.ResponsesServerEventUnion
		if err := json.Unmarshal([]byte(e.RawJSON()), &same); err != nil {
			t.Fatal(err)
		}
		if err := sum.AddEvent(same); err != nil {
			t.Fatalf("%v: %s", err, e.RawJSON())
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if final == nil {
		t.Fatalf("no end after %v", types)
	}
	if final.Status == "failed" {
		return final, types // it need not hold what was said
	}
	after := sum.Snapshot()
	if before.OutputText() != final.OutputText() || len(before.Output) != len(after.Output) {
		t.Fatalf("the events made %+v, the last one %+v", before, after)
	}
	for i := range before.Output {
		b, a := before.Output[i], after.Output[i]
		if b.ItemID != a.ItemID || b.Type != a.Type || b.CallID != a.CallID || b.Name != a.Name || b.Arguments != a.Arguments {
			t.Errorf("item %d was %+v and is %+v", i, b, a)
		}
	}
	return final, types
}

// TestResponsesTools goes once around: calls, their outputs, the answer. The items of the first answer go back as they
// came, thoughts included.
func TestResponsesTools(t *testing.T) {
	covers(t, openaiResponses, "tools")
	for _, model := range chatModels {
		for _, stream := range []bool{false, true} {
			name := model
			if stream {
				name += "/stream"
			}
			t.Run(name, func(t *testing.T) {
				p := askResponses(model, "[[reasoning=4]] call get_weather and call get_time")
				p.Tools = []responses.ToolUnionParam{responseTool("get_weather", "city"), responseTool("get_time", "zone")}
				var got *responses.Response
				if stream {
					got, _ = drainResponses(t, testContext(t), p)
				} else {
					var err error
					if got, err = newApp(t, key(t)).Responses.New(testContext(t), p); err != nil {
						t.Fatal(err)
					}
				}
				items := []any{map[string]any{"role": "user", "content": "[[reasoning=4]] call get_weather and call get_time"}}
				var called, kinds []string
				for _, item := range got.Output {
					items, kinds = append(items, json.RawMessage(item.RawJSON())), append(kinds, item.Type)
					if call := item.AsFunctionCall(); item.Type == "function_call" {
						called = append(called, call.Name)
						if !json.Valid([]byte(call.Arguments)) || call.CallID == "" {
							t.Errorf("call %s", call.RawJSON())
						}
						items = append(items, map[string]any{"type": "function_call_output", "call_id": call.CallID, "output": "fine"})
					}
				}
				if !slices.Equal(called, []string{"get_weather", "get_time"}) || kinds[0] != "reasoning" {
					t.Fatalf("output %v: %s", kinds, got.RawJSON())
				}
				p.Input = param.Override[responses.ResponseNewParamsInputUnion](items)
				again, err := newApp(t, key(t)).Responses.New(testContext(t), p)
				if err != nil {
					t.Fatal(err)
				}
				if again.OutputText() == "" || again.Status != "completed" {
					t.Errorf("%s", again.RawJSON())
				}
			})
		}
	}
}

func responseTool(name, property string) responses.ToolUnionParam {
	return responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
		Name: name, Strict: openai.Bool(false), Parameters: objectSchema(property),
	}}
}

// TestResponsesOfSchema: an answer of the app's schema, whole and in a stream.
func TestResponsesOfSchema(t *testing.T) {
	covers(t, openaiResponses, "structured output")
	eachModel(t, func(t *testing.T, model string) {
		p := askResponses(model, "what is it?")
		p.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("thing", thingSchema)
		p.Text.Format.OfJSONSchema.Strict = openai.Bool(true)
		whole, err := newApp(t, key(t)).Responses.New(testContext(t), p)
		if err != nil {
			t.Fatal(err)
		}
		checkThing(t, whole.OutputText())
		streamed, _ := drainResponses(t, testContext(t), p)
		checkThing(t, streamed.OutputText())
	})
}

func TestResponsesLength(t *testing.T) {
	eachModel(t, func(t *testing.T, model string) {
		p := askResponses(model, "[[tokens=30]] hello")
		p.MaxOutputTokens = openai.Int(4)
		got, types := drainResponses(t, testContext(t), p)
		if got.Status != "incomplete" || got.IncompleteDetails.Reason != "max_output_tokens" || types[len(types)-1] != "response.incomplete" {
			t.Errorf("%s", got.RawJSON())
		}
		checkResponse(t, got, 4)
	})
}

// TestResponsesBreak: a provider that fails in mid-stream is a failed response, in the provider's words or ours.
func TestResponsesBreak(t *testing.T) {
	for _, fault := range []string{"error-mid", "truncate"} {
		for _, model := range chatModels {
			t.Run(fault+"/"+model, func(t *testing.T) {
				got, types := drainResponses(t, testContext(t), askResponses(model, "[[tokens=20 fault="+fault+" after=5]] hello"))
				if got.Status != "failed" || got.Error.Code == "" || got.Error.Message == "" || slices.Contains(types, "response.completed") {
					t.Errorf("%s", got.RawJSON())
				}
			})
		}
	}
}

func TestResponsesErrors(t *testing.T) {
	covers(t, openaiResponses, "errors")
	for _, row := range []struct {
		name, secret string
		change       func(*responses.ResponseNewParams)
		status       int
		code, param  string
	}{
		{"wrong key", "sk-sluice-wrong", func(*responses.ResponseNewParams) {}, 401, "invalid_api_key", ""},
		{"unknown model", key(t), func(p *responses.ResponseNewParams) { p.Model = "nope" }, 404, "model_not_found", "model"},
		{"background", key(t), func(p *responses.ResponseNewParams) { p.Background = openai.Bool(true) }, 400, "invalid_value", "background"},
		{"stored", key(t), func(p *responses.ResponseNewParams) { p.Store = openai.Bool(true) }, 400, "unsupported_parameter", "store"},
		{"an earlier response", key(t), func(p *responses.ResponseNewParams) { p.PreviousResponseID = openai.String("resp_1") }, 400, "unsupported_parameter", "previous_response_id"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := askResponses("chat-anthropic", "hello")
			row.change(&p)
			a := newApp(t, row.secret)
			_, err := a.Responses.New(testContext(t), p)
			var e *openai.Error
			if !errors.As(err, &e) || e.StatusCode != row.status || e.Code != row.code || e.Param != row.param || a.sent.n.Load() != 1 {
				t.Errorf("%v", err)
			}
		})
	}
}
