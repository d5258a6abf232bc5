package responses_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// want is what a caller must see of a fixture, in chat's terms.
type want struct {
	File   string
	API    string
	Stream bool
	Want   struct {
		Status    int
		Content   *string
		Finish    string `json:"finish_reason"`
		Reasoning string
		Refusal   string
		Calls     []struct{ ID, Name, Arguments string } `json:"tool_calls"`
		Choices   []any
		Error     *struct{}
		Partial   string `json:"partial_content"`
		Usage     *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		}
	}
}

// TestFaceFixtures: what other providers answer reaches callers of the Responses API, as it reaches callers of chat.
func TestFaceFixtures(t *testing.T) {
	for dir, ad := range map[string]adapter.Adapter{"../openai/testdata": openai.New(), "../anthropic/testdata": anthropic.New()} {
		raw, err := os.ReadFile(filepath.Join(dir, "expected.json"))
		if err != nil {
			t.Fatal(err)
		}
		var all []want
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			if w.API == "embeddings" || w.API == "models" || w.API == "count_tokens" || len(w.Want.Choices) > 0 {
				continue // an answer has one choice
			}
			raw, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(w.File, "anthropic/")))
			if err != nil {
				t.Fatal(err)
			}
			t.Run(w.File, func(t *testing.T) {
				var each [][]byte
				for i := range raw {
					each = append(each, raw[i:i+1])
				}
				for _, pieces := range [][][]byte{{raw}, each} {
					w.check(t, through(t, responses.Face{Adapter: ad}, ask(w.Stream), pieces...))
				}
			})
		}
	}
}

func (w *want) check(t *testing.T, got run) {
	t.Helper()
	var final gjson.Result
	if w.Stream && got.out != nil {
		names, events := read(t, got.out)
		if last := names[len(names)-1]; (last == "response.failed") != (w.Want.Error != nil) {
			t.Fatalf("ends in %s", last)
		}
		if w.Want.Error != nil {
			said := ""
			for _, e := range events {
				if gjson.Get(e, "type").Str == "response.output_text.delta" {
					said += gjson.Get(e, "delta").Str
				}
			}
			if said != w.Want.Partial {
				t.Errorf("%q was said before the failure, want %q", said, w.Want.Partial)
			}
			return
		}
		final = follow(t, events)
	}
	if w.Want.Error != nil {
		if got.failure == nil || got.out != nil {
			t.Fatalf("%+v %s", got.failure, got.out)
		}
		return
	}
	if got.failure != nil {
		t.Fatalf("failure %+v", got.failure)
	}
	if !w.Stream {
		final = gjson.ParseBytes(got.out)
	}
	w.compare(t, final, got.usage)
}

func (w *want) compare(t *testing.T, final gjson.Result, used exchange.Usage) {
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
	if w.Want.Content != nil && content.String() != *w.Want.Content || refusal.String() != w.Want.Refusal ||
		w.Want.Reasoning != "" && reasoning.String() != w.Want.Reasoning {
		t.Errorf("content %q, refusal %q, reasoning %q: want %+v", &content, &refusal, &reasoning, w.Want)
	}
	if len(calls) != len(w.Want.Calls) {
		t.Fatalf("calls %v, want %+v", calls, w.Want.Calls)
	}
	for i, c := range w.Want.Calls {
		arguments := calls[i].Get("arguments").Str
		if c.ID != "" && calls[i].Get("call_id").Str != c.ID && !strings.Contains(c.ID, "*") || calls[i].Get("name").Str != c.Name ||
			arguments != c.Arguments && (c.Arguments != "" || arguments != "{}") {
			t.Errorf("call %s, want %+v", calls[i].Raw, c)
		}
	}
	status, reason := "completed", ""
	switch w.Want.Finish {
	case "length":
		status, reason = "incomplete", "max_output_tokens"
	case "content_filter":
		status, reason = "incomplete", "content_filter"
	}
	if final.Get("status").Str != status || final.Get("incomplete_details.reason").Str != reason || final.Get("model").Str != alias ||
		final.Get("x_gateway.cost").Int() != 1 {
		t.Errorf("final %s", final.Raw)
	}
	told := final.Get("usage")
	if told.Get("input_tokens").Int() != used.Prompt() || told.Get("output_tokens").Int() != used.Completion() {
		t.Errorf("told %s, settled %+v", told.Raw, used)
	}
	if u := w.Want.Usage; u != nil && (u.Prompt != used.Prompt() || u.Completion != used.Completion()) {
		t.Errorf("usage %+v, want %+v", used, *u)
	}
}
