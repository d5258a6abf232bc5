package sdk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// way is one API through the SDK that is made for it, with the SDK's own defaults.
type way struct {
	sdk    string
	whole  func(t *testing.T, ctx context.Context, secret string, p short) (*counter, error)
	stream func(t *testing.T, ctx context.Context, p short, text func()) error // text is called for each piece of it
}

// short is what every API is told.
type short struct {
	model, prompt string
	most          int64
}

var ways = []way{
	{openaiChat,
		func(t *testing.T, ctx context.Context, secret string, p short) (*counter, error) {
			a := newApp(t, secret)
			_, err := a.Chat.Completions.New(ctx, capped(p.model, p.prompt, p.most))
			return a.sent, err
		},
		func(t *testing.T, ctx context.Context, p short, text func()) error {
			s := newApp(t, key(t)).Chat.Completions.NewStreaming(ctx, capped(p.model, p.prompt, p.most))
			for s.Next() {
				if c := s.Current().Choices; len(c) > 0 && c[0].Delta.Content != "" {
					text()
				}
			}
			return errors.Join(s.Err(), s.Close())
		},
	},
	{openaiResponses,
		func(t *testing.T, ctx context.Context, secret string, p short) (*counter, error) {
			a := newApp(t, secret)
			_, err := a.Responses.New(ctx, cappedResponses(p))
			return a.sent, err
		},
		func(t *testing.T, ctx context.Context, p short, text func()) error {
			s := newApp(t, key(t)).Responses.NewStreaming(ctx, cappedResponses(p))
			for s.Next() {
				if s.Current().Type == "response.output_text.delta" {
					text()
				}
			}
			return errors.Join(s.Err(), s.Close())
		},
	},
	{anthropicMessages,
		func(t *testing.T, ctx context.Context, secret string, p short) (*counter, error) {
			client, sent := claude(t, secret)
			_, err := client.Messages.New(ctx, cappedMessage(p))
			return sent, err
		},
		func(t *testing.T, ctx context.Context, p short, text func()) error {
			client, _ := claude(t, key(t))
			s := client.Messages.NewStreaming(ctx, cappedMessage(p))
			for s.Next() {
				if s.Current().Delta.Text != "" {
					text()
				}
			}
			return errors.Join(s.Err(), s.Close())
		},
	},
}

func cappedResponses(p short) responses.ResponseNewParams {
	out := askResponses(p.model, p.prompt)
	out.MaxOutputTokens = openai.Int(p.most)
	return out
}

func cappedMessage(p short) anthropic.MessageNewParams {
	out := message(p.model, p.prompt)
	out.MaxTokens = p.most
	return out
}

// TestCancelMidStream: an app that leaves ends the provider's work.
func TestCancelMidStream(t *testing.T) {
	for i, way := range ways {
		covers(t, way.sdk, "cancel")
		most := int64(1910 + i) // of no other request: it finds the provider's record
		eachModel(t, func(t *testing.T, model string) {
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			pieces := 0
			err := way.stream(t, ctx, short{model, "[[tokens=1900 gap=10ms]] hello", most}, func() {
				if pieces++; pieces == 3 {
					cancel()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v, want context.Canceled", way.sdk, err)
			}
			r := awaitRecord(t, testContext(t), most)
			if r.Outcome != "cancelled" || r.TokensSent < 3 || r.TokensSent > 1000 {
				t.Errorf("%s: the provider went on: %+v", way.sdk, r)
			}
		})
	}
}

// TestRetries: each SDK sends again what may be sent again, and then succeeds.
func TestRetries(t *testing.T) {
	for _, way := range ways {
		covers(t, way.sdk, "retries")
		o := org{alias: "max_attempts: 1,"}.made(t)
		fault(t, o.upstream[0], 1, map[string]any{"status": 503})
		sent, err := way.whole(t, testContext(t), o.secret, short{o.model, "[[tokens=5]] hello", 50})
		if err != nil || !slices.Equal(sent.statuses(), []int{503, 200}) {
			t.Errorf("%s: %v, answered %v, want 503 and then 200", way.sdk, err, sent.statuses())
		}
	}
}

// statusOf is that of an SDK's API error, 0 of any other.
func statusOf(err error) int {
	var o *openai.Error
	var a *anthropic.Error
	switch {
	case errors.As(err, &o):
		return o.StatusCode
	case errors.As(err, &a):
		return a.StatusCode
	}
	return 0
}

// TestErrorsOfEveryWay: what the provider and the gateway refuse is an API error of each SDK, sent as often as may help.
func TestErrorsOfEveryWay(t *testing.T) {
	for _, way := range ways {
		covers(t, way.sdk, "errors")
		t.Run(way.sdk, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			for _, row := range []struct {
				name, model, prompt string // model "" is the organisation's own
				fault               map[string]any
				status, sent        int
			}{
				{"another's model", "chat", "hello", nil, 403, 1},
				{"no model", "nope", "hello", nil, 404, 1},
				{"the provider's 400", "", "[[status=400]] hello", nil, 400, 1},
				{"the provider's 401", "", "[[status=401]] hello", nil, 502, 1},
				{"the provider's 429", "", "hello", map[string]any{"status": 429, "retry-after": "10ms"}, 429, 3},
				{"the provider's 503", "", "hello", map[string]any{"status": 503}, 503, 3},
				{"silence", "", "hello", map[string]any{"fault": "hang"}, 504, 3},
			} {
				o := org{alias: "max_attempts: 1, timeouts: { total: 400ms },"}.made(t)
				if row.fault != nil { // of both: one that was rate limited is left for the other
					fault(t, o.upstream[0], 0, row.fault)
					fault(t, o.upstream[1], 0, row.fault)
				}
				sent, err := way.whole(t, testContext(t), o.secret, short{cmp.Or(row.model, o.model), row.prompt, 50})
				want := slices.Repeat([]int{row.status}, row.sent)
				if statusOf(err) != row.status || !slices.Equal(sent.statuses(), want) {
					t.Errorf("%s: answered %v, want %v: %v", row.name, sent.statuses(), want, err)
				}
			}
		})
	}
}

// TestBudgetExhausted: no SDK repeats what can only succeed next month.
func TestBudgetExhausted(t *testing.T) {
	for _, way := range ways {
		o := org{budget: "{ monthly: 0.002, hard: true }"}.made(t)
		served := 0
		sent, err := way.whole(t, testContext(t), o.secret, short{o.model, "[[tokens=20]] hello", 20})
		for ; err == nil && served < 50; served++ {
			sent, err = way.whole(t, testContext(t), o.secret, short{o.model, "[[tokens=20]] hello", 20})
		}
		if statusOf(err) != 429 || !slices.Equal(sent.statuses(), []int{429}) || served == 0 {
			t.Errorf("%s: after %d answers %v: %v", way.sdk, served, sent.statuses(), err)
		}
	}
}
