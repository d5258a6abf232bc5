package gateway

import (
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/tidwall/gjson"
)

const (
	// documentTokens is what each begun documentBytes of a file's base64 are taken for: a page or so of a PDF, as text and
	// as a picture.
	documentTokens = 3_000
	documentBytes  = 64 << 10
	// unseenTokens is what a file is taken for that the provider fetches itself.
	unseenTokens = 20_000
)

// fileTokens is what a file of so many bytes of base64 is taken for.
func fileTokens(bytes int) int64 { return (int64(bytes)/documentBytes + 1) * documentTokens }

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
			r.InputExtra += fileTokens(len(source.Get("data").Raw))
		case kind == "document" && source.Get("type").Str == "content":
			peekBlocks(r, source.Get("content"))
		case kind == "document" && source.Get("type").Str != "text", kind == "container_upload":
			r.InputExtra += unseenTokens
		case kind == "tool_result", strings.HasSuffix(kind, "_tool_result"):
			peekBlocks(r, b.Get("content"))
		default:
			r.InputBytes += int64(len(b.Raw))
		}
		return true
	})
}
