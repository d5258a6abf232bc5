package sdk

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

func TestChat(t *testing.T) {
	eachModel(t, func(t *testing.T, model string) {
		got, err := newApp(t, key(t)).Chat.Completions.New(testContext(t), ask(model, "[[tokens=7]] hello"))
		if err != nil {
			t.Fatal(err)
		}
		if got.Model != model {
			t.Errorf("model %q, want the alias %q", got.Model, model)
		}
		c := got.Choices[0]
		if n := len(strings.Fields(c.Message.Content)); n != 7 || c.FinishReason != "stop" || c.Message.Role != "assistant" {
			t.Errorf("%d words, finish %q, role %q", n, c.FinishReason, c.Message.Role)
		}
		checkUsage(t, got.Usage, 7)
		checkCost(t, got.JSON.ExtraFields["x_gateway"].Raw())
	})
}

func TestStream(t *testing.T) {
	covers(t, openaiChat, "streaming")
	for _, row := range []struct {
		name, prompt string
		usage        bool
	}{
		{"usage", "[[tokens=20 gap=1ms]] hello", true},
		{"no usage", "[[tokens=20 gap=1ms]] hello", false},
		{"many scripts, split inside characters", "[[tokens=20 text=unicode sse=split]] hello", true},
		{"unusual framing", "[[tokens=20 sse=crlf,nospace,comment]] hello", true},
		{"late", "[[tokens=20 first=50ms gap=10ms]] hello", true},
	} {
		for _, model := range chatModels {
			t.Run(row.name+"/"+model, func(t *testing.T) {
				p := ask(model, row.prompt)
				if row.usage {
					p.StreamOptions.IncludeUsage = openai.Bool(true)
				}
				got, chunks := drain(t, testContext(t), p)
				if got.Model != model {
					t.Errorf("model %q, want the alias %q", got.Model, model)
				}
				if c := got.Choices[0]; len(strings.Fields(c.Message.Content)) != 20 || c.FinishReason != "stop" {
					t.Errorf("%q, finish %q", c.Message.Content, c.FinishReason)
				}
				last := chunks[len(chunks)-1]
				if !row.usage {
					if got.Usage.TotalTokens != 0 || len(last.Choices) == 0 {
						t.Errorf("usage that was not asked for: %s", last.RawJSON())
					}
					return
				}
				if len(last.Choices) != 0 {
					t.Errorf("the last chunk has choices: %s", last.RawJSON())
				}
				checkUsage(t, got.Usage, 20)
				checkCost(t, last.JSON.ExtraFields["x_gateway"].Raw())
			})
		}
	}
}

// TestStreamIsWhole says that a stream and a plain answer hold the same text.
func TestStreamIsWhole(t *testing.T) {
	eachModel(t, func(t *testing.T, model string) {
		p := ask(model, "[[tokens=50 text=unicode]] hello")
		whole, err := newApp(t, key(t)).Chat.Completions.New(testContext(t), p)
		if err != nil {
			t.Fatal(err)
		}
		streamed, _ := drain(t, testContext(t), p)
		if a, b := whole.Choices[0].Message.Content, streamed.Choices[0].Message.Content; a != b {
			t.Errorf("plain  %q\nstream %q", a, b)
		}
	})
}

func TestLength(t *testing.T) {
	eachModel(t, func(t *testing.T, model string) {
		p := ask(model, "[[tokens=30]] hello")
		p.MaxCompletionTokens = openai.Int(4)
		got, err := newApp(t, key(t)).Chat.Completions.New(testContext(t), p)
		if err != nil {
			t.Fatal(err)
		}
		if got.Choices[0].FinishReason != "length" {
			t.Errorf("finish %q, want length", got.Choices[0].FinishReason)
		}
		checkUsage(t, got.Usage, 4)
	})
}

func TestTools(t *testing.T) {
	covers(t, openaiChat, "tools")
	for _, model := range chatModels {
		for _, row := range []struct {
			name, prompt string
			want         []string
		}{
			{"one", "call get_weather", []string{"get_weather"}},
			{"two in parallel", "call get_weather and call get_time", []string{"get_weather", "get_time"}},
		} {
			t.Run(row.name+"/"+model, func(t *testing.T) {
				p := ask(model, row.prompt)
				p.Tools = []openai.ChatCompletionToolUnionParam{tool("get_weather", "city"), tool("get_time", "zone")}
				whole, err := newApp(t, key(t)).Chat.Completions.New(testContext(t), p)
				if err != nil {
					t.Fatal(err)
				}
				checkCalls(t, whole, row.want)
				streamed, _ := drain(t, testContext(t), p)
				checkCalls(t, &streamed, row.want)
				answerCalls(t, p, whole)
			})
		}
	}
}

// answerCalls sends the tools' results, so that the history of calls and results is read too.
func answerCalls(t *testing.T, p openai.ChatCompletionNewParams, called *openai.ChatCompletion) {
	t.Helper()
	p.Messages = append(slices.Clone(p.Messages), called.Choices[0].Message.ToParam())
	for _, c := range called.Choices[0].Message.ToolCalls {
		p.Messages = append(p.Messages, openai.ToolMessage("sunny", c.ID))
	}
	got, err := newApp(t, key(t)).Chat.Completions.New(testContext(t), p)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Choices[0]; c.FinishReason != "stop" || c.Message.Content == "" || len(c.Message.ToolCalls) != 0 {
		t.Errorf("after the results: finish %q, %s", c.FinishReason, c.Message.RawJSON())
	}
}

// TestChatOfSchema: an answer of the app's schema, whole and in a stream.
func TestChatOfSchema(t *testing.T) {
	covers(t, openaiChat, "structured output")
	eachModel(t, func(t *testing.T, model string) {
		p := ask(model, "what is it?")
		p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{
			JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "thing", Strict: openai.Bool(true), Schema: thingSchema},
		}
		whole, err := newApp(t, key(t)).Chat.Completions.New(testContext(t), p)
		if err != nil {
			t.Fatal(err)
		}
		checkThing(t, whole.Choices[0].Message.Content)
		streamed, _ := drain(t, testContext(t), p)
		checkThing(t, streamed.Choices[0].Message.Content)
	})
}

// drain reads a stream to its end through the SDK's accumulator.
func drain(t *testing.T, ctx context.Context, p openai.ChatCompletionNewParams) (openai.ChatCompletion, []openai.ChatCompletionChunk) {
	t.Helper()
	s := newApp(t, key(t)).Chat.Completions.NewStreaming(ctx, p)
	defer func() { _ = s.Close() }()
	var acc openai.ChatCompletionAccumulator
	var chunks []openai.ChatCompletionChunk
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatalf("the accumulator refused %s", s.Current().RawJSON())
		}
		chunks = append(chunks, s.Current())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(acc.Choices) == 0 {
		t.Fatal("a stream without choices")
	}
	return acc.ChatCompletion, chunks
}

func tool(name, property string) openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: name, Parameters: objectSchema(property),
	})
}

func checkCalls(t *testing.T, got *openai.ChatCompletion, want []string) {
	t.Helper()
	c := got.Choices[0]
	if c.FinishReason != "tool_calls" {
		t.Errorf("finish %q, want tool_calls", c.FinishReason)
	}
	var names, ids []string
	for _, call := range c.Message.ToolCalls {
		names, ids = append(names, call.Function.Name), append(ids, call.ID)
		var args map[string]string
		if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil || len(args) != 1 {
			t.Errorf("arguments %q: %v", call.Function.Arguments, err)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("calls %v, want %v", names, want)
	}
	slices.Sort(ids)
	if slices.Contains(ids, "") || len(slices.Compact(ids)) != len(want) {
		t.Errorf("ids are not distinct: %v", ids)
	}
}

func checkUsage(t *testing.T, u openai.CompletionUsage, output int64) {
	t.Helper()
	if u.CompletionTokens != output || u.PromptTokens <= 0 || u.TotalTokens != u.PromptTokens+output {
		t.Errorf("usage %s, want %d completion tokens", u.RawJSON(), output)
	}
}

// checkCost reads the gateway's own member, which SDKs keep as an unknown field.
func checkCost(t *testing.T, raw string) {
	t.Helper()
	var g struct {
		Cost       json.Number
		Currency   string
		Deployment string
		Estimated  *bool
	}
	if err := json.Unmarshal([]byte(raw), &g); err != nil {
		t.Fatalf("x_gateway %q: %v", raw, err)
	}
	if cost, err := g.Cost.Float64(); err != nil || cost <= 0 || g.Currency != "USD" || g.Deployment == "" ||
		g.Estimated == nil || *g.Estimated {
		t.Errorf("x_gateway %s", raw)
	}
}
