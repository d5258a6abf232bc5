package bedrock

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/eventstream"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// FuzzRequest: whatever the caller's JSON holds, what goes out is JSON, and what is refused is refused for a reason.
func FuzzRequest(f *testing.F) {
	for _, members := range []string{
		hi + `,"temperature":0.5,"stop":["a"],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto"`,
		`"messages":[{"role":"assistant","content":"a","reasoning_details":[{"type":"reasoning.text","text":"t","signature":"s"}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r","prompt_cache_breakpoint":{}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a","file_data":"data:text/csv;base64,QQ=="}},{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}]}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},"reasoning_effort":"low","service_tier":"flex"`,
	} {
		f.Add([]byte(`{`+members+`}`), nova)
	}
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		if !json.Valid(body) || len(bytes.TrimSpace(body)) == 0 || bytes.TrimSpace(body)[0] != '{' {
			t.Skip()
		}
		r := chat(false)
		r.Body = slices.Clone(body)
		call, fault := New().Request(r, &exchange.Deployment{Model: model}, nil)
		if !bytes.Equal(body, r.Body) {
			t.Fatal("the caller's body was changed")
		}
		switch {
		case fault != nil:
			if fault.Kind != exchange.FailRequest && fault.Kind != exchange.FailUnsupported || fault.Message == "" {
				t.Fatalf("%+v", fault)
			}
		case !json.Valid(call.Body):
			t.Fatalf("not JSON: %s", call.Body)
		case strings.ContainsAny(call.Path, "?# \r\n"):
			t.Fatalf("path %q", call.Path)
		}
	})
}

// FuzzStream: whatever events come, the caller gets whole events of JSON; what is counted as delivered was; and a stream
// that broke has no end.
func FuzzStream(f *testing.F) {
	for _, x := range adaptertest.Load(f, "testdata") {
		if !x.Stream {
			continue
		}
		body := adaptertest.Body(f, x.Answer(f))
		var script []byte // name, tab, data, newline
		var rd eventstream.Reader
		rd.Feed(body)
		for {
			ev, ok, err := rd.Next()
			if !ok || err != nil {
				break
			}
			script = append(append(append(append(script, ev.Name...), '\t'), ev.Data...), '\n')
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		st := New().Stream(chat(true), note)
		var out []byte
		broken := false
		for line := range bytes.Lines(script) {
			name, data, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"))
			var p adapter.Progress
			out, p = adaptertest.Step(t, st, out, adaptertest.Event{Name: string(name), Data: string(data)})
			if p.Failure != nil {
				broken, out = true, st.Abort(out, p.Failure)
				break
			}
			if p.Done {
				break
			}
		}
		if !broken {
			end, fault := st.End(out)
			if fault != nil && len(end) != len(out) {
				t.Fatal("an end that failed appended something")
			}
			if out = end; fault == nil && !bytes.HasSuffix(out, []byte(sse.Done)) {
				t.Fatalf("no [DONE] in %s", out)
			}
		}
		if u := st.Usage(); u.Prompt() < 0 || u.Output < 0 || u.CacheWrite5m < 0 {
			t.Fatalf("usage %+v", u)
		}
		adaptertest.Events(t, out)
	})
}

// FuzzResponse: an answer becomes JSON or a failure.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"output":{"message":{"content":[{"text":"a"},{"toolUse":{"toolUseId":"c","name":"f","input":{"a":[1]}}},{"reasoningContent":{"reasoningText":{"text":"t","signature":"s"}}}]}},"stopReason":"tool_use","usage":{"inputTokens":1,"outputTokens":2,"cacheDetails":[{"inputTokens":1,"ttl":"1h"}]}}`))
	f.Add([]byte(`{"type":"message","content":[{"type":"text","text":"a"}],"usage":{"output_tokens":1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		out, u, fault := New().Response(chat(false), body, note)
		if fault == nil && !json.Valid(out) {
			t.Fatalf("not JSON: %s", out)
		}
		if u.Prompt() < 0 || u.Output < 0 || u.CacheWrite5m < 0 {
			t.Fatalf("usage %+v", u)
		}
		if f := New().Failure(400, func(string) string { return string(body) }, body); f.Message == "" || f.Kind == exchange.FailNone {
			t.Fatalf("%+v", f)
		}
	})
}
