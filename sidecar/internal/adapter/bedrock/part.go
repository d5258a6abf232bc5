package bedrock

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// kinds says which content parts a role may have.
type kinds uint8

const (
	textOnly kinds = iota
	textOrRefusal
	textOrImage
	anyPart
)

// parts turns a message's content, a string or an array of parts, into blocks. Empty texts are left out: the provider
// refuses them, and they say nothing.
func (t *translation) parts(at place, content gjson.Result, mayBeNull bool, k kinds, add func(block []byte, cached bool)) *exchange.Failure {
	switch {
	case content.Type == gjson.String:
		if content.Str != "" {
			add(textBlock(content.Raw), false)
		}
		return nil
	case content.Type == gjson.Null && mayBeNull:
		return nil
	case !content.IsArray():
		return invalid(at.String()+".content", "content must be a string or an array of parts")
	}
	var f *exchange.Failure
	at.part = -1
	content.ForEach(func(_, p gjson.Result) bool {
		at.part++
		var block []byte
		if block, f = t.part(at, p, k); len(block) > 0 {
			add(block, p.Get("prompt_cache_breakpoint").IsObject())
		}
		return f == nil
	})
	return f
}

// part turns one content part into a block, nil when there is nothing in it.
func (t *translation) part(at place, p gjson.Result, k kinds) ([]byte, *exchange.Failure) {
	if !p.IsObject() {
		return nil, invalid(at.String(), "a content part must be an object")
	}
	kind := p.Get("type")
	switch {
	case kind.Str == "text":
		return text(at, "text", p)
	case kind.Str == "refusal" && k == textOrRefusal:
		return text(at, "refusal", p)
	case kind.Str == "image_url" && k >= textOrImage:
		return image(at, p)
	case kind.Str == "file" && k == anyPart:
		return t.document(at, p)
	case kind.Str == "input_audio" && k == anyPart:
		return audio(at, p)
	case kind.Type != gjson.String:
		return nil, invalid(at.String()+".type", "a content part must have a type")
	}
	return nil, invalid(at.String()+".type", "a message of this role has no such parts")
}

func text(at place, name string, p gjson.Result) ([]byte, *exchange.Failure) {
	v := p.Get(name)
	switch {
	case v.Type != gjson.String:
		return nil, invalid(at.String()+"."+name, name+" must be a string")
	case v.Str == "":
		return nil, nil
	}
	return textBlock(v.Raw), nil
}

// textBlock is the block of a JSON string.
func textBlock(raw string) []byte {
	return append(append([]byte(`{"text":`), raw...), '}')
}

// source appends where the bytes of a block are, and closes the block.
func source(head, member, value string) []byte {
	b := make([]byte, 0, len(head)+len(value)+64)
	b = append(append(b, head...), `,"source":{`+member...)
	return append(appendString(b, value), `}}}`...)
}

// image is the block of an image. Bedrock fetches none from the web.
func image(at place, p gjson.Result) ([]byte, *exchange.Failure) {
	v := p.Get("image_url.url")
	if v.Type != gjson.String || v.Str == "" {
		return nil, invalid(at.String()+".image_url.url", "an image must have a URL")
	}
	if !hasScheme(v.Str, "data:") {
		return nil, unsupported(at.String(), "Bedrock takes images as data: URLs alone")
	}
	media, data, ok := splitDataURI(v.Str)
	if !ok {
		return nil, invalid(at.String()+".image_url.url", "the data: URL must hold base64")
	}
	format, known := map[string]string{
		"image/jpeg": "jpeg", "image/jpg": "jpeg", "image/png": "png", "image/gif": "gif", "image/webp": "webp",
	}[media]
	if !known {
		return nil, unsupported(at.String(), "Bedrock takes images as jpeg, png, gif or webp")
	}
	return source(`{"image":{"format":"`+format+`"`, `"bytes":`, data), nil
}

func audio(at place, p gjson.Result) ([]byte, *exchange.Failure) {
	data, format := p.Get("input_audio.data"), p.Get("input_audio.format").Str
	switch {
	case data.Type != gjson.String || data.Str == "":
		return nil, invalid(at.String()+".input_audio.data", "audio must have its data")
	case format != "wav" && format != "mp3":
		return nil, invalid(at.String()+".input_audio.format", "the format must be wav or mp3")
	}
	return source(`{"audio":{"format":"`+format+`"`, `"bytes":`, data.Str), nil
}

// documentFormats are the formats of documents by media type.
var documentFormats = map[string]string{
	"application/pdf": "pdf", "text/csv": "csv", "text/html": "html", "text/plain": "txt", "text/markdown": "md",
	"application/msword": "doc", "application/vnd.ms-excel": "xls",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":       "xlsx",
}

func (t *translation) document(at place, p gjson.Result) ([]byte, *exchange.Failure) {
	file := p.Get("file")
	if !file.IsObject() {
		return nil, invalid(at.String()+".file", "file must be an object")
	}
	if file.Get("file_data").Type == gjson.Null {
		return nil, unsupported(at.String(), "Bedrock knows no uploaded files: send file_data")
	}
	media, data, ok := splitDataURI(file.Get("file_data").Str)
	if !ok {
		return nil, invalid(at.String()+".file.file_data", "file_data must be a data: URL with base64")
	}
	format, known := documentFormats[media]
	if !known {
		return nil, unsupported(at.String(), "Bedrock takes files as pdf, csv, doc, docx, xls, xlsx, html, txt or md")
	}
	name := file.Get("filename")
	if name.Type != gjson.String && name.Type != gjson.Null {
		return nil, invalid(at.String()+".file.filename", "filename must be a string")
	}
	head := appendString([]byte(`{"document":{"format":"`+format+`","name":`), t.documentName(name.Str))
	return source(string(head), `"bytes":`, data), nil
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
	free := name
	for n := 2; t.names[free]; n++ {
		free = fmt.Sprintf("%s (%d)", name, n)
	}
	t.names[free] = true
	return free
}
