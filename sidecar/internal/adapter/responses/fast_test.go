package responses

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// FuzzFast: a chunk is told in the same bytes, and leaves the same state, whether its form is known or not.
func FuzzFast(f *testing.F) {
	const head = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","choices":[{"index":0,"delta":`
	text := head + `{"content":"~"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"~x"}`
	for _, delta := range []string{
		`{"reasoning_content":"~","content":null},"finish_reason":null}]}`, `{"reasoning_content":"~","reasoning_details":[{"type":"reasoning.text","index":#,"text":"~"}]}}]}`,
		`{"role":"assistant","content":"~","refusal":""}}],"service_tier":"flex"}`, `{"content":"~","refusal":"~"}}]}`, `{"refusal":"~"}}]}`,
		`{"content":"~"},"logprobs":{"content":[{"token":"~"}]}}]}`, `{"content":"~"},"finish_reason":"length"}]}`, `{"content":"~"},"logprobs":{"content":[{"token":"a"}]}}]}`,
		`{"tool_calls":[{"index":#,"id":"i","function":{"name":"f","arguments":"~"}}]}}]}`, `{"content":"~","annotations":[{"type":"url_citation","url_citation":{"url":"~"}}]}}]}`,
		`{"content":"~","content":"b"}},{"delta":{"content":"~"}}],"x_gateway":{"a":#}}`, `{"images":[{"image_url":{"url":"data:image/png;base64,~"}}]}}]}`,
	} {
		f.Add(text, head+delta, adaptertest.Pieces, uint16(0x0ff0))
		f.Add(head+delta, text, adaptertest.Pieces, uint16(0x3333))
		f.Add(head+delta, text, `"},{"`, uint16(0x0ff0))
	}
	f.Fuzz(func(t *testing.T, first, second, text string, order uint16) {
		start := func() *stream {
			r := &exchange.Request{Model: "alias", ID: "r1", Native: []byte(`{"include":["message.output_text.logprobs"]}`)}
			return Face{}.Translate(r, &adaptertest.Chunked{Last: `{"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}]}`}).(*stream)
		}
		fast, slow := start(), start()
		forget := func() { slow.Retold = adapter.Retold{Stream: slow.Retold.Stream} }
		adaptertest.Alike(t, fast, slow, forget, "", adaptertest.Likes(first, second, text, order)...)
	})
}
