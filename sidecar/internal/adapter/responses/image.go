package responses

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"
)

const kindImage = "image_generation_call"

// draw appends an image that the model drew: an item of its own, which comes whole. Chat has it as a data URL.
func (w *writer) draw(dst []byte, image gjson.Result) []byte {
	kind, data, ok := strings.Cut(image.Get("image_url.url").Str, ";base64,")
	format, isImage := strings.CutPrefix(kind, "data:image/")
	if !ok || !isImage {
		return dst
	}
	w.size += len(data)
	dst, it := w.start(w.closeOpen(dst), kindImage, "ig", object{"status": "in_progress", "result": nil})
	for _, step := range [...]string{"in_progress", "generating", "completed"} {
		dst = w.event(dst, "response."+kindImage+"."+step, it.at)
	}
	return w.finished(dst, it, object{"status": statusDone, "result": data, "output_format": format})
}

// drawn takes an image that the model drew earlier. Chat's assistants say only text, so it is shown to the model.
func (c *conversation) drawn(v gjson.Result) {
	data := v.Get("result").Str
	if data == "" {
		return // it came to nothing
	}
	c.end()
	url := "data:image/" + cmp.Or(v.Get("output_format").Str, formatOf(data)) + ";base64," + data
	c.list = append(c.list, object{"role": "user", "content": []any{
		object{"type": "text", "text": "The image that you drew:"}, object{"type": "image_url", "image_url": object{"url": url}},
	}})
}

// formatOf tells a format by how the base64 of its files begins.
func formatOf(data string) string {
	for begin, format := range map[string]string{"/9j/": "jpeg", "R0lG": "gif", "UklG": "webp"} {
		if strings.HasPrefix(data, begin) {
			return format
		}
	}
	return "png"
}
