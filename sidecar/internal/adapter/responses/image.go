package responses

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"
)

// kindImage is the item of an image that was drawn: what OpenAI's own tool for that leaves.
const kindImage = "image_generation_call"

// drawn appends an image of the answer, which comes whole.
func (w *writer) drawn(dst []byte, url string) []byte {
	if url == "" {
		return dst
	}
	w.size += len(url)
	dst, it := w.start(w.closeOpen(dst), kindImage, "ig", object{"status": "in_progress", "result": nil})
	dst = w.event(dst, "response."+kindImage+".in_progress", it.at)
	done := object{"status": statusDone, "result": nil}
	if media, data, ok := strings.Cut(strings.TrimPrefix(url, "data:image/"), ";base64,"); ok {
		done["result"], done["output_format"] = data, media
	} else {
		done["image_url"] = url // the item has no member for what is not in it
	}
	return w.finished(w.event(dst, "response."+kindImage+".completed", it.at), it, done)
}

// image takes an image that a model drew earlier.
func (c *conversation) image(v gjson.Result) {
	url := v.Get("image_url").Str
	if data := v.Get("result").Str; data != "" {
		url = "data:image/" + cmp.Or(v.Get("output_format").Str, formatOf(data)) + ";base64," + data
	}
	if url != "" {
		t := c.assistant()
		t.images = append(t.images, object{"type": "image_url", "image_url": object{"url": url}})
	}
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
