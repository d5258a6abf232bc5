package responses

import "strings"

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
