package responses_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestFaceFixtures: what other providers answer reaches callers of the Responses API, as it reaches callers of chat.
func TestFaceFixtures(t *testing.T) {
	for dir, ad := range map[string]adapter.Adapter{"../openai/testdata": openai.New(), "../anthropic/testdata": anthropic.New()} {
		for _, f := range adaptertest.Load(t, dir) {
			if f.API == "embeddings" || len(f.Want.Choices) > 0 {
				continue // an answer has one choice
			}
			t.Run(f.File, func(t *testing.T) {
				adaptertest.Cut(t, f.Answer(t), func(t *testing.T, pieces ...[]byte) {
					check(t, f, through(t, responses.Face{Adapter: ad}, ask(f.Stream), pieces...))
				})
			})
		}
	}
}

func check(t *testing.T, f *adaptertest.Fixture, got adaptertest.Relayed) {
	t.Helper()
	switch {
	case f.Broken():
		names, events := read(t, got.Body)
		if last := names[len(names)-1]; last != "response.failed" {
			t.Fatalf("ends in %s", last)
		}
		said := ""
		for _, e := range events {
			if gjson.Get(e, "type").Str == "response.output_text.delta" {
				said += gjson.Get(e, "delta").Str
			}
		}
		if said != f.Want.Partial {
			t.Errorf("%q was said before the failure, want %q", said, f.Want.Partial)
		}
	case f.Want.Error != nil:
		f.CheckRefusal(t, got)
	case got.Failure != nil:
		t.Fatalf("failure %+v", got.Failure)
	case f.Stream:
		_, events := read(t, got.Body)
		compare(t, f, follow(t, events), got.Usage)
	default:
		compare(t, f, gjson.ParseBytes(got.Body), got.Usage)
	}
}

func compare(t *testing.T, f *adaptertest.Fixture, final gjson.Result, used exchange.Usage) {
	t.Helper()
	var content, refusal, reasoning bytes.Buffer
	var calls []gjson.Result
	for _, item := range final.Get("output").Array() {
		switch item.Get("type").Str {
		case "message":
			for _, p := range item.Get("content").Array() {
				content.WriteString(p.Get("text").Str)
				refusal.WriteString(p.Get("refusal").Str)
			}
		case "reasoning":
			for _, p := range item.Get("summary").Array() {
				reasoning.WriteString(p.Get("text").Str)
			}
		case "function_call":
			calls = append(calls, item)
		}
	}
	if f.Want.Content != nil && content.String() != *f.Want.Content || refusal.String() != f.Want.Refusal ||
		f.Want.Reasoning != "" && reasoning.String() != f.Want.Reasoning {
		t.Errorf("content %q, refusal %q, reasoning %q: want %+v", &content, &refusal, &reasoning, f.Want)
	}
	if len(calls) != len(f.Want.Calls) {
		t.Fatalf("calls %v, want %+v", calls, f.Want.Calls)
	}
	for i, c := range f.Want.Calls {
		arguments := calls[i].Get("arguments").Str
		if c.ID != "" && calls[i].Get("call_id").Str != c.ID && !strings.Contains(c.ID, "*") || calls[i].Get("name").Str != c.Name ||
			arguments != c.Arguments && (c.Arguments != "" || arguments != "{}") {
			t.Errorf("call %s, want %+v", calls[i].Raw, c)
		}
	}
	status, reason := "completed", ""
	switch f.Want.Finish {
	case "length":
		status, reason = "incomplete", "max_output_tokens"
	case "content_filter":
		status, reason = "incomplete", "content_filter"
	}
	if final.Get("status").Str != status || final.Get("incomplete_details.reason").Str != reason || final.Get("model").Str != alias ||
		final.Get("x_gateway.estimated").Raw != strconv.FormatBool(used.Source == exchange.FromEstimate) {
		t.Errorf("final %s", final.Raw)
	}
	told := final.Get("usage")
	if told.Get("input_tokens").Int() != used.Prompt() || told.Get("output_tokens").Int() != used.Completion() {
		t.Errorf("told %s, settled %+v", told.Raw, used)
	}
	f.CheckUsage(t, used)
}
