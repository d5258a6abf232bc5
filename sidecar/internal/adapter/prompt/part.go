package prompt

import (
	"encoding/base64"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// PartKind is what a part of a message is.
type PartKind uint8

// The kinds.
const (
	TextPart PartKind = iota
	ImagePart
	FilePart
	AudioPart
)

// Part is one part of what a message says.
type Part struct {
	Kind   PartKind
	Drawn  bool // an image that a model made earlier
	Cached bool // what is up to here is worth to be kept in a cache
	Place  Place
	Text   Text // of a text, what it says; of an image, its URL: never empty. Of audio, the object is its Raw.
	Data   Data // of an image or a file that came in a data: URL
	File   *File
}

// Data is what a data: URL holds. The zero Data is none.
type Data struct {
	Media  string // its type, in small letters and without parameters
	Base64 string // as it stands in the body, without quotes: never empty
}

// File is a file, beside what is in it.
type File struct {
	Name       Text   // none where it is empty
	ID, Format string // an uploaded one's; what kind of file it is, which is an extension
	Sent       bool   // there is file_data, readable or not
}

// kinds says which content parts a role may have.
type kinds uint8

const (
	textOnly kinds = iota
	textOrRefusal
	textOrImage
	anyPart
)

// content reads a message's content: a string, or an array of parts. Empty texts are left out: they say nothing, and
// most providers refuse them.
func (p *reader) content(at Place, v gjson.Result, k kinds) *exchange.Failure {
	switch {
	case v.Type == gjson.String:
		if v.Str != "" {
			p.parts = append(p.parts, Part{Place: at, Text: text(v)})
		}
		return nil
	case !v.IsArray():
		return adapter.Invalid(at.String()+".content", "content must be a string or an array of parts")
	}
	var f *exchange.Failure
	v.ForEach(func(_, v gjson.Result) bool {
		at.Part++
		f = p.part(at, v, k)
		return f == nil
	})
	return f
}

func (p *reader) part(at Place, v gjson.Result, k kinds) *exchange.Failure {
	if !v.IsObject() {
		return adapter.Invalid(at.String(), "a content part must be an object")
	}
	var kind, said, refusal, image, file, audio, cached gjson.Result
	var f *exchange.Failure
	v.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "type":
			first(&kind, v)
		case "text":
			first(&said, v)
		case "refusal":
			first(&refusal, v)
		case "image_url":
			first(&image, v)
		case "file":
			first(&file, v)
		case "input_audio":
			first(&audio, v)
		case "prompt_cache_breakpoint", "cache_control": // the latter says OpenRouter
			first(&cached, v)
		default:
			f = p.unknown(at, k.Str, v)
		}
		return f == nil
	})
	if f != nil {
		return f
	}
	part := Part{Place: at, Cached: cached.IsObject()}
	switch {
	case kind.Str == "text":
		return p.text(part, "text", said)
	case kind.Str == "refusal" && k == textOrRefusal:
		return p.text(part, "refusal", refusal)
	case kind.Str == "image_url" && k >= textOrImage:
		return p.image(part, image.Get("url"))
	case kind.Str == "file" && k == anyPart:
		return p.file(part, file)
	case kind.Str == "input_audio" && k == anyPart:
		part.Kind, part.Text.Raw = AudioPart, audio.Raw
		p.parts = append(p.parts, part)
		return nil
	case kind.Type != gjson.String:
		return adapter.Invalid(at.String()+".type", "a content part must have a type")
	}
	return adapter.Invalid(at.String()+".type", "a message of this role has no such parts")
}

func (p *reader) text(part Part, name string, v gjson.Result) *exchange.Failure {
	if v.Type != gjson.String {
		return adapter.Invalid(part.Place.String()+"."+name, name+" must be a string")
	}
	if part.Text = text(v); v.Str != "" {
		p.parts = append(p.parts, part)
	}
	return nil
}

func (p *reader) image(part Part, url gjson.Result) *exchange.Failure {
	if url.Type != gjson.String || url.Str == "" {
		return adapter.Invalid(part.Place.String()+".image_url.url", "an image must have a URL")
	}
	part.Kind, part.Text = ImagePart, text(url)
	if part.In("data:") {
		if part.Data = data(url); part.Data.Base64 == "" {
			return adapter.Invalid(part.Place.String()+".image_url.url", "the data: URL must hold base64")
		}
	}
	if part.Data.Media == "image/jpg" {
		part.Data.Media = "image/jpeg" // a common slip that providers do not forgive
	}
	p.parts = append(p.parts, part)
	return nil
}

// drawn reads the images of an assistant's message, which stand beside its content. Most providers take none back.
func (p *reader) drawn(at Place, images gjson.Result) (f *exchange.Failure) {
	if images.Type != gjson.Null && !images.IsArray() {
		return adapter.Invalid(at.String()+".images", "images must be an array")
	}
	images.ForEach(func(_, v gjson.Result) bool {
		if f = p.image(Part{Place: at, Drawn: true}, v.Get("image_url.url")); f != nil {
			f.Param = at.String() + ".images"
		}
		return f == nil
	})
	return f
}

// Undrawn is the failure of an image that a model made earlier, for providers that take none back; nil for other parts.
func (c *Chat) Undrawn(p *Part) *exchange.Failure {
	if !p.Drawn {
		return nil
	}
	return c.Cannot(p.Place.String()+".images", c.vendor+" takes no images back that a model made")
}

func (p *reader) file(part Part, v gjson.Result) *exchange.Failure {
	if !v.IsObject() {
		return adapter.Invalid(part.Place.String()+".file", "file must be an object")
	}
	var id, name, format, content gjson.Result
	v.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "file_id":
			first(&id, v)
		case "filename":
			first(&name, v)
		case "format":
			first(&format, v)
		case "file_data":
			first(&content, v)
		}
		return true
	})
	if name.Type != gjson.String && name.Type != gjson.Null {
		return adapter.Invalid(part.Place.String()+".file.filename", "filename must be a string")
	}
	part.Kind, part.Data = FilePart, data(content)
	part.File = &File{ID: id.Str, Format: format.Str, Sent: content.Type != gjson.Null}
	if name.Str != "" {
		part.File.Name = text(name)
	}
	p.parts = append(p.parts, part)
	return nil
}

// Audio is what an audio part holds, the data without its quotes.
func (p *Part) Audio() (base64, format string, f *exchange.Failure) {
	v := gjson.Parse(p.Text.Raw)
	data, kind := v.Get("data"), v.Get("format")
	switch {
	case data.Type != gjson.String || data.Str == "":
		return "", "", adapter.Invalid(p.Place.String()+".input_audio.data", "audio must have its data")
	case kind.Type != gjson.String || kind.Str == "":
		return "", "", adapter.Invalid(p.Place.String()+".input_audio.format", "audio must have a format")
	}
	return adapter.Inside(data), kind.Str, nil
}

// In reports whether an image's URL has a scheme, such as https:.
func (p *Part) In(scheme string) bool { return HasScheme(p.Text.Str, scheme) }

// HasScheme reports whether a URL has a scheme, such as https:.
func HasScheme(url, scheme string) bool {
	return len(url) >= len(scheme) && strings.EqualFold(url[:len(scheme)], scheme)
}

// data takes data:MEDIA;base64,DATA apart. Parameters of the media type are dropped. What is no such URL is no Data.
func data(url gjson.Result) Data {
	if !HasScheme(url.Str, "data:") {
		return Data{}
	}
	// Neither the letters of base64 nor those before the comma need escapes, but may have them.
	head, content, _ := strings.Cut(url.Str[len("data:"):], ",")
	head, ok := strings.CutSuffix(strings.ToLower(head), ";base64")
	if !ok || content == "" {
		return Data{}
	}
	if raw := adapter.Inside(url); strings.IndexByte(raw, '\\') >= 0 {
		escaped := adapter.AppendString(nil, content)
		content = string(escaped[1 : len(escaped)-1])
	}
	media, _, _ := strings.Cut(head, ";")
	return Data{strings.TrimSpace(media), content}
}

// Bytes are what the base64 says.
func (d Data) Bytes() ([]byte, error) {
	return base64.StdEncoding.DecodeString(gjson.Parse(`"` + d.Base64 + `"`).Str)
}
