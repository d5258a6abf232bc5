package anthropic

import (
	"unicode/utf8"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// appendPart appends the block of a part.
func (t *translation) appendPart(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	switch p.Kind {
	case prompt.ImagePart:
		return t.appendImage(dst, p)
	case prompt.FilePart:
		return t.appendDocument(dst, p)
	case prompt.AudioPart:
		return dst, t.Cannot(p.Place.String(), "Anthropic models take no audio")
	}
	return appendText(dst, p), nil
}

func appendText(dst []byte, p *prompt.Part) []byte {
	return endBlock(append(append(dst, `{"type":"text","text":`...), p.Text.Raw...), p)
}

func endBlock(b []byte, p *prompt.Part) []byte {
	if p.Cached {
		b = append(b, `,"cache_control":{"type":"ephemeral"}`...)
	}
	return append(b, '}')
}

func (t *translation) appendImage(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	if p.In("https:") {
		dst = append(append(dst, `{"type":"image","source":{"type":"url","url":`...), p.Text.Raw...)
		return endBlock(append(dst, '}'), p), nil
	}
	switch p.Data.Media {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		return endBlock(appendSource(append(dst, `{"type":"image"`...), p.Data), p), nil
	case "":
		if !p.In("data:") {
			return dst, t.Cannot(p.Place.String(), "Anthropic takes images as data: or https: URLs")
		}
	}
	return dst, t.Cannot(p.Place.String(), "Anthropic takes images as jpeg, png, gif or webp")
}

func (t *translation) appendDocument(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	switch p.Data.Media {
	case "application/pdf":
		dst = appendSource(append(dst, `{"type":"document"`...), p.Data)
	case "text/plain":
		text, err := p.Data.Bytes()
		if err != nil || !utf8.Valid(text) {
			return dst, adapter.Invalid(p.Place.String()+".file.file_data", "the text must be base64 of UTF-8")
		}
		dst = append(dst, `{"type":"document","source":{"type":"text","media_type":"text/plain","data":`...)
		dst = append(adapter.AppendString(dst, string(text)), '}')
	default:
		return dst, t.Cannot(p.Place.String(), "Anthropic takes files only as PDF or plain text in a data: URL")
	}
	if name := p.File.Name.Raw; name != "" {
		dst = append(append(dst, `,"title":`...), name...)
	}
	return endBlock(dst, p), nil
}

// appendSource appends where the bytes of a block are.
func appendSource(dst []byte, d prompt.Data) []byte {
	dst = append(dst, `,"source":{"type":"base64","media_type":"`...)
	dst = append(append(dst, d.Media...), `","data":"`...)
	return append(append(dst, d.Base64...), `"}`...)
}
