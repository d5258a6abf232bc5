package gemini

import (
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
)

// citedMax bounds what is kept of an answer's text to say where it cites, in escaped bytes. What lies behind is cited without
// its place.
const citedMax = 64 << 10

// citations is what an answer cites, as annotations. The provider counts the bytes of the answer's text, callers its
// characters, so the text is kept, escaped as it came.
type citations struct {
	text []byte
	over bool     // there was more text than is kept
	told []string // as they stand; the events of a stream may tell them again
}

// say takes a piece of the text.
func (c *citations) say(escaped []byte) {
	if c.over = c.over || len(c.text)+len(escaped) > citedMax; !c.over {
		c.text = append(c.text, escaped...)
	}
}

// append appends those annotations of a candidate that are new, comma separated.
func (c *citations) append(dst []byte, candidate gjson.Result) []byte {
	from := len(dst)
	metadata := candidate.Get("citationMetadata")
	for _, name := range [...]string{"citationSources", "citations"} { // the Gemini API's name and Vertex AI's
		metadata.Get(name).ForEach(func(_, v gjson.Result) bool {
			if v.Get("uri").Str != "" && !slices.Contains(c.told, v.Raw) {
				c.told = append(c.told, v.Raw)
				dst = c.appendOne(adapter.Comma(dst, from), v)
			}
			return true
		})
	}
	return dst
}

func (c *citations) appendOne(dst []byte, v gjson.Result) []byte {
	dst = adapter.AppendString(append(dst, `{"type":"url_citation","url_citation":{"url":`...), v.Get("uri").Str)
	dst = adapter.AppendString(append(dst, `,"title":`...), v.Get("title").Str)
	text := gjson.Parse(`"` + string(c.text) + `"`).Str
	// The provider leaves zeros out.
	if start, end := v.Get("startIndex").Int(), v.Get("endIndex").Int(); start >= 0 && start <= end && end <= int64(len(text)) {
		dst = reply.AppendInt(dst, `,"start_index":`, int64(utf8.RuneCountInString(text[:start])))
		dst = reply.AppendInt(dst, `,"end_index":`, int64(utf8.RuneCountInString(text[:end])))
	}
	return append(dst, "}}"...)
}
