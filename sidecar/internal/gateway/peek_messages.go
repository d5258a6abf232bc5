package gateway

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/tidwall/gjson"
)

// peekDocument measures a document in base64.
func peekDocument(r *exchange.Request, media, data string) {
	tokens, text := estimate.Document(media, data)
	r.InputExtra += tokens
	r.InputBytes += text
}

// peekFile measures a file by its data URL, which is empty when the provider is to fetch it.
func peekFile(r *exchange.Request, url string) {
	head, data, ok := strings.Cut(url, ",")
	if !ok {
		head, data = "", url // base64 alone
	}
	media, _, _ := strings.Cut(strings.TrimPrefix(head, "data:"), ";")
	if data == "" {
		r.InputExtra += estimate.UnseenTokens
		return
	}
	peekDocument(r, media, data)
}

// peekClaude reads a member of a Messages request.
func peekClaude(r *exchange.Request, name string, v gjson.Result) (bad *badField) {
	switch name {
	case "messages":
		return peekMessages(r, v)
	case "stream":
		bad = peekStream(r, name, v)
		r.IncludeUsage = r.Stream // Anthropic's streams always end with it
	case "max_tokens":
		r.MaxOutput, bad = count(name, v, 0, outputMax) // 0 only fills the provider's cache
	case "thinking":
		r.Thinking = max(min(v.Get("budget_tokens").Int(), outputMax), 0)
	case "system":
		peekBlocks(r, v)
	case "tools":
		r.Tools = v.IsArray() && len(v.Raw) > 2
		r.InputBytes += int64(len(v.Raw))
	case "output_config":
		r.JSONSchema = r.JSONSchema || v.Get("format.type").Str == "json_schema"
		r.InputBytes += int64(len(v.Raw))
	case "output_format":
		r.JSONSchema = r.JSONSchema || v.Get("type").Str == "json_schema"
		r.InputBytes += int64(len(v.Raw))
	}
	return bad
}

// peekBlocks measures the content of a message, or of a block that has blocks in it. What is not known to be priced
// otherwise is counted as text by its raw size.
func peekBlocks(r *exchange.Request, v gjson.Result) {
	if !v.IsArray() {
		r.InputBytes += int64(len(v.Raw))
		return
	}
	v.ForEach(func(_, b gjson.Result) bool {
		source := b.Get("source")
		switch kind := b.Get("type").Str; {
		case kind == "image":
			r.Vision = true
			r.InputExtra += imageTokens
		case kind == "document" && source.Get("type").Str == "base64":
			peekDocument(r, source.Get("media_type").Str, source.Get("data").Str)
		case kind == "document" && source.Get("type").Str == "content":
			peekBlocks(r, source.Get("content"))
		case kind == "document" && source.Get("type").Str != "text", kind == "container_upload":
			r.InputExtra += estimate.UnseenTokens
		case kind == "tool_result", strings.HasSuffix(kind, "_tool_result"):
			peekBlocks(r, b.Get("content"))
		default:
			r.InputBytes += int64(len(b.Raw))
		}
		return true
	})
}
