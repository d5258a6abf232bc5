package sdk

import (
	"context"
	"net/http"
	"slices"
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
		Model: model, MaxTokens: 64,
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

// bothWays asks for the same thing whole and in a stream.
func bothWays(t *testing.T, p anthropic.MessageNewParams) map[string]*anthropic.Message {
	t.Helper()
	client, _ := claude(t, key(t))
	whole, err := client.Messages.New(testContext(t), p)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := streamed(testContext(t), t, client, p)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*anthropic.Message{"whole": whole, "stream": stream}
}

// reply is the conversation p, gone on with the model's answer and the user's next words.
func reply(p anthropic.MessageNewParams, m *anthropic.Message, next ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
	p.Messages = append(slices.Clone(p.Messages), m.ToParam(), anthropic.NewUserMessage(next...))
	return p
}

func said(m *anthropic.Message) (all string) {
	for _, b := range m.Content {
		all += b.Text
	}
	return all
}
