package gemini

import (
	"net/url"
	"path"
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

// parts turns a message's content, a string or an array of parts, into the provider's parts. Empty texts are left out:
// they say nothing.
func (t *translation) parts(at place, content gjson.Result, k kinds, add func(part []byte)) *exchange.Failure {
	switch {
	case content.Type == gjson.String:
		if content.Str != "" {
			add(textPart(content.Raw))
		}
		return nil
	case !content.IsArray():
		return invalid(at.String()+".content", "content must be a string or an array of parts")
	}
	var f *exchange.Failure
	at.part = -1
	content.ForEach(func(_, p gjson.Result) bool {
		at.part++
		var part []byte
		if part, f = t.part(at, p, k); len(part) > 0 {
			add(part)
		}
		return f == nil
	})
	return f
}

// part turns one content part into the provider's, nil when there is nothing in it. A prompt_cache_breakpoint has no
// counterpart, and the answer is the same without it.
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
		return t.image(at, p)
	case kind.Str == "file" && k == anyPart:
		return t.file(at, p.Get("file"))
	case kind.Str == "input_audio" && k == anyPart:
		return audio(at, p.Get("input_audio"))
	case kind.Type != gjson.String:
		return nil, invalid(at.String()+".type", "a content part must have a type")
	}
	return nil, invalid(at.String()+".type", "a message of this role has no such parts")
}

func text(at place, name string, p gjson.Result) ([]byte, *exchange.Failure) {
	v := p.Get(name)
	if v.Type != gjson.String {
		return nil, invalid(at.String()+"."+name, name+" must be a string")
	}
	if v.Str == "" {
		return nil, nil
	}
	return textPart(v.Raw), nil
}

// textPart is a part of a JSON string.
func textPart(raw string) []byte {
	b := make([]byte, 0, len(raw)+80)
	return append(append(append(b, `{"text":`...), raw...), '}')
}

func (t *translation) image(at place, p gjson.Result) ([]byte, *exchange.Failure) {
	v := p.Get("image_url.url")
	if v.Type != gjson.String || v.Str == "" {
		return nil, invalid(at.String()+".image_url.url", "an image must have a URL")
	}
	if !hasScheme(v.Str, "data:") {
		return t.remote(at, v.Str, "")
	}
	media, data, ok := splitDataURI(v.Str)
	if !ok {
		return nil, invalid(at.String()+".image_url.url", "the data: URL must hold base64")
	}
	if media == "image/jpg" {
		media = "image/jpeg" // a common slip that the provider does not forgive
	}
	return inline(media, data), nil
}

// file takes a document of any kind: what is in it, or where it lies.
func (t *translation) file(at place, file gjson.Result) ([]byte, *exchange.Failure) {
	if !file.IsObject() {
		return nil, invalid(at.String()+".file", "file must be an object")
	}
	if id := file.Get("file_id").Str; hasScheme(id, "https:") || hasScheme(id, "gs:") {
		return t.remote(at, id, file.Get("format").Str)
	}
	media, data, ok := splitDataURI(file.Get("file_data").Str)
	if !ok {
		return nil, unsupported(at.String(), "Gemini takes files as a data: URL in file_data, or as an https: or gs: URL in file_id")
	}
	return inline(media, data), nil
}

func audio(at place, v gjson.Result) ([]byte, *exchange.Failure) {
	data, format := v.Get("data"), v.Get("format")
	switch {
	case data.Type != gjson.String || data.Str == "":
		return nil, invalid(at.String()+".input_audio.data", "audio must have data")
	case format.Type != gjson.String || format.Str == "":
		return nil, invalid(at.String()+".input_audio.format", "audio must have a format")
	}
	return inline("audio/"+strings.ToLower(format.Str), data.Str), nil
}

func inline(media, data string) []byte {
	b := make([]byte, 0, len(data)+96)
	b = appendString(append(b, `{"inlineData":{"mimeType":`...), media)
	b = appendString(append(b, `,"data":`...), data)
	return append(b, "}}"...)
}

// remote is a part that the provider fetches itself. Vertex AI wants to be told what it is.
func (t *translation) remote(at place, uri, media string) ([]byte, *exchange.Failure) {
	if !hasScheme(uri, "https:") && !hasScheme(uri, "gs:") {
		return nil, unsupported(at.String(), "Gemini takes data:, https: and gs: URLs")
	}
	if media == "" {
		media = mediaOf(uri)
	}
	if media == "" && t.vertex {
		return nil, unsupported(at.String(), "the URL does not tell what kind of file it is, which Vertex AI must know")
	}
	b := appendString([]byte(`{"fileData":{"fileUri":`), uri)
	return append(appendMember(b, "mimeType", media), "}}"...), nil
}

// mediaOf guesses the media type of a file from its name, "" when that does not tell.
func mediaOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	switch strings.ToLower(path.Ext(u.Path)) {
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".png":
		return "image/png"
	case ".webp":
		return "image/webp"
	case ".gif":
		return "image/gif"
	case ".heic":
		return "image/heic"
	case ".pdf":
		return "application/pdf"
	case ".txt":
		return "text/plain"
	case ".mp3":
		return "audio/mp3"
	case ".wav":
		return "audio/wav"
	case ".mp4":
		return "video/mp4"
	}
	return ""
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
