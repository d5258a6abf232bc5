package sdk

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

func TestEmbeddings(t *testing.T) {
	covers(t, openaiChat, "embeddings")
	embed := func(format openai.EmbeddingNewParamsEncodingFormat) *openai.CreateEmbeddingResponse {
		t.Helper()
		got, err := newApp(t, key(t)).Embeddings.New(testContext(t), openai.EmbeddingNewParams{
			Model:          "embed",
			Input:          openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one text", "another"}},
			Dimensions:     openai.Int(64),
			EncodingFormat: format,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Model != "embed" || len(got.Data) != 2 || got.Usage.PromptTokens != 4 || got.Usage.TotalTokens != 4 {
			t.Fatalf("model %q, %d vectors, usage %s", got.Model, len(got.Data), got.Usage.RawJSON())
		}
		checkCost(t, got.JSON.ExtraFields["x_gateway"].Raw())
		return got
	}
	floats, plain := embed("float"), embed("")
	packed := embed("base64")
	for i := range floats.Data {
		v, w, d := floats.Data[i], packed.Data[i], plain.Data[i]
		if !strings.HasPrefix(v.JSON.Embedding.Raw(), "[") || !strings.HasPrefix(d.JSON.Embedding.Raw(), "[") {
			t.Errorf("vector %d: float came as %.20s, no format as %.20s", i, v.JSON.Embedding.Raw(), d.JSON.Embedding.Raw())
		}
		if !strings.HasPrefix(w.JSON.Embedding.Raw(), `"`) {
			t.Errorf("vector %d: base64 came as %.20s", i, w.JSON.Embedding.Raw())
		}
		if v.Index != int64(i) || w.Index != int64(i) || len(v.Embedding) != 64 || !slices.Equal(v.Embedding, d.Embedding) {
			t.Errorf("vector %d: indices %d %d, %d numbers", i, v.Index, w.Index, len(v.Embedding))
		}
		// JSON numbers are read as float64 and base64 holds float32: equal at the precision of the latter.
		if !slices.EqualFunc(v.Embedding, w.Embedding, func(a, b float64) bool { return float32(a) == float32(b) }) {
			t.Errorf("vector %d: the encodings differ: %v and %v", i, v.Embedding[:4], w.Embedding[:4])
		}
		if slices.ContainsFunc(v.Embedding, func(x float64) bool { return math.IsNaN(x) || math.Abs(x) > 1 }) {
			t.Errorf("vector %d is no unit vector: %v", i, v.Embedding)
		}
	}
	if slices.Equal(floats.Data[0].Embedding, floats.Data[1].Embedding) {
		t.Error("two texts have one vector")
	}
}

func TestModels(t *testing.T) {
	covers(t, openaiChat, "models")
	a := newApp(t, key(t))
	page, err := a.Models.List(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range page.Data {
		ids = append(ids, m.ID)
	}
	for _, want := range []string{"chat", "chat-anthropic", "embed"} {
		if !slices.Contains(ids, want) {
			t.Errorf("models %v lack %q", ids, want)
		}
		m, err := a.Models.Get(testContext(t), want)
		if err != nil || m.ID != want || m.OwnedBy == "" {
			t.Errorf("model %q: %+v, %v", want, m, err)
		}
	}
	if slices.Contains(ids, "fake-large") {
		t.Errorf("a provider's own model name is offered: %v", ids)
	}
}

// TestErrors says what the SDK makes of refusals, and that it does not repeat what can never succeed.
func TestErrors(t *testing.T) {
	chat := func(a *app, p openai.ChatCompletionNewParams) error {
		_, err := a.Chat.Completions.New(testContext(t), p)
		return err
	}
	stream := func(a *app, p openai.ChatCompletionNewParams) error {
		s := a.Chat.Completions.NewStreaming(testContext(t), p)
		defer func() { _ = s.Close() }()
		for s.Next() {
			t.Errorf("a chunk: %s", s.Current().RawJSON())
		}
		return s.Err()
	}
	model := func(a *app, p openai.ChatCompletionNewParams) error {
		_, err := a.Models.Get(testContext(t), p.Model)
		return err
	}
	embed := func(a *app, p openai.ChatCompletionNewParams) error {
		_, err := a.Embeddings.New(testContext(t), openai.EmbeddingNewParams{
			Model: p.Model, Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("text")},
		})
		return err
	}
	negative := ask("chat", "hello")
	negative.MaxTokens = openai.Int(-1)
	for _, row := range []struct {
		name              string
		call              func(*app, openai.ChatCompletionNewParams) error
		secret            string
		p                 openai.ChatCompletionNewParams
		status            int
		code, param, kind string
	}{
		{"wrong key", chat, "sk-sluice-wrong", ask("chat", "hello"), 401, "invalid_api_key", "", "authentication_error"},
		{"wrong key, stream", stream, "sk-sluice-wrong", ask("chat", "hello"), 401, "invalid_api_key", "", "authentication_error"},
		{"unknown model", chat, key(t), ask("nope", "hello"), 404, "model_not_found", "model", "invalid_request_error"},
		{"unknown model, stream", stream, key(t), ask("nope", "hello"), 404, "model_not_found", "model", "invalid_request_error"},
		{"unknown model, get", model, key(t), ask("nope", ""), 404, "model_not_found", "model", "invalid_request_error"},
		{"unknown model, embeddings", embed, key(t), ask("nope", ""), 404, "model_not_found", "model", "invalid_request_error"},
		{"negative cap", chat, key(t), negative, 400, "invalid_value", "max_tokens", "invalid_request_error"},
		{"negative cap, stream", stream, key(t), negative, 400, "invalid_value", "max_tokens", "invalid_request_error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newApp(t, row.secret)
			var e *openai.Error
			if err := row.call(a, row.p); !errors.As(err, &e) {
				t.Fatalf("error %v, want an API error", err)
			}
			if e.StatusCode != row.status || e.Code != row.code || e.Param != row.param || e.Type != row.kind || e.Message == "" {
				t.Errorf("status %d, %s", e.StatusCode, e.RawJSON())
			}
			if e.Response.Header.Get("x-request-id") == "" || e.Response.Header.Get("x-should-retry") != "false" {
				t.Errorf("headers %v", e.Response.Header)
			}
			if n := a.sent.n.Load(); n != 1 {
				t.Errorf("%d requests, want one", n)
			}
		})
	}
}
