package gemini

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// FuzzFast: an event gives the same bytes, counts and state whether its form is known or not.
func FuzzFast(f *testing.F) {
	const usage = `"usageMetadata": {"promptTokenCount": 11,"candidatesTokenCount": #,"totalTokenCount": #,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 11}]}`
	text := `{"candidates":[{"content":{"parts":[{"text":"~"}],"role":"model"},"index":0}],` + usage + `,"modelVersion":"m","responseId":"a"}`
	for _, other := range []string{
		`{"candidates":[{"content":{"parts":[{"text":"~","thought":true}]}}],"usageMetadata":{"promptTokenCount":1,"thoughtsTokenCount":#}}`,
		`{"candidates":[{"content":{"parts":[{"text":"~","thoughtSignature":"c2ln"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9}}`,
		`{"candidates":[{"content":{"parts":[{"text":"~"},{"functionCall":{"name":"f","args":{"a":"~"}}}]},"index":1}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"~"}]},"index":#}],"usageMetadata":{"candidatesTokenCount":-#,"totalTokenCount":0#,"x":"#~","trafficType":"ON_DEMAND_#"}}`,
		`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"~"}}]}},{"content":{"parts":[{"text":"~"}]}}]}`,
		`{"usageMetadata":{"candidatesTokenCount":#},"candidates":[{"content":{"parts":{"text":"~"}}}]}`,
		`{"candidates":[{"logprobsResult":{"chosenCandidates":[{"token":"~"}]},"content":{"parts":[{"text":"~"}]}}]}`, `{"error":{"code":#}}`, `[DONE]`, text,
	} {
		f.Add(text, other, adaptertest.Pieces, uint16(0x0ff0))
		f.Add(other, text, adaptertest.Pieces, uint16(0x3333))
		f.Add(other, text, `"},{"`, uint16(0x0ff0))
	}
	const ends = `{"candidates":[{"content":{"parts":[{"text":"~"}]},"finishReason":"`
	f.Add(ends+`STOP"}]}`, ends+`MAX_TOKENS"},{}]}`, adaptertest.Pieces, uint16(0x0ff0))
	f.Fuzz(func(t *testing.T, first, second, text string, order uint16) {
		r := &exchange.Request{Model: "alias", ID: "r1", IncludeUsage: order&1 == 0}
		note := func(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
			return append(dst, "{}"...), u
		}
		fast, slow := newStream(r, note), newStream(r, note)
		adaptertest.Alike(t, fast, slow, func() { slow.form.Forget() }, "", adaptertest.Likes(first, second, text, order)...)
	})
}
