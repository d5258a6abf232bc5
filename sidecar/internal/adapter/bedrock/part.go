package bedrock

import (
	"fmt"
	"strings"

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
		return t.appendAudio(dst, p)
	}
	return appendText(dst, p.Text.Raw), nil
}

func appendText(dst []byte, raw string) []byte {
	return append(append(append(dst, `{"text":`...), raw...), '}')
}

// appendSource appends where the bytes of a block are, and closes the block.
func appendSource(dst []byte, base64 string) []byte {
	dst = append(dst, `,"source":{"bytes":"`...)
	return append(append(dst, base64...), `"}}}`...)
}

// imageFormats are the formats of images by media type.
var imageFormats = map[string]string{"image/jpeg": "jpeg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}

// appendImage appends the block of an image. Bedrock fetches none from the web.
func (t *translation) appendImage(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	if !p.In("data:") {
		return dst, t.Cannot(p.Place.String(), "Bedrock takes images as data: URLs alone")
	}
	format, known := imageFormats[p.Data.Media]
	if !known {
		return dst, t.Cannot(p.Place.String(), "Bedrock takes images as jpeg, png, gif or webp")
	}
	return appendSource(append(dst, `{"image":{"format":"`+format+`"`...), p.Data.Base64), nil
}

func (t *translation) appendAudio(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	base64, format, f := p.Audio()
	if f != nil {
		return dst, f
	}
	if format != "wav" && format != "mp3" {
		return dst, t.Cannot(p.Place.String(), "Bedrock takes audio as wav or mp3")
	}
	return appendSource(append(dst, `{"audio":{"format":"`+format+`"`...), base64), nil
}

// documentFormats are the formats of documents by media type.
var documentFormats = map[string]string{
	"application/pdf": "pdf", "text/csv": "csv", "text/html": "html", "text/plain": "txt", "text/markdown": "md",
	"application/msword": "doc", "application/vnd.ms-excel": "xls",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":       "xlsx",
}

func (t *translation) appendDocument(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	format, known := documentFormats[p.Data.Media]
	switch {
	case !p.File.Sent:
		return dst, t.Cannot(p.Place.String(), "Bedrock knows no uploaded files: send file_data")
	case p.Data.Base64 == "":
		return dst, t.Cannot(p.Place.String(), "Bedrock takes file_data as a data: URL with base64")
	case !known:
		return dst, t.Cannot(p.Place.String(), "Bedrock takes files as pdf, csv, doc, docx, xls, xlsx, html, txt or md")
	}
	dst = adapter.AppendString(append(dst, `{"document":{"format":"`+format+`","name":`...), t.documentName(p.File.Name.Str))
	return appendSource(dst, p.Data.Base64), nil
}

// documentName makes a file's name one that Bedrock takes: letters, digits, single spaces, hyphens, parentheses and
// brackets; and no two alike.
func (t *translation) documentName(file string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.ContainsRune("-()[]", c):
			return c
		}
		return ' '
	}, file)
	const most = 180 // of 200, the number comes behind
	name = strings.Join(strings.Fields(name[:min(len(name), most)]), " ")
	if name == "" {
		name = "document"
	}
	if t.names == nil {
		t.names = map[string]int{}
	}
	free := name
	for n := max(2, t.names[name]); t.names[free] > 0; n++ {
		free = fmt.Sprintf("%s (%d)", name, n)
		t.names[name] = n + 1
	}
	t.names[free] = 1
	return free
}
