package gemini

import (
	"net/url"
	"path"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// appendPart appends the provider's part. That something is worth to be cached has no counterpart, and the answer is the
// same without it.
func (t *translation) appendPart(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	switch p.Kind {
	case prompt.ImagePart:
		if p.Data.Base64 == "" {
			return t.appendRemote(dst, p, p.Text.Str, "")
		}
		return appendInline(dst, p.Data.Media, p.Data.Base64), nil
	case prompt.FilePart:
		return t.appendFile(dst, p)
	case prompt.AudioPart:
		base64, format, f := p.Audio()
		if f != nil {
			return dst, f
		}
		return appendInline(dst, "audio/"+strings.ToLower(format), base64), nil
	}
	return appendText(dst, p.Text.Raw), nil
}

func appendText(dst []byte, raw string) []byte {
	return append(append(append(dst, `{"text":`...), raw...), '}')
}

// appendFile takes a document of any kind: what is in it, or where it lies.
func (t *translation) appendFile(dst []byte, p *prompt.Part) ([]byte, *exchange.Failure) {
	switch id := p.File.ID; {
	case prompt.HasScheme(id, "https:"), prompt.HasScheme(id, "gs:"):
		return t.appendRemote(dst, p, id, p.File.Format)
	case p.Data.Base64 == "":
		return dst, t.Cannot(p.Place.String(), "Gemini takes files as a data: URL in file_data, or as an https: or gs: URL in file_id")
	}
	return appendInline(dst, p.Data.Media, p.Data.Base64), nil
}

func appendInline(dst []byte, media, base64 string) []byte {
	dst = append(dst, `{"inlineData":{"mimeType":`...)
	dst = append(adapter.AppendString(dst, media), `,"data":"`...)
	return append(append(dst, base64...), `"}}`...)
}

// appendRemote appends a part that the provider fetches itself. Vertex AI wants to be told what it is.
func (t *translation) appendRemote(dst []byte, p *prompt.Part, uri, media string) ([]byte, *exchange.Failure) {
	if !prompt.HasScheme(uri, "https:") && !prompt.HasScheme(uri, "gs:") {
		return dst, t.Cannot(p.Place.String(), "Gemini takes data:, https: and gs: URLs")
	}
	if media == "" {
		media = mediaOf(uri)
	}
	if media == "" && t.vertex {
		return dst, t.Cannot(p.Place.String(), "the URL does not tell what kind of file it is, which Vertex AI must know")
	}
	dst = adapter.AppendString(append(dst, `{"fileData":{"fileUri":`...), uri)
	return append(appendMember(dst, "mimeType", media), "}}"...), nil
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
