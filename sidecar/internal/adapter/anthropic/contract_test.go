package anthropic_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	annotation = `{"estimated":false}`
	asked      = `{"model":"smart","max_tokens":64,"messages":[{"role":"user","content":"hi"}]}`
)

// TestFixtures plays every fixture to callers of all kinds.
func TestFixtures(t *testing.T) {
	claude := anthropic.New()
	for caller, ad := range map[string]adapter.Adapter{
		"chat": claude, "messages, native": claude.Speak(exchange.MessagesDialect, nil), "messages, by way of chat": messages.Face{Adapter: claude},
	} {
		ask := func(t *testing.T, stream bool, pieces ...[]byte) adaptertest.Relayed {
			t.Helper()
			r := adaptertest.Chat(stream)
			r.Body, r.Native = []byte(asked), []byte(strings.Replace(asked, `"model"`, `"stop_sequences":["###"],"model"`, 1))
			r.InputEstimate = 77
			return adaptertest.Relay(t, ad, &exchange.Deployment{Model: "claude-fx-5"}, r, pieces...)
		}
		for _, f := range adaptertest.Load(t, "testdata") {
			t.Run(caller+"/"+f.File, func(t *testing.T) {
				raw := f.Answer(t)
				adaptertest.CutAnywhere(t, raw, func(t *testing.T, pieces ...[]byte) {
					got := ask(t, f.Stream, pieces...)
					switch {
					case f.Want.Error != nil:
						f.CheckRefusal(t, got)
						return
					case caller == "chat":
						f.CheckChat(t, got, f.Stream)
					default:
						checkMessage(t, f, got)
					}
					if u := got.Usage; !gjson.Get(u.Raw, "output_tokens").Exists() || u.ServiceTier != gjson.Get(u.Raw, "service_tier").Str {
						t.Errorf("usage %+v", u)
					}
					if caller == "messages, native" {
						checkBytes(t, f, raw, got.Body)
					}
				})
				if caller != "chat" && !f.Stream && f.Want.Error == nil { // a server that ignores that a stream was asked for
					streamed := *f
					streamed.Stream = true
					checkMessage(t, &streamed, ask(t, true, raw))
				}
			})
		}
	}
}

// events takes a stream apart. The name of each event must be its type.
func events(t *testing.T, stream []byte) (list []gjson.Result) {
	t.Helper()
	for _, ev := range adaptertest.Events(t, stream) {
		v := gjson.Parse(ev.Data)
		if v.Get("type").Str != ev.Name {
			t.Errorf("event %q is %s", ev.Name, ev.Data)
		}
		list = append(list, v)
	}
	return list
}

// assembled is a message put together as Anthropic's libraries do.
func assembled(t *testing.T, body []byte) string {
	t.Helper()
	type object = map[string]any
	var m object
	var blocks []any
	input, kinds := "", ""
	str := func(v any) string { s, _ := v.(string); return s }
	for _, ev := range events(t, body) {
		kind := ev.Get("type").Str
		kinds += strings.TrimPrefix(kind, "content_block_") + " "
		switch kind {
		case "message_start":
			if ev.Get("message.usage.input_tokens").Int() == 0 {
				t.Errorf("the start states no input: %s", ev.Raw)
			}
			m = ev.Get("message").Value().(object)
		case "content_block_start":
			blocks, input = append(blocks, ev.Get("content_block").Value()), ""
			if int(ev.Get("index").Int()) != len(blocks)-1 {
				t.Errorf("block %s after %d", ev.Raw, len(blocks)-1)
			}
		case "content_block_delta":
			b, d := blocks[len(blocks)-1].(object), ev.Get("delta")
			for name, field := range map[string]string{"text": "text", "thinking": "thinking", "signature": "signature"} {
				if v := d.Get(field); v.Exists() {
					b[name] = str(b[name]) + v.Str
				}
			}
			input += d.Get("partial_json").Str
		case "content_block_stop":
			if b := blocks[len(blocks)-1].(object); b["type"] == "tool_use" && input != "" {
				b["input"] = json.RawMessage(input)
			}
		case "message_delta":
			for k, v := range ev.Get("delta").Value().(object) {
				m[k] = v
			}
			for k, v := range ev.Get("usage").Value().(object) {
				if v != nil {
					m["usage"].(object)[k] = v
				}
			}
			if ev.Get("x_gateway").Raw != annotation {
				t.Errorf("no x_gateway: %s", ev.Raw)
			}
		}
	}
	if !strings.HasPrefix(kinds, "message_start ") || !strings.HasSuffix(kinds, "message_delta message_stop ") {
		t.Errorf("events %s", kinds)
	}
	m["content"], m["x_gateway"] = blocks, json.RawMessage(annotation)
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func checkMessage(t *testing.T, f *adaptertest.Fixture, got adaptertest.Relayed) {
	t.Helper()
	if got.Failure != nil {
		t.Fatalf("failure %+v", got.Failure)
	}
	f.CheckUsage(t, got.Usage)
	body := string(got.Body)
	if f.Stream {
		body = assembled(t, got.Body)
	}
	m := gjson.Parse(body)
	var text, thought string
	var calls []adaptertest.Call
	for _, b := range m.Get("content").Array() {
		switch b.Get("type").Str {
		case "text":
			text += b.Get("text").Str
		case "thinking":
			thought += b.Get("thinking").Str
			if b.Get("signature").Str == "" || strings.HasPrefix(b.Get("signature").Str, adapter.ForeignMark) {
				t.Errorf("no signature: %s", b.Raw)
			}
		case "tool_use":
			calls = append(calls, adaptertest.Call{b.Get("id").Str, b.Get("name").Str, gjson.Get(b.Get("input").Raw, "@ugly").Raw})
		}
	}
	stop := map[string]string{"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}[f.Want.Finish]
	if strings.Contains(f.File, "stop-sequence") {
		if stop = "stop_sequence"; m.Get("stop_sequence").Str != "###" {
			t.Errorf("stop_sequence %s", m.Get("stop_sequence").Raw)
		}
	}
	content := ""
	if f.Want.Content != nil {
		content = *f.Want.Content
	}
	if text != content || thought != f.Want.Reasoning || m.Get("stop_reason").Str != stop || m.Get("model").Str != "smart" ||
		m.Get("type").Str != "message" || m.Get("x_gateway").Raw != annotation {
		t.Errorf("%q, %q in %s", text, thought, body)
	}
	tidy := *f // arguments are JSON here, and no text
	tidy.Want.Calls = slices.Clone(f.Want.Calls)
	for i, c := range tidy.Want.Calls {
		tidy.Want.Calls[i].Arguments = gjson.Get(c.Arguments, "@ugly").Raw
	}
	tidy.CheckCalls(t, calls)
	x, u := f.Want.Usage, m.Get("usage")
	input := x.Prompt - x.Cached - x.Write
	if strings.Contains(f.File, "iterations") {
		return // the passes are told apart natively
	}
	if u.Get("input_tokens").Int() != input || u.Get("output_tokens").Int() != x.Completion ||
		u.Get("cache_read_input_tokens").Int() != x.Cached || u.Get("cache_creation_input_tokens").Int() != x.Write {
		t.Errorf("usage %s, want %+v", u.Raw, x)
	}
}

// checkBytes: natively all is the provider's, byte for byte, but for the model's name and x_gateway.
func checkBytes(t *testing.T, f *adaptertest.Fixture, raw, body []byte) {
	t.Helper()
	_, sent, _ := strings.Cut(string(raw), "\r\n\r\n")
	got := strings.Replace(string(body), `,"x_gateway":`+annotation, "", 1)
	sent = strings.Replace(sent, `"model":"claude-fx-5"`, `"model":"smart"`, 1)
	switch {
	case f.Stream && !strings.Contains(sent, "event: message_stop"):
		sent += "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	case !f.Stream:
		sent = strings.TrimSpace(sent)
	}
	if got != sent {
		t.Errorf("got  %q\nwant %q", got, sent)
	}
}
