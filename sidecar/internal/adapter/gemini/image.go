package gemini

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// undrawing are the models of the past that draw nothing, but for those whose names say otherwise. They refuse to be asked.
var undrawing = regexp.MustCompile(`gemini-[123]|gemini-pro|gemma|learnlm`)

func draws(model string) bool {
	return strings.Contains(model, "image") || !undrawing.MatchString(model)
}

// modalities asks a model that draws for images, or for text alone. Of others text is all there is.
func (t *translation) modalities(v gjson.Result) *exchange.Failure {
	const name = "modalities"
	if !v.IsArray() || len(v.Array()) == 0 {
		return adapter.Invalid(name, "modalities must be an array of text and image")
	}
	var b []byte
	for i, m := range v.Array() {
		switch {
		case m.Str == "text":
			b = append(adapter.Comma(b, 0), `"TEXT"`...)
		case m.Str == "image" && t.draws:
			b = append(adapter.Comma(b, 0), `"IMAGE"`...)
		case m.Str == "image":
			return t.Cannot(name, "this model draws no images")
		case m.Str == "audio":
			return t.Cannot(name, "Gemini is asked for texts and images alone")
		default:
			return adapter.Invalid(fmt.Sprintf("%s[%d]", name, i), "a modality must be text, image or audio")
		}
	}
	if t.draws {
		t.set("responseModalities", "["+string(b)+"]")
	}
	return nil
}

// isDrawn reports whether a part is an image of the answer. Those that the model draws while it thinks are not.
func isDrawn(part, data gjson.Result) bool {
	return strings.HasPrefix(data.Get("mimeType").Str, "image/") && !part.Get("thought").Bool()
}

// appendImage appends an image that was drawn, in the way that OpenRouter's callers know.
func appendImage(dst []byte, data gjson.Result) []byte {
	dst = append(dst, `{"type":"image_url","image_url":{"url":"data:`...)
	dst = append(append(dst, adapter.Inside(data.Get("mimeType"))...), ";base64,"...)
	return append(append(dst, adapter.Inside(data.Get("data"))...), `"}}`...)
}
