package anthropic

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

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
func parts(at place, content gjson.Result, mayBeNull bool, k kinds, add func(block []byte)) *exchange.Failure {
	switch {
	case content.Type == gjson.String:
		if content.Str != "" {
			add(textBlock(content.Raw, false))
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
		if block, f = part(at, p, k); len(block) > 0 {
			add(block)
		}
		return f == nil
	})
	return f
}

// part turns one content part into a block, nil when there is nothing in it.
func part(at place, p gjson.Result, k kinds) ([]byte, *exchange.Failure) {
	if !p.IsObject() {
		return nil, invalid(at.String(), "a content part must be an object")
	}
	cached := p.Get("prompt_cache_breakpoint").IsObject()
	kind := p.Get("type")
	switch {
	case kind.Str == "text":
		return text(at, "text", p, cached)
	case kind.Str == "refusal" && k == textOrRefusal:
		return text(at, "refusal", p, cached)
	case kind.Str == "image_url" && k >= textOrImage:
		return image(at, p, cached)
	case kind.Str == "file" && k == anyPart:
		return document(at, p, cached)
	case kind.Str == "input_audio" && k == anyPart:
		return nil, unsupported(at.String(), "Anthropic models take no audio")
	case kind.Type != gjson.String:
		return nil, invalid(at.String()+".type", "a content part must have a type")
	}
	return nil, invalid(at.String()+".type", "a message of this role has no such parts")
}

func text(at place, name string, p gjson.Result, cached bool) ([]byte, *exchange.Failure) {
	v := p.Get(name)
	if v.Type != gjson.String {
		return nil, invalid(at.String()+"."+name, name+" must be a string")
	}
	if v.Str == "" {
		return nil, nil
	}
	return textBlock(v.Raw, cached), nil
}

// textBlock is a text block of a JSON string.
func textBlock(raw string, cached bool) []byte {
	b := make([]byte, 0, len(raw)+80)
	b = append(append(b, `{"type":"text","text":`...), raw...)
	return endBlock(b, cached)
}

func endBlock(b []byte, cached bool) []byte {
	if cached {
		b = append(b, `,"cache_control":{"type":"ephemeral"}`...)
	}
	return append(b, '}')
}

func image(at place, p gjson.Result, cached bool) ([]byte, *exchange.Failure) {
	v := p.Get("image_url.url")
	if v.Type != gjson.String || v.Str == "" {
		return nil, invalid(at.String()+".image_url.url", "an image must have a URL")
	}
	if hasScheme(v.Str, "https:") {
		b := append([]byte(`{"type":"image","source":{"type":"url","url":`), v.Raw...)
		return endBlock(append(b, '}'), cached), nil
	}
	if !hasScheme(v.Str, "data:") {
		return nil, unsupported(at.String(), "Anthropic takes images as data: or https: URLs")
	}
	media, data, ok := splitDataURI(v.Str)
	if !ok {
		return nil, invalid(at.String()+".image_url.url", "the data: URL must hold base64")
	}
	if media == "image/jpg" {
		media = "image/jpeg" // a common slip that the provider does not forgive
	}
	switch media {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
	default:
		return nil, unsupported(at.String(), "Anthropic takes images as jpeg, png, gif or webp")
	}
	return endBlock(base64Source(`{"type":"image"`, media, data), cached), nil
}

func document(at place, p gjson.Result, cached bool) ([]byte, *exchange.Failure) {
	file := p.Get("file")
	if !file.IsObject() {
		return nil, invalid(at.String()+".file", "file must be an object")
	}
	media, data, ok := splitDataURI(file.Get("file_data").Str)
	var b []byte
	switch {
	case ok && media == "application/pdf":
		b = base64Source(`{"type":"document"`, media, data)
	case ok && media == "text/plain":
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !utf8.Valid(text) {
			return nil, invalid(at.String()+".file.file_data", "the text must be base64 of UTF-8")
		}
		b = appendString([]byte(`{"type":"document","source":{"type":"text","media_type":"text/plain","data":`), string(text))
		b = append(b, '}')
	default:
		return nil, unsupported(at.String(), "Anthropic takes files only as PDF or plain text in a data: URL")
	}
	if name := file.Get("filename"); name.Type == gjson.String && name.Str != "" {
		b = append(append(b, `,"title":`...), name.Raw...)
	}
	return endBlock(b, cached), nil
}

func base64Source(head, media, data string) []byte {
	b := make([]byte, 0, len(data)+160)
	b = append(append(b, head...), `,"source":{"type":"base64","media_type":`...)
	b = appendString(b, media)
	b = appendString(append(b, `,"data":`...), data)
	return append(b, '}')
}

// splitDataURI cuts data:MEDIA;base64,DATA. Parameters of the media type are dropped.
func splitDataURI(uri string) (media, data string, ok bool) {
	if !hasScheme(uri, "data:") {
		return "", "", false
	}
	head, data, ok := strings.Cut(uri[len("data:"):], ",")
	if !ok || data == "" {
		return "", "", false
	}
	head, ok = strings.CutSuffix(strings.ToLower(head), ";base64")
	if !ok {
		return "", "", false
	}
	media, _, _ = strings.Cut(head, ";")
	return strings.TrimSpace(media), data, true
}

func hasScheme(url, scheme string) bool {
	return len(url) >= len(scheme) && strings.EqualFold(url[:len(scheme)], scheme)
}
