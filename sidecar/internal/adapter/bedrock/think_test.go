package bedrock

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestThoughtsOfMakers: what a model thinks goes back to the models of its maker, from callers of every dialect, streamed or
// not, and to no others: they refuse what they have not signed. Claude's goes to no other maker.
func TestThoughtsOfMakers(t *testing.T) {
	const (
		whole = `{"output":{"message":{"content":[{"reasoningContent":{"reasoningText":{"text":"one \"two\"","signature":"s=="}}},` +
			`{"reasoningContent":{"redactedContent":"ZA=="}},{"text":"x"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}`
		same   = `[{"reasoningContent":{"reasoningText":{"text":"one \"two\"","signature":"s=="}}},{"reasoningContent":{"redactedContent":"ZA=="}},{"text":"x"}]`
		mini   = "deepseek.r1-v1:0"
		arn    = "arn:aws:bedrock:us-east-1:1:inference-profile/eu.amazon.nova-2-lite-v1:0"
		hidden = "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"
	)
	events := []adaptertest.Event{
		{Name: deltaEvent, Data: `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"one "}}}`},
		{Name: deltaEvent, Data: `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"\"two\""}}}`},
		{Name: deltaEvent, Data: `{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"s=="}}}`},
		{Name: deltaEvent, Data: `{"contentBlockIndex":1,"delta":{"reasoningContent":{"redactedContent":"ZA=="}}}`},
		{Name: deltaEvent, Data: `{"contentBlockIndex":2,"delta":{"text":"x"}}`},
		{Name: "messageStop", Data: `{"stopReason":"end_turn"}`}, {Name: "metadata", Data: `{"usage":{"inputTokens":1,"outputTokens":2}}`},
	}
	// said is what a caller gets, whole and streamed.
	said := func(ad adapter.Adapter) (answer gjson.Result, stream []gjson.Result) {
		body, _, f := ad.Response(chat(false), []byte(whole), note)
		if f != nil {
			t.Fatal(f)
		}
		st := ad.Stream(chat(true), note)
		var out []byte
		for _, ev := range events {
			out, _ = st.Event(out, []byte(ev.Name), []byte(ev.Data))
		}
		if out, f = st.End(out); f != nil {
			t.Fatal(f)
		}
		for line := range strings.Lines(string(out)) {
			if data, ok := strings.CutPrefix(line, "data: {"); ok {
				stream = append(stream, gjson.Parse("{"+data))
			}
		}
		return gjson.ParseBytes(body), stream
	}
	turned := func(body []byte, f *exchange.Failure) string {
		if f != nil {
			t.Fatalf("%+v", f)
		}
		return string(body)
	}
	// back are the chat requests in which a thought of a model comes back, by the way it took.
	back := func(model string) map[string]string {
		ad := New().For(&exchange.Deployment{Model: model})
		all := map[string]string{}
		answer, stream := said(ad)
		var pieces []string
		for _, chunk := range stream {
			for _, d := range chunk.Get("choices.0.delta.reasoning_details").Array() {
				pieces = append(pieces, d.Raw)
			}
		}
		for name, details := range map[string]string{"chat": answer.Get("choices.0.message.reasoning_details").Raw, "chat, streamed": "[" + strings.Join(pieces, ",") + "]"} {
			all[name] = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x","reasoning_details":` + details + `}]}`
		}
		answer, stream = said(messages.Face{Adapter: ad})
		signature := answer.Get("content.0.signature").Str
		for _, ev := range stream {
			if s := ev.Get("delta.signature").Str; s != "" && s != signature {
				t.Errorf("%s: whole %s, streamed %s", model, signature, s)
			}
		}
		all["messages"] = turned(messages.Chat([]byte(`{"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":`+answer.Get("content").Raw+`},{"role":"user","content":"b"}]}`), nil))
		answer, stream = said(responses.Face{Adapter: ad})
		for name, output := range map[string]string{"responses": answer.Get("output").Raw, "responses, streamed": stream[len(stream)-1].Get("response.output").Raw} {
			all[name] = turned(responses.Chat([]byte(`{"input":`+output+`}`), nil))
		}
		return all
	}
	for model, readers := range map[string][]string{nova: {nova, arn}, arn: {nova, arn}, mini: {mini}, hidden: {hidden}} {
		for way, body := range back(model) {
			for _, to := range []string{nova, arn, mini, hidden, "anthropic.claude-sonnet-4-5-v1:0"} {
				r := chat(false)
				r.Body = []byte(body)
				call, f := New().Request(r, &exchange.Deployment{Model: to}, nil)
				if f != nil {
					t.Fatalf("%+v", f)
				}
				got, reads := string(call.Body), false
				for _, reader := range readers {
					reads = reads || reader == to
				}
				if strings.Contains(got, same) != reads || strings.Contains(got, "s==") != reads || strings.Contains(got, "ZA==") != reads {
					t.Errorf("what %s thought goes to %s by %s: %s", model, to, way, got)
				}
			}
			r := chat(false)
			r.Body = []byte(body)
			call, f := anthropic.New().Request(r, &exchange.Deployment{Model: "claude-sonnet-4-5"}, nil)
			if f != nil || strings.Contains(string(call.Body), "s==") {
				t.Errorf("%s to Claude by %s: %s %+v", model, way, call.Body, f)
			}
		}
	}
}
