package bedrock

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
)

// FuzzFast: a delta gives the same bytes, counts and state whether its form is known or not.
func FuzzFast(f *testing.F) {
	text := `{"contentBlockIndex":0,"delta":{"text":"~"},"p":"~"}`
	for _, other := range []string{
		`{"contentBlockIndex":1,"delta":{"reasoningContent":{"text":"~"}},"p":"~abc"}`, `{"contentBlockIndex":#,"delta":{"reasoningContent":{"text":"~"}}}`,
		`{"contentBlockIndex":1,"delta":{"reasoningContent":{"signature":"~"}}}`, `{"contentBlockIndex":1,"delta":{"reasoningContent":{"redactedContent":"~"},"text":"~"}}`,
		`{"delta":{"toolUse":{"input":"~"}}}`, `{"p":"~","delta":{"text":"~","text":"b"}}`, `{"delta":{"x":1},"delta":{"text":"~"}}`, `{"delta":`, text,
	} {
		f.Add(text, other, adaptertest.Pieces, uint16(0x0ff0))
		f.Add(other, text, adaptertest.Pieces, uint16(0x3333))
		f.Add(other, text, `"},{"`, uint16(0x0ff0))
	}
	f.Fuzz(func(t *testing.T, first, second, text string, order uint16) {
		fast, slow := newConversation(chat(true), hiddenFormat, note), newConversation(chat(true), hiddenFormat, note)
		for _, s := range []*conversation{fast, slow} { // a call is open, and the end will be good
			s.Event(nil, []byte("contentBlockStart"), []byte(`{"start":{"toolUse":{"toolUseId":"i","name":"f"}},"contentBlockIndex":0}`))
			s.stop = "end_turn"
		}
		adaptertest.Alike(t, fast, slow, func() { slow.form.Forget() }, deltaEvent, adaptertest.Likes(first, second, text, order)...)
	})
}
