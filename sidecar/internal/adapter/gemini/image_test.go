package gemini_test

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestImages: what the model draws reaches the caller as OpenRouter's callers know it, whole and streamed, and is counted
// apart. What it draws while it thinks is no answer.
func TestImages(t *testing.T) {
	const body = `{"candidates":[{"content":{"parts":[{"text":"Look: "},{"inlineData":{"mimeType":"image/png","data":"QUJD"},"thoughtSignature":"c2ln"},` +
		`{"thought":true,"inlineData":{"mimeType":"image/png","data":"Tk8="}},{"inlineData":{"mimeType":"image/jpeg","data":"REVG"}},{"text":"two."}]},` +
		`"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":2600,"totalTokenCount":2620,` +
		`"promptTokensDetails":[{"modality":"TEXT","tokenCount":12},{"modality":"IMAGE","tokenCount":8}],` +
		`"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":2580},{"modality":"TEXT","tokenCount":20}]}}`
	for form, s := range map[string]seen{"whole": whole(t, body), "streamed": streamed(t, body)} {
		if s.failure != nil {
			t.Fatalf("%s: %+v", form, s.failure)
		}
		var images []string
		for line := range strings.Lines(s.body) {
			choice := gjson.Get(strings.TrimPrefix(line, "data: "), "choices.0")
			for _, at := range []string{"message", "delta"} {
				for _, image := range choice.Get(at + ".images").Array() {
					images = append(images, image.Get("type").Str+" "+image.Get("image_url.url").Str)
				}
			}
		}
		got := strings.Join(images, ", ")
		if want := "image_url data:image/png;base64,QUJD, image_url data:image/jpeg;base64,REVG"; got != want {
			t.Errorf("%s: got %q, want %q", form, got, want)
		}
		if a, _ := s.read(t); a.Content != "Look: two." || a.Finish != "stop" || !strings.Contains(s.body, `"data":"c2ln"`) {
			t.Errorf("%s: %+v", form, a)
		}
		want := exchange.Tokens{Input: 12, InputImage: 8, Output: 20, OutputImage: 2580}
		if s.usage.Tokens != want {
			t.Errorf("%s: %+v, want %+v", form, s.usage.Tokens, want)
		}
	}
	// An image counts as its tokens' worth of text, however large it is.
	large := strings.Replace(body, "REVG", strings.Repeat("REVG", 100_000), 1)
	st := gemini.New().Stream(chat("{}", true), note)
	if _, p := st.Event(nil, nil, []byte(large)); p.Failure != nil || st.Delivered().Bytes != int64(2*adapter.DrawnBytes+len("Look: two.")) {
		t.Errorf("%+v is delivered, %+v", st.Delivered(), p)
	}
}
