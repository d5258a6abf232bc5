package messages_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// TestThereAndBack: what Claude says, put into chat and out of it again, is what Claude said: block by block, with why it
// ended and what it used. A call without arguments has an empty object in chat.
func TestThereAndBack(t *testing.T) {
	for _, name := range []string{
		"stream-text", "stream-tools-two", "stream-tool-no-args", "stream-thinking-redacted", "stream-stop-sequence", "stream-cumulative-input",
		"stream-null-usage-fields", "stream-no-message-stop",
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("../anthropic/testdata", name+".http"))
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
			r := &exchange.Request{
				ID: "req", Operation: exchange.Chat, Dialect: exchange.MessagesDialect, Model: "m", Stream: true, IncludeUsage: true, Choices: 1,
				Native: []byte(`{"stop_sequences":["###"]}`),
			}
			s := messages.Face{Adapter: anthropic.New()}.Stream(r, func(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
				return append(dst, "{}"...), u
			})
			var out []byte
			each(t, body, func(name, data []byte) {
				var p adapter.Progress
				if out, p = s.Event(out, name, data); p.Failure != nil {
					t.Fatal(p.Failure)
				}
			})
			out, f := s.End(out)
			if f != nil {
				t.Fatal(f)
			}
			if got, want := summary(t, out), summary(t, body); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func each(t *testing.T, body []byte, do func(name, data []byte)) {
	t.Helper()
	var rd sse.Reader
	rd.Feed(body)
	for {
		ev, ok, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		do(ev.Name, ev.Data)
	}
}

// summary is a stream's blocks, its end and its usage.
func summary(t *testing.T, body []byte) string {
	t.Helper()
	var all []string
	var end string
	usage := map[string]string{}
	each(t, body, func(_, data []byte) {
		e := gjson.ParseBytes(data)
		switch b := e.Get("content_block"); e.Get("type").Str {
		case "content_block_start":
			all = append(all, strings.Join([]string{b.Get("type").Str, b.Get("id").Str, b.Get("name").Str, b.Get("data").Str, ""}, " "))
		case "content_block_delta":
			d := e.Get("delta")
			all[len(all)-1] += d.Get("text").Str + d.Get("thinking").Str + strings.TrimSuffix(d.Get("partial_json").Str, "{}") + d.Get("signature").Str
		case "message_delta":
			end = e.Get("delta.stop_reason").Raw + " " + e.Get("delta.stop_sequence").Raw + " " + e.Get("delta.stop_details.category").Str
		}
		for _, at := range []string{"message.usage", "usage"} {
			for _, name := range []string{"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"} {
				if v := e.Get(at + "." + name); v.Type == gjson.Number {
					usage[name] = v.Raw
				}
			}
		}
	})
	return strings.Join(all, " | ") + " | " + end + " | " + usage["input_tokens"] + " " + usage["output_tokens"] + " " +
		usage["cache_read_input_tokens"] + " " + usage["cache_creation_input_tokens"]
}
