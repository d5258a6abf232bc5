package gemini

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// embed builds a request for vectors: batchEmbedContents of the Gemini API, and of Vertex AI predict or, of the models
// after the first, embedContent (as Google's own libraries choose between them).
func (a *Adapter) embed(r *exchange.Request, d *exchange.Deployment) (path string, body []byte, f *exchange.Failure) {
	var texts []string // raw JSON
	size := ""         // of a vector, "" for the model's own
	f = adapter.EachMember(r.Body, r.AllowDropped, func(name string, v gjson.Result) (f *exchange.Failure) {
		switch name {
		case "model", "user":
		case "encoding_format":
			if v.Str != "float" && v.Str != "base64" {
				f = adapter.Invalid(name, "encoding_format must be float or base64")
			}
		case "dimensions":
			if n, err := strconv.ParseInt(v.Raw, 10, 32); v.Type != gjson.Number || err != nil || n < 1 {
				f = adapter.Invalid(name, "dimensions must be a whole number above 0")
			}
			size = v.Raw
		case "input":
			texts, f = inputs(v)
		default:
			f = adapter.Unsupported(name, fmt.Sprintf("Gemini models cannot honour %s", adapter.Printable(name)))
		}
		return f
	})
	switch {
	case f != nil:
		return "", nil, f
	case len(texts) == 0:
		return "", nil, adapter.Invalid("input", "input must hold a text")
	case a.vertex && embedsContent(d.Model):
		if len(texts) > 1 {
			return "", nil, adapter.Unsupported("input", "this model embeds one text at a time: another has more")
		}
		return a.path(d, ":embedContent"), embedContent(texts[0], size), nil
	case a.vertex:
		return a.path(d, ":predict"), predict(texts, size), nil
	}
	return a.path(d, ":batchEmbedContents"), batch(a.resource(d.Model), texts, size), nil
}

// inputs are the texts to embed, as raw JSON.
func inputs(v gjson.Result) ([]string, *exchange.Failure) {
	if v.Type == gjson.String {
		v = gjson.Parse("[" + v.Raw + "]")
	}
	if !v.IsArray() {
		return nil, adapter.Invalid("input", "input must be a string or an array of strings")
	}
	var texts []string
	for _, e := range v.Array() {
		if e.Type != gjson.String {
			return nil, adapter.Unsupported("input", "Gemini takes texts to embed, no token ids: another model has others")
		}
		texts = append(texts, e.Raw)
	}
	return texts, nil
}

func batch(model string, texts []string, size string) []byte {
	b := []byte(`{"requests":[`)
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = adapter.AppendString(append(b, `{"model":`...), model)
		b = append(append(append(b, `,"content":{"parts":[{"text":`...), text...), "}]}"...)
		if size != "" {
			b = append(b, `,"outputDimensionality":`+size...)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// embedsContent reports whether a model on Vertex AI is asked by embedContent.
func embedsContent(model string) bool {
	return strings.Contains(model, "gemini") && !strings.Contains(model, "gemini-embedding-001")
}

// embedContent has a text that is too long refused, as predict does.
func embedContent(text, size string) []byte {
	b := append([]byte(`{"content":{"parts":[{"text":`), text...)
	b = append(b, `}]},"autoTruncate":false`...)
	if size != "" {
		b = append(b, `,"outputDimensionality":`+size...)
	}
	return append(b, '}')
}

// predict has texts that are too long refused: Vertex AI would cut them and say nothing.
func predict(texts []string, size string) []byte {
	b := []byte(`{"instances":[`)
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"content":`...), text...), '}')
	}
	b = append(b, `],"parameters":{"autoTruncate":false`...)
	if size != "" {
		b = append(b, `,"outputDimensionality":`+size...)
	}
	return append(b, "}}"...)
}

// vectors turns a complete answer into a list of embeddings.
func vectors(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	use := exchange.Usage{Source: exchange.FromEstimate}
	answer, f := object(body)
	if f != nil {
		return nil, use, f
	}
	list, values := answer.Get("embeddings"), "values"
	if predictions := answer.Get("predictions"); predictions.IsArray() {
		list, values = predictions, "embeddings.values"
	}
	if one := answer.Get("embedding"); one.IsObject() {
		list = gjson.Parse("[" + one.Raw + "]")
	}
	if !list.IsArray() {
		return nil, use, adapter.InvalidAnswer("the provider's answer has no embeddings")
	}
	packed := gjson.GetBytes(r.Body, "encoding_format").Str == "base64"
	dst := append(make([]byte, 0, len(body)), `{"object":"list","data":[`...)
	tokens, counted := int64(0), true
	for i, e := range list.Array() {
		if i > 0 {
			dst = append(dst, ',')
		}
		v := e.Get(values)
		if !isVector(v) {
			return nil, use, adapter.InvalidAnswer("an embedding of the provider's answer is no list of numbers")
		}
		dst = reply.AppendInt(dst, `{"object":"embedding","index":`, int64(i))
		dst = append(dst, `,"embedding":`...)
		if packed {
			dst = appendPacked(dst, v)
		} else {
			dst = append(dst, v.Raw...)
		}
		dst = append(dst, '}')
		n, ok := adapter.Count(e.Get("embeddings.statistics.token_count"))
		counted = counted && ok
		tokens += n
	}
	var c counts
	switch c.update(answer.Get("usageMetadata")); {
	case c.stated:
		use = c.usage(0)
	case counted && list.Get("0").Exists():
		use = exchange.Usage{Source: exchange.FromProvider, Tokens: exchange.Tokens{Input: tokens}}
	}
	dst = adapter.AppendString(append(dst, `],"model":`...), r.Model)
	own, use := a(nil, use, adapter.Delivered{})
	dst = reply.AppendInt(dst, `,"usage":{"prompt_tokens":`, use.Prompt())
	dst = reply.AppendInt(dst, `,"total_tokens":`, use.Total())
	return append(append(append(dst, `},"x_gateway":`...), own...), '}'), use, nil
}

func isVector(v gjson.Result) bool {
	fine := v.IsArray()
	v.ForEach(func(_, n gjson.Result) bool {
		fine = fine && n.Type == gjson.Number && math.Abs(n.Num) <= math.MaxFloat32
		return fine
	})
	return fine
}

// appendPacked appends numbers as base64 of little-endian float32, as OpenAI's callers can ask for.
func appendPacked(dst []byte, values gjson.Result) []byte {
	var bits []byte
	values.ForEach(func(_, v gjson.Result) bool {
		bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(float32(v.Num)))
		return true
	})
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), bits), '"')
}
