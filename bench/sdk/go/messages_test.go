package sdk

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
)

// claudeModel is served by a provider that speaks the Messages API itself.
const claudeModel = "chat-anthropic"

// estimated is x_gateway.estimated of an answer.
func estimated(t *testing.T, raw string) bool {
	t.Helper()
	var body struct {
		Gateway struct {
			Deployment string
			Estimated  bool
		} `json:"x_gateway"`
	}
	if err := json.Unmarshal([]byte(raw), &body); err != nil || body.Gateway.Deployment == "" {
		t.Errorf("%v: no x_gateway in %s", err, raw)
	}
	return body.Gateway.Estimated
}

// TestMessagesDocuments: a PDF, a text and a picture, which the provider counts 64 tokens each.
func TestMessagesDocuments(t *testing.T) {
	covers(t, anthropicMessages, "documents")
	file := base64.StdEncoding.EncodeToString([]byte("%PDF-1.7 and no more"))
	eachModel(t, func(t *testing.T, model string) {
		p := message(model, "[[tokens=5]] hello")
		bare := bothWays(t, p)["whole"].Usage.InputTokens
		p.Messages = []anthropic.MessageParam{anthropic.NewUserMessage(
			anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: file}),
			anthropic.NewDocumentBlock(anthropic.PlainTextSourceParam{Data: strings.Repeat("tide ", 80)}),
			anthropic.NewImageBlockBase64("image/png", file),
			anthropic.NewTextBlock("[[tokens=5]] hello"),
		)}
		both := bothWays(t, p)
		for kind, m := range both {
			if more := m.Usage.InputTokens - bare; more < 128 || said(m) == "" || m.Usage.InputTokens != both["whole"].Usage.InputTokens {
				t.Errorf("%s: %d tokens more than without them: %s", kind, more, m.RawJSON())
			}
		}
	})
}

// TestMessagesThinking: thinking comes in signed blocks, and may be sent back.
func TestMessagesThinking(t *testing.T) {
	covers(t, anthropicMessages, "thinking")
	eachModel(t, func(t *testing.T, model string) {
		client, _ := claude(t, key(t))
		p := message(model, "[[tokens=5 reasoning=4]] hello")
		p.MaxTokens = 4000
		p.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
		for kind, m := range bothWays(t, p) {
			if said(m) == "" || m.StopReason != anthropic.StopReasonEndTurn || m.Usage.OutputTokensDetails.ThinkingTokens != 4 {
				t.Fatalf("%s: %s", kind, m.RawJSON())
			}
			// OpenAI's models keep what they think to themselves.
			if b := m.Content[0]; model == claudeModel && (len(m.Content) != 2 || b.Type != "thinking" || b.Thinking == "" || b.Signature == "") {
				t.Fatalf("%s: %s", kind, m.RawJSON())
			}
			again := reply(p, m, anthropic.NewTextBlock("[[tokens=3]] and then?"))
			for _, next := range chatModels { // a conversation may go on with another model
				again.Model = next
				if after, err := client.Messages.New(testContext(t), again); err != nil || said(after) == "" {
					t.Errorf("%s, then %s: %v", kind, next, err)
				}
			}
		}
	})
}

// TestMessagesCountTokens: behind both models is a provider that counts, as it counts a real request.
func TestMessagesCountTokens(t *testing.T) {
	covers(t, anthropicMessages, "token counting")
	eachModel(t, func(t *testing.T, model string) {
		client, _ := claude(t, key(t))
		p := message(model, "[[tokens=3]] "+strings.Repeat("tide and wind ", 40))
		count, err := client.Messages.CountTokens(testContext(t), anthropic.MessageCountTokensParams{
			Model: p.Model, Messages: p.Messages, System: anthropic.MessageCountTokensParamsSystemUnion{OfString: anthropic.String("be brief")},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.System = []anthropic.TextBlockParam{{Text: "be brief"}}
		want := bothWays(t, p)["whole"].Usage.InputTokens
		if got := count.InputTokens; got != want || estimated(t, count.RawJSON()) {
			t.Errorf("%d tokens, and really %d: %s", got, want, count.RawJSON())
		}
	})
}

// TestMessagesStart: a client shows how full the window is from the first event on.
func TestMessagesStart(t *testing.T) {
	for _, model := range chatModels {
		client, _ := claude(t, key(t))
		s := client.Messages.NewStreaming(testContext(t), message(model, "[[tokens=3]] hello there"))
		if !s.Next() || s.Current().Type != "message_start" || s.Current().Message.Usage.InputTokens == 0 || s.Current().Message.Model != model {
			t.Errorf("%s: %v %s", model, s.Err(), s.Current().RawJSON())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMessagesModels: Anthropic's SDK pages through the aliases as through its own models.
func TestMessagesModels(t *testing.T) {
	covers(t, anthropicMessages, "models")
	client, _ := claude(t, key(t))
	var ids []string
	pages := client.Models.ListAutoPaging(testContext(t), anthropic.ModelListParams{})
	for pages.Next() {
		m := pages.Current()
		ids = append(ids, m.ID)
		if m.DisplayName != m.ID || m.Type != "model" || m.CreatedAt.IsZero() {
			t.Errorf("%s", m.RawJSON())
		}
		if one, err := client.Models.Get(testContext(t), m.ID, anthropic.ModelGetParams{}); err != nil || one.ID != m.ID {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
	if err := pages.Err(); err != nil || !slices.Contains(ids, claudeModel) {
		t.Errorf("models %v: %v", ids, err)
	}
	var e *anthropic.Error
	if _, err := client.Models.Get(testContext(t), "nope", anthropic.ModelGetParams{}); !errors.As(err, &e) || e.StatusCode != 404 || e.RequestID == "" {
		t.Errorf("no such model: %v", err)
	}
}
