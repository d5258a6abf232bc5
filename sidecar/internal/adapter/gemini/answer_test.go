package gemini_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestFinish: each of the provider's reasons in the caller's words, in an answer and in a stream. The provider's own
// word stands beside it where it says more.
func TestFinish(t *testing.T) {
	for reason, want := range map[string]string{
		"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length",
		"SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
		"PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "IMAGE_SAFETY": "content_filter",
		"LANGUAGE": "stop", "OTHER": "stop", "A_NEW_ONE": "stop",
	} {
		body := `{"candidates":[{"finishReason":"` + reason + `"}],"usageMetadata":{"promptTokenCount":5,"thoughtsTokenCount":7}}`
		for _, s := range []seen{whole(t, body), streamed(t, body)} {
			if s.failure != nil {
				t.Fatalf("%s: %+v", reason, s.failure)
			}
			if a, _ := s.read(t); a.Finish != want || a.Content != "" || s.usage.Output != 7 {
				t.Errorf("%s: %+v", reason, a)
			}
			plain := reason == "STOP" || reason == "MAX_TOKENS"
			if strings.Contains(s.body, `"native_finish_reason":"`+reason+`"`) == plain {
				t.Errorf("%s: %s", reason, s.body)
			}
		}
	}
}

// TestPromptBlocked: a prompt that was refused is an answer without content.
func TestPromptBlocked(t *testing.T) {
	const body = `{"promptFeedback":{"blockReason":"JAILBREAK"},"usageMetadata":{"promptTokenCount":5,"totalTokenCount":5}}`
	for _, s := range []seen{whole(t, body), streamed(t, body)} {
		if s.failure != nil {
			t.Fatal(s.failure)
		}
		if c, a := s.read(t); c.Finish != "content_filter" || a.Usage.Total != 5 {
			t.Errorf("%+v", c)
		}
	}
}

// TestUnusableAnswers: what the model made nothing of is a failure, worth asking again, with what it cost.
func TestUnusableAnswers(t *testing.T) {
	for _, reason := range []string{"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"} {
		body := `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"` + reason + `"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":1}}`
		for _, s := range []seen{whole(t, body), streamed(t, body)} {
			f := s.failure
			if f == nil || f.Kind != exchange.FailOverloaded || f.Status != 502 || f.Type != "upstream_error" || f.Code != reason ||
				s.body != "" || s.usage.Prompt() != 5 {
				t.Errorf("%s: %+v, %+v", reason, f, s)
			}
		}
	}
}

func TestNoAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind exchange.FailureKind
	}{
		"empty":         {"", exchange.FailInvalid},
		"HTML":          {"<html>", exchange.FailInvalid},
		"cut":           {`{"candidates":[`, exchange.FailInvalid},
		"nothing":       {`{}`, exchange.FailInvalid},
		"list":          {`[]`, exchange.FailInvalid},
		"too deep":      {`{"candidates":` + strings.Repeat("[", 32<<20), exchange.FailInvalid},
		"many":          {`{"candidates":[` + strings.Repeat("{},", 200) + `{}]}`, exchange.FailInvalid},
		"error":         {`{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}`, exchange.FailOverloaded},
		"wrapped error": {`[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]`, exchange.FailRateLimited},
		"error of text": {`{"error":"m"}`, exchange.FailOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			if s := whole(t, c.body); s.failure == nil || s.failure.Kind != c.kind || s.body != "" || s.usage.Source != exchange.FromEstimate {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestCutStreams: a stream is complete when each of its choices has a finish reason, and not before.
func TestCutStreams(t *testing.T) {
	const one = `{"candidates":[{"index":1,"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`
	for name, events := range map[string][]string{
		"nothing":        {},
		"no candidate":   {`{"usageMetadata":{"promptTokenCount":1}}`},
		"no finish":      {`{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`},
		"one of two":     {one, `{"candidates":[{"index":0,"content":{"parts":[{"text":"b"}]}}]}`},
		"not JSON":       {one, `{`},
		"no object":      {one, `7`},
		"error wrapped":  {one, `[{"error":{"code":500}}]`},
		"blocked midway": {`{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`, `{"promptFeedback":{"blockReason":"OTHER"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if s := streamed(t, events...); s.failure == nil || strings.Contains(s.body, "[DONE]") {
				t.Errorf("%+v", s)
			}
		})
	}
	if s := streamed(t, one, "[DONE]", " "); s.failure != nil || !strings.HasSuffix(s.body, "data: [DONE]\n\n") {
		t.Errorf("%+v", s)
	}
}

// TestChoices: candidates are choices, each with a role, a text and a finish of its own.
func TestChoices(t *testing.T) {
	s := streamed(t,
		`{"candidates":[{"index":0,"content":{"parts":[{"text":"a"}]}},{"index":1,"content":{"parts":[{"text":"x"}]}}]}`,
		`{"candidates":[{"index":1,"content":{"parts":[{"text":"y"}]},"finishReason":"MAX_TOKENS"}]}`,
		`{"candidates":[{"index":0,"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}]}`)
	if s.failure != nil {
		t.Fatal(s.failure)
	}
	_, a := s.read(t)
	if len(a.Choices) != 2 {
		t.Fatalf("%d choices", len(a.Choices))
	}
	for i, want := range [][2]string{{"ab", "stop"}, {"xy", "length"}} {
		if c := a.Choices[i]; c.Content != want[0] || c.Finish != want[1] {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
}

// TestLogprobs: the tokens with what they are made of.
func TestLogprobs(t *testing.T) {
	const body = `{"candidates":[{"content":{"parts":[{"text":"hé"}]},"finishReason":"STOP","logprobsResult":{` +
		`"topCandidates":[{"candidates":[{"token":"h","logProbability":-0.5},{"token":"H","logProbability":-1.5}]}],` +
		`"chosenCandidates":[{"token":"h","tokenId":1,"logProbability":-0.5},{"token":"é"}]}}]}`
	const want = `{"content":[{"token":"h","logprob":-0.5,"bytes":[104],"top_logprobs":[{"token":"h","logprob":-0.5,"bytes":[104]},` +
		`{"token":"H","logprob":-1.5,"bytes":[72]}]},{"token":"é","logprob":0,"bytes":[195,169],"top_logprobs":[]}],"refusal":null}`
	if s := whole(t, body); gjson.Get(s.body, "choices.0.logprobs").Raw != want {
		t.Errorf("%s", s.body)
	}
	if s := streamed(t, body); !strings.Contains(s.body, `"delta":{},"logprobs":`+want+`,"finish_reason":null}]`) {
		t.Errorf("%s", s.body)
	}
}

// TestThoughts: what was thought comes as reasoning, in pieces of one entry until something else comes.
func TestThoughts(t *testing.T) {
	part := func(p string) string { return `{"candidates":[{"content":{"parts":[` + p + `]}}]}` }
	a, _ := streamed(t,
		part(`{"text":"Plan ","thought":true}`), part(`{"text":"it.","thought":true},{"text":"Yes"}`),
		part(`{"text":"","thoughtSignature":"s"},{"text":"More.","thought":true}`), `{"candidates":[{"finishReason":"STOP"}]}`).read(t)
	want := []string{
		`{"type":"reasoning.text","format":"google-gemini-v1","index":0,"text":"Plan "}`,
		`{"type":"reasoning.text","format":"google-gemini-v1","index":0,"text":"it."}`,
		`{"type":"reasoning.encrypted","format":"google-gemini-v1","index":1,"data":"s"}`,
		`{"type":"reasoning.text","format":"google-gemini-v1","index":2,"text":"More."}`,
	}
	if a.Reasoning != "Plan it.More." || a.Content != "Yes" || !slices.Equal(a.Details, want) {
		t.Errorf("%+v", a)
	}
}

// TestUsage: kinds of tokens are apart from each other, and totals are those of the wire.
// TestCitations: what an answer cites is told once, with its place in characters, whole and streamed, by either of its names.
func TestCitations(t *testing.T) {
	const text, head = `{"candidates":[{"content":{"parts":[{"text":"%s"}]},"index":0%s}]}`, `,"citationMetadata":`
	const first = `{"endIndex":3,"uri":"https://a.test/\u00e9","license":"mit"}`
	const second = `{"startIndex":3,"endIndex":10,"uri":"https://b.test","title":"B \"b\""}`
	const far, none = `{"startIndex":4,"endIndex":12,"uri":"https://c.test"}`, `{"startIndex":1,"endIndex":2}`
	want := []string{
		`{"type":"url_citation","url_citation":{"url":"https://a.test/é","title":"","start_index":0,"end_index":2}}`,
		`{"type":"url_citation","url_citation":{"url":"https://b.test","title":"B \"b\"","start_index":2,"end_index":4}}`,
		`{"type":"url_citation","url_citation":{"url":"https://c.test","title":""}}`,
	}
	for _, name := range []string{"citationSources", "citations"} {
		list := func(items ...string) string { return head + `{"` + name + `":[` + strings.Join(items, ",") + `]}` }
		w := whole(t, fmt.Sprintf(text, `é\n\u4e16\ud83d\ude00a`, list(first, second, far, none)+`,"finishReason":"STOP"`))
		s := streamed(t, fmt.Sprintf(text, `é`, ""), fmt.Sprintf(text, `\n`, list(first)), fmt.Sprintf(text, `\u4e16\ud83d`, ""), fmt.Sprintf(text, `\ude00a`, list(first, second)),
			fmt.Sprintf(text, ``, list(far, none)+`,"finishReason":"STOP"`))
		for _, got := range []seen{w, s} {
			if got.failure != nil {
				t.Fatal(got.failure)
			}
			var annotations []string
			for _, line := range strings.Split(got.body, "\n") {
				choice := gjson.Parse(strings.TrimPrefix(line, "data: ")).Get("choices.0")
				for _, member := range []string{"message", "delta"} {
					for _, a := range choice.Get(member + ".annotations").Array() {
						annotations = append(annotations, a.Raw)
					}
				}
			}
			if !slices.Equal(annotations, want) {
				t.Errorf("%s: got %s in %s", name, annotations, got.body)
			}
		}
	}
}

// TestCitationsOfALongText: a place in a text that was not kept whole is not told, rather than a wrong one.
func TestCitationsOfALongText(t *testing.T) {
	const event = `{"candidates":[{"content":{"parts":[{"text":"%s"}]},"index":0%s}]}`
	got := streamed(t, fmt.Sprintf(event, strings.Repeat("x", 64<<10+1), ""),
		fmt.Sprintf(event, "abc", `,"citationMetadata":{"citations":[{"endIndex":3,"uri":"https://a.test"}]},"finishReason":"STOP"`))
	if !strings.Contains(got.body, `"url":"https://a.test"`) || strings.Contains(got.body, "end_index") {
		t.Errorf("got ...%s", got.body[max(0, len(got.body)-600):])
	}
}

func TestUsage(t *testing.T) {
	const body = `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"toolUsePromptTokenCount":20,` +
		`"cachedContentTokenCount":40,"candidatesTokenCount":30,"thoughtsTokenCount":5,"totalTokenCount":155,` +
		`"promptTokensDetails":[{"modality":"TEXT","tokenCount":70},{"modality":"AUDIO","tokenCount":30}],` +
		`"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":10}],"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":12}],` +
		`"trafficType":"ON_DEMAND_PRIORITY"}}`
	want := exchange.Tokens{Input: 60, CacheRead: 40, InputAudio: 20, Output: 23, OutputAudio: 12, Reasoning: 5}
	for _, s := range []seen{whole(t, body), streamed(t, body)} {
		if s.usage.Tokens != want || s.usage.Total() != 155 || s.usage.ServiceTier != "priority" || s.usage.Raw != gjson.Get(body, "usageMetadata").Raw {
			t.Errorf("%+v", s.usage)
		}
		if _, a := s.read(t); a.Usage.Prompt != 120 || a.Usage.Completion != 35 || a.Usage.In.Audio != 20 {
			t.Errorf("%+v", a.Usage)
		}
	}
	for _, counts := range []string{``, `,"usageMetadata":null`, `,"usageMetadata":{}`, `,"usageMetadata":{"promptTokenCount":null}`} {
		s := streamed(t, `{"candidates":[{"content":{"parts":[{"text":"abc"}]},"finishReason":"STOP"}]`+counts+`}`)
		if s.usage.Source != exchange.FromEstimate || s.usage.Output != 3 {
			t.Errorf("%s: %+v", counts, s.usage)
		}
	}
	s := whole(t, `{"candidates":[{}],"usageMetadata":{"promptTokenCount":-5,"cachedContentTokenCount":9,"candidatesTokenCount":9e300}}`)
	if s.usage.Source != exchange.FromEstimate {
		t.Errorf("%+v", s.usage)
	}
	s = whole(t, `{"candidates":[{}],"usageMetadata":{"promptTokenCount":5,"x":"`+strings.Repeat("y", 5000)+`"}}`)
	if u := s.usage; u.Prompt() != 5 || u.Output != 0 || u.Raw != "" {
		t.Errorf("%+v", u)
	}
}

func TestEmbeddings(t *testing.T) {
	ask := func(more string) *exchange.Request {
		r := chat(`{"model":"smart","input":["a","b\n"],"dimensions":2`+more+`}`, false)
		r.Operation = exchange.Embeddings
		return r
	}
	for _, c := range []struct {
		ad               *gemini.Adapter
		path, body, answ string
		source           exchange.UsageSource
	}{
		{
			gemini.New(), "/models/emb:batchEmbedContents",
			`{"requests":[{"model":"models/emb","content":{"parts":[{"text":"a"}]},"outputDimensionality":2},{"model":"models/emb","content":{"parts":[{"text":"b\n"}]},"outputDimensionality":2}]}`,
			`{"embeddings":[{"values":[1,-0.5]},{"values":[0.25,2]}]}`, exchange.FromEstimate,
		},
		{
			gemini.NewVertex(), "/projects/p/locations/eu/publishers/google/models/emb:predict",
			`{"instances":[{"content":"a"},{"content":"b\n"}],"parameters":{"autoTruncate":false,"outputDimensionality":2}}`,
			`{"predictions":[{"embeddings":{"values":[1,-0.5],"statistics":{"token_count":3,"truncated":false}}},{"embeddings":{"values":[0.25,2],"statistics":{"token_count":4}}}]}`,
			exchange.FromProvider,
		},
	} {
		call, f := c.ad.Request(ask(""), &exchange.Deployment{Model: "emb", Project: "p", Region: "eu"}, nil)
		if f != nil || call.Path != c.path || string(call.Body) != c.body {
			t.Errorf("%+v %s %s", f, call.Path, call.Body)
		}
		out, u, f := c.ad.Response(ask(""), []byte(c.answ), note)
		if f != nil || u.Source != c.source || gjson.GetBytes(out, "data.#.embedding").Raw != "[[1,-0.5],[0.25,2]]" ||
			c.source == exchange.FromProvider && (u.Input != 7 || gjson.GetBytes(out, "usage.total_tokens").Int() != 7) || !json.Valid(out) {
			t.Errorf("%+v %+v %s", f, u, out)
		}
		out, _, f = c.ad.Response(ask(`,"encoding_format":"base64"`), []byte(c.answ), note)
		if f != nil || gjson.GetBytes(out, "data.1.embedding").Str != "AACAPgAAAEA=" {
			t.Errorf("%+v %s", f, out)
		}
	}
	one := chat(`{"model":"smart","input":["a"],"dimensions":2}`, false)
	one.Operation = exchange.Embeddings
	newer := &exchange.Deployment{Model: "gemini-embedding-2", Project: "p", Region: "eu"}
	call, f := gemini.NewVertex().Request(one, newer, nil)
	if f != nil || call.Path != "/projects/p/locations/eu/publishers/google/models/gemini-embedding-2:embedContent" ||
		string(call.Body) != `{"content":{"parts":[{"text":"a"}]},"autoTruncate":false,"outputDimensionality":2}` {
		t.Errorf("%+v %s %s", f, call.Path, call.Body)
	}
	if _, f := gemini.NewVertex().Request(ask(""), newer, nil); f == nil || f.Kind != exchange.FailUnsupported || f.Param != "input" {
		t.Errorf("two texts: %+v", f)
	}
	out, u, f := gemini.NewVertex().Response(one, []byte(`{"embedding":{"values":[1,-0.5]},"usageMetadata":{"promptTokenCount":3}}`), note)
	if f != nil || u.Input != 3 || gjson.GetBytes(out, "data.#.embedding").Raw != "[[1,-0.5]]" {
		t.Errorf("%+v %+v %s", f, u, out)
	}
	for body, param := range map[string]string{
		`{"input":[[1,2]]}`: "input", `{"input":7}`: "input", `{"input":[]}`: "input", `{"input":"a","wish":1}`: "wish",
		`{"input":"a","encoding_format":"int8"}`: "encoding_format", `{"input":"a","dimensions":0}`: "dimensions",
	} {
		r := chat(body, false)
		r.Operation = exchange.Embeddings
		if _, f := gemini.New().Request(r, &exchange.Deployment{Model: "emb"}, nil); f == nil || f.Param != param {
			t.Errorf("%s: %+v", body, f)
		}
	}
	for _, answ := range []string{"", "{}", `{"embeddings":7}`, `{"embeddings":[{}]}`, `{"predictions":[{"embeddings":{"values":["x"]}}]}`} {
		if _, _, f := gemini.New().Response(ask(""), []byte(answ), note); f == nil || f.Kind != exchange.FailInvalid {
			t.Errorf("%s: %+v", answ, f)
		}
	}
}
