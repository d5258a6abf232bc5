package bedrock

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

// event is one event of a stream: name and payload.
type event struct{ name, data string }

// frames is an answer with a stream of events, encoded by AWS's own library.
func frames(t testing.TB, events ...event) []byte {
	t.Helper()
	b := bytes.NewBufferString("HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\nConnection: close\r\n\r\n")
	for _, e := range events {
		m := aws.Message{Payload: []byte(e.data)}
		kind, name := "event", e.name
		if rest, ok := strings.CutPrefix(name, "exception:"); ok {
			kind, name = "exception", rest
		}
		m.Headers.Set(":message-type", aws.StringValue(kind))
		m.Headers.Set(":"+kind+"-type", aws.StringValue(name))
		if err := aws.NewEncoder().Encode(b, m); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func delta(index int, d string) event {
	return event{"contentBlockDelta", fmt.Sprintf(`{"contentBlockIndex":%d,"delta":%s}`, index, d)}
}

func stopped(reason string) event { return event{"messageStop", `{"stopReason":"` + reason + `"}`} }

var (
	start    = event{"messageStart", `{"role":"assistant"}`}
	metadata = event{"metadata", `{"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3},"serviceTier":{"type":"flex"}}`}
)

// TestStream: what the fixtures leave out.
func TestStream(t *testing.T) {
	call := event{"contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"c1","name":"f"}}}`}
	other := event{"contentBlockStart", `{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"c2","name":"g"}}}`}
	for name, c := range map[string]struct {
		events  []event
		content string
		finish  string
		calls   []adaptertest.Call
		native  string
	}{
		"no arguments": {
			[]event{start, call, {"contentBlockStop", `{"contentBlockIndex":1}`}, stopped("tool_use"), metadata},
			"", "tool_calls", []adaptertest.Call{{"c1", "f", "{}"}}, "",
		},
		"no block stop": {
			[]event{start, call, other, delta(2, `{"toolUse":{"input":"{\"\u00e9\":1}"}}`), delta(3, `{"text":"x"}`), stopped("tool_use"), metadata},
			"x", "tool_calls", []adaptertest.Call{{"c1", "f", "{}"}, {"c2", "g", `{"é":1}`}}, "",
		},
		"too long":      {[]event{start, delta(0, `{"text":"x"}`), stopped("max_tokens"), metadata}, "x", "length", nil, ""},
		"window":        {[]event{start, delta(0, `{"text":"x"}`), stopped("model_context_window_exceeded"), metadata}, "x", "length", nil, "model_context_window_exceeded"},
		"guardrail":     {[]event{start, delta(0, `{"text":"x"}`), stopped("guardrail_intervened"), metadata}, "x", "content_filter", nil, "guardrail_intervened"},
		"filter":        {[]event{start, stopped("content_filtered"), metadata}, "", "content_filter", nil, "content_filtered"},
		"stop sequence": {[]event{start, delta(0, `{"text":"x"}`), stopped("stop_sequence"), metadata}, "x", "stop", nil, "stop_sequence"},
		"a new reason":  {[]event{start, delta(0, `{"text":"x"}`), stopped("whatever"), metadata}, "x", "stop", nil, "whatever"},
		"new events":    {[]event{start, {"weather", `{}`}, delta(0, `{"citation":{}}`), delta(0, `{"text":"x"}`), {"contentBlockStart", `{"start":{"image":{}}}`}, stopped("end_turn"), metadata}, "x", "stop", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, frames(t, c.events...))
			if p.Failure != nil {
				t.Fatal(p.Failure)
			}
			s := adaptertest.ReadStream(t, p.Body, true)
			if got := s.First(); got.Content != c.content || got.Finish != c.finish || !slices.Equal(got.Calls, c.calls) || s.Tier != "flex" {
				t.Errorf("got %+v, tier %s", got, s.Tier)
			}
			own := c.native
			if n := strings.Count(string(p.Body), `"native_finish_reason":"`+own+`"`); own != "" && n != 1 || own == "" && strings.Contains(string(p.Body), "native") {
				t.Errorf("want the provider's own word %q in %s", own, p.Body)
			}
			if p.Usage.ServiceTier != "flex" || p.Usage.Raw != `{"inputTokens":1,"outputTokens":2,"totalTokens":3}` {
				t.Errorf("usage %+v", p.Usage)
			}
		})
	}
}

// TestBrokenStreams: before the first token the attempt fails; after it the caller is told. Usage that was stated counts.
func TestBrokenStreams(t *testing.T) {
	text := delta(0, `{"text":"x"}`)
	claudes := func(inner string) event {
		return event{"chunk", `{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(inner)) + `"}`}
	}
	for name, c := range map[string]struct {
		events []event
		kind   exchange.FailureKind
		code   string
		told   bool
	}{
		"validation":         {[]event{start, {"exception:validationException", `{"message":"no"}`}}, exchange.FailRequest, "validationException", false},
		"too long":           {[]event{{"exception:validationException", `{"message":"Input is too long for requested model."}`}}, exchange.FailContext, "context_length_exceeded", false},
		"unavailable":        {[]event{{"exception:serviceUnavailableException", `{}`}}, exchange.FailOverloaded, "serviceUnavailableException", false},
		"the model broke":    {[]event{start, text, {"exception:modelStreamErrorException", `{"message":"m","originalStatusCode":500}`}}, exchange.FailCut, "modelStreamErrorException", true},
		"an unknown one":     {[]event{start, text, {"exception:novelException", `not JSON`}}, exchange.FailOverloaded, "novelException", true},
		"malformed":          {[]event{start, text, stopped("malformed_model_output"), metadata}, exchange.FailCut, "malformed_model_output", true},
		"malformed, no end":  {[]event{start, stopped("malformed_tool_use")}, exchange.FailInvalid, "malformed_tool_use", false},
		"no stop":            {[]event{start, text, metadata}, exchange.FailCut, "stream_truncated", true},
		"no JSON":            {[]event{start, text, {"contentBlockDelta", `{"delta":`}}, exchange.FailCut, "stream_truncated", true},
		"arguments of none":  {[]event{start, text, delta(1, `{"toolUse":{"input":"{"}}`)}, exchange.FailCut, "stream_truncated", true},
		"Claude throttled":   {[]event{claudes(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`), {"exception:throttlingException", `{"message":"slow"}`}}, exchange.FailRateLimited, "throttlingException", true},
		"Claude, no base64":  {[]event{{"chunk", `{"bytes":"*"}`}}, exchange.FailInvalid, "", false},
		"Claude, no JSON":    {[]event{{"chunk", `{`}}, exchange.FailInvalid, "", false},
		"Claude, no finish":  {[]event{claudes(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`)}, exchange.FailCut, "stream_truncated", true},
		"nothing whatsoever": {nil, exchange.FailInvalid, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, frames(t, c.events...))
			f := p.Failure
			if (p.Outcome != nil) != c.told {
				t.Fatalf("told %v: %+v", !c.told, f)
			}
			if c.told {
				s := adaptertest.ReadBroken(t, p.Body, true)
				if got := s.First(); got.Content != "x" || got.Finish != "" || s.Fault == nil || s.Fault.Code != c.code {
					t.Errorf("got %+v, %+v", got, s.Fault)
				}
			} else if f == nil || f.Code != c.code {
				t.Fatalf("got %+v", f)
			}
			if f == nil || f.Kind != c.kind {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestThinkingComesBack: what the caller gets of a model's thinking, streamed or not, becomes the same blocks again.
func TestThinkingComesBack(t *testing.T) {
	p := play(t, frames(t, start,
		delta(0, `{"reasoningContent":{"text":"one "}}`), delta(0, `{"reasoningContent":{"text":"\"two\""}}`),
		delta(0, `{"reasoningContent":{"signature":"s=="}}`), event{"contentBlockStop", `{"contentBlockIndex":0}`},
		delta(1, `{"reasoningContent":{"redactedContent":"ZA=="}}`),
		delta(2, `{"text":"x"}`), stopped("end_turn"), metadata))
	streamed := adaptertest.ReadStream(t, p.Body, true)
	body, _, f := New().Response(chat(false), []byte(`{"output":{"message":{"content":[
		{"reasoningContent":{"reasoningText":{"text":"one \"two\"","signature":"s=="}}},{"reasoningContent":{"redactedContent":"ZA=="}},
		{"text":"x"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}`), note)
	if f != nil {
		t.Fatal(f)
	}
	for name, s := range map[string]*adaptertest.Seen{"streamed": streamed, "whole": adaptertest.ReadAnswer(t, body)} {
		c := s.First()
		if c.Reasoning != `one "two"` || c.Content != "x" {
			t.Errorf("%s: %+v", name, c)
		}
		got := built(t, profile, ask(`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x","reasoning_details":[`+strings.Join(c.Details, ",")+`]}]`))
		const want = `[{"reasoningContent":{"reasoningText":{"text":"one \"two\"","signature":"s=="}}},{"reasoningContent":{"redactedContent":"ZA=="}},{"text":"x"}]`
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestResponse(t *testing.T) {
	const usage = `"usage":{"inputTokens":5,"outputTokens":2,"cacheWriteInputTokens":7,"cacheReadInputTokens":1}`
	body, u, f := New().Response(chat(false), []byte(` {"output":{"message":{"content":[{"citationsContent":{"content":[{"text":"a"},{"text":"b"}]}},{"text":"c"},{"video":{}}]}},
		"stopReason":"end_turn","serviceTier":{"type":"priority"},`+usage+`}`), note)
	if f != nil {
		t.Fatal(f)
	}
	if got := adaptertest.ReadAnswer(t, body); got.First().Content != "abc" || got.Tier != "priority" {
		t.Errorf("got %s", body)
	}
	if u.CacheWrite5m != 7 || u.CacheRead != 1 || u.Input != 5 || u.ServiceTier != "priority" || u.Source != exchange.FromProvider {
		t.Errorf("usage %+v", u)
	}
	for name, c := range map[string]struct {
		body string
		code string
		used exchange.UsageSource
	}{
		"malformed":  {`{"output":{"message":{"content":[]}},"stopReason":"malformed_tool_use",` + usage + `}`, "malformed_tool_use", exchange.FromProvider},
		"no content": {`{"output":{},` + usage + `}`, "", exchange.FromProvider},
		"no object":  {`[]`, "", exchange.FromEstimate},
		"no JSON":    {`{"output":`, "", exchange.FromEstimate},
	} {
		_, u, f := New().Response(chat(false), []byte(c.body), note)
		if f == nil || f.Kind != exchange.FailInvalid || f.Code != c.code || u.Source != c.used {
			t.Errorf("%s: %+v, %+v", name, f, u)
		}
	}
	body, u, f = New().Response(chat(false), []byte(`{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}`), note)
	if f != nil || u.Input != 3 || gjson.GetBytes(body, "choices.0.message.content").Str != "hi" {
		t.Errorf("Claude: %s, %+v, %+v", body, u, f)
	}
	_, u, f = New().Response(chat(false), []byte(`{"output":{"message":{"content":[{"text":"x"}]}},"stopReason":"end_turn"}`), note)
	if f != nil || u.Source != exchange.FromEstimate || u.Tokens != (exchange.Tokens{Input: 40, Output: int64(len(`[{"text":"x"}]`))}) {
		t.Errorf("without usage: %+v, %+v", u, f)
	}
}

// TestFailures: AWS's errors by name, status and text.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		header, body string
		kind         exchange.FailureKind
		code, param  string
	}{
		"throttling":      {429, "ThrottlingException", `{"message":"Too many tokens, please wait before trying again."}`, exchange.FailRateLimited, "ThrottlingException", ""},
		"not ready":       {429, "ModelNotReadyException:http://x/", `{}`, exchange.FailOverloaded, "ModelNotReadyException", ""},
		"quota":           {400, "ServiceQuotaExceededException", `{}`, exchange.FailRateLimited, "ServiceQuotaExceededException", ""},
		"denied":          {403, "AccessDeniedException", `{}`, exchange.FailCredential, "AccessDeniedException", ""},
		"wrong key":       {403, "", `{"__type":"com.amazon#UnrecognizedClientException","Message":"m"}`, exchange.FailCredential, "UnrecognizedClientException", ""},
		"no model":        {404, "ResourceNotFoundException", `{}`, exchange.FailNotFound, "ResourceNotFoundException", ""},
		"no such id":      {400, "ValidationException", `{"message":"The provided model identifier is invalid."}`, exchange.FailNotFound, "ValidationException", ""},
		"no throughput":   {400, "ValidationException", `{"message":"Invocation of model ID m with on-demand throughput isn’t supported."}`, exchange.FailNotFound, "ValidationException", ""},
		"too long":        {400, "ValidationException", `{"message":"Input is too long for requested model."}`, exchange.FailContext, "context_length_exceeded", "messages"},
		"Claude's":        {400, "ValidationException", `{"message":"prompt is too long: 250000 tokens > 200000 maximum"}`, exchange.FailContext, "context_length_exceeded", "messages"},
		"no tools":        {400, "ValidationException", `{"message":"This model doesn't support tool use in streaming mode."}`, exchange.FailUnsupported, "ValidationException", "tools"},
		"no images":       {400, "ValidationException", `{"message":"This model doesn't support the image content block that you provided."}`, exchange.FailUnsupported, "ValidationException", "messages"},
		"no effort":       {400, "ValidationException", `{"message":"outputConfig.effort is not supported by this model"}`, exchange.FailUnsupported, "ValidationException", "reasoning_effort"},
		"a constraint":    {400, "ValidationException", `{"message":"1 validation error detected: Value '5.0' at 'inferenceConfig.topP' failed to satisfy constraint"}`, exchange.FailRequest, "ValidationException", "top_p"},
		"who begins":      {400, "ValidationException", `{"message":"A conversation must start with a user message. Try again with a conversation that starts with a user message."}`, exchange.FailUnsupported, "ValidationException", "messages"},
		"no such field":   {400, "ValidationException", `{"message":"Malformed input request: #: extraneous key [reasoningConfig] is not permitted, please reformat your input and try again."}`, exchange.FailUnsupported, "ValidationException", "reasoning_effort"},
		"just invalid":    {400, "ValidationException", `{"message":"messages must alternate"}`, exchange.FailRequest, "ValidationException", ""},
		"model timeout":   {408, "ModelTimeoutException", `{}`, exchange.FailTimeout, "ModelTimeoutException", ""},
		"internal":        {500, "InternalServerException", `{}`, exchange.FailOverloaded, "InternalServerException", ""},
		"a page":          {503, "", `<html>`, exchange.FailOverloaded, "", ""},
		"a redirect":      {301, "", ``, exchange.FailInvalid, "", ""},
		"a foreign shape": {400, "", `["x"]`, exchange.FailRequest, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			head := map[string]string{"x-amzn-errortype": c.header, "retry-after": "3"}
			f := New().Failure(c.status, func(name string) string { return head[name] }, []byte(c.body))
			if f.Kind != c.kind || f.Code != c.code || f.Param != c.param || f.Status != c.status || f.Message == "" || f.RetryAfter.Seconds() != 3 {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestNative: callers of the Messages API reach Claude in their own dialect: their body goes out as it is, the version and
// the betas that Bedrock knows in it; Anthropic's events come back as they were before Bedrock wrapped them.
func TestNative(t *testing.T) {
	d := &exchange.Deployment{Model: "anthropic.claude-opus-4-6-v1"}
	ad := New().Speak(exchange.MessagesDialect, d)
	r := chat(true)
	r.Dialect = exchange.MessagesDialect
	r.Query = "beta=true"
	r.Betas = "claude-code-20250219,interleaved-thinking-2025-05-14"
	r.Native = []byte(`{"model":"smart","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hi"}],"top_k":3}`)
	call, f := ad.Request(r, d, nil)
	const want = `{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["interleaved-thinking-2025-05-14"],"max_tokens":5,"messages":[{"role":"user","content":"hi"}],"top_k":3}`
	if f != nil || string(call.Body) != want || call.Path != "/model/anthropic.claude-opus-4-6-v1/invoke-with-response-stream" {
		t.Fatalf("got %s, %s, %+v", call.Path, call.Body, f)
	}
	p := adaptertest.Relay(t, ad, d, r, adaptertest.Read(t, "testdata/invoke-anthropic-stream.bin"))
	if p.Failure != nil || p.Outcome.Status != relay.StatusOK || p.Usage.Prompt() != 28 || p.Usage.Output != 6 {
		t.Fatalf("got %+v", p)
	}
	for _, part := range []string{"event: message_start\n", `"text":"Via invoke."`, "event: message_stop\n"} {
		if !strings.Contains(string(p.Body), part) {
			t.Errorf("%s is not in %s", part, p.Body)
		}
	}
	for _, none := range []adapter.Adapter{
		New().Speak(exchange.MessagesDialect, &exchange.Deployment{Model: nova}), New().Speak(exchange.ResponsesDialect, d),
	} {
		if none != nil {
			t.Error("a dialect that is not spoken")
		}
	}
}
