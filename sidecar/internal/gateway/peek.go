package gateway

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/tidwall/gjson"
)

const (
	// imageTokens is what an image is taken for: about a 1,200 x 900 picture by Anthropic's width x height / 750, and
	// above OpenAI's 85 + 8 tiles x 170.
	imageTokens = 1_500
	// choicesMax is OpenAI's bound on n.
	choicesMax = 128
	// outputMax bounds a cap on output tokens: above any model's window, below any overflow.
	outputMax = 10_000_000
)

// badField is a fault of the caller's body, with the member at fault.
type badField struct{ param, message string }

// peek reads from the caller's body what the sidecar must know. It accepts members it does not know: the provider
// judges them. The body is valid JSON when peek returns nil.
func peek(r *exchange.Request) *badField {
	sent := r.Body
	if r.Dialect != exchange.ChatDialect {
		sent = r.Native
	}
	if !adapter.Valid(sent) {
		return &badField{"", "the body is not valid JSON, or is nested too deeply"}
	}
	body := gjson.ParseBytes(sent)
	if !body.IsObject() {
		return &badField{"", "the body must be a JSON object"}
	}
	r.Choices = 1
	var bad *badField
	var safety, user, annotated string
	seen := map[string]string{} // as it was written, by its name
	body.ForEach(func(k, v gjson.Result) bool {
		// Two readers could disagree on which member counts, and the limits would be checked for the wrong one.
		name := folded(k.Str)
		before, twice := seen[name]
		switch {
		case twice && before == k.Str:
			bad = &badField{k.Str, fmt.Sprintf("the member %q appears twice", k.Str)}
			return false
		case twice:
			bad = &badField{k.Str, fmt.Sprintf("%q and %q are one member to some providers: send it once", before, k.Str)}
			return false
		case name != k.Str && decisive[name]:
			bad = &badField{k.Str, fmt.Sprintf("the member %q must be written %q: some providers take one for the other", k.Str, name)}
			return false
		}
		seen[name] = k.Str
		switch k.Str {
		case "safety_identifier":
			safety = v.Str
		case "user":
			user = v.Str
		case "metadata":
			annotated = cmp.Or(v.Get("user_id").Str, v.Get("user").Str)
		}
		bad = peekMember(r, k.Str, v)
		return bad == nil
	})
	if bad != nil {
		return bad
	}
	if r.UserSHA256 == "" {
		r.UserSHA256 = hashUser(cmp.Or(safety, user, annotated))
	}
	if r.Model == "" {
		return &badField{"model", "model is required: the name of an alias"}
	}
	has := func(name string) bool { _, ok := seen[name]; return ok }
	switch {
	case r.Dialect == exchange.ResponsesDialect: // a stored prompt needs no input
	case r.Operation != exchange.Embeddings && !has("messages"):
		return &badField{"messages", "messages is required"}
	case r.Dialect == exchange.MessagesDialect && r.Operation == exchange.Chat && !has("max_tokens"):
		return &badField{"max_tokens", "max_tokens is required"}
	case r.Operation == exchange.Embeddings && !has("input"):
		return &badField{"input", "input is required"}
	}
	return nil
}

// decisive are the members that limits depend on.
var decisive = map[string]bool{
	"model": true, "messages": true, "stream": true, "stream_options": true, "max_tokens": true,
	"max_completion_tokens": true, "n": true, "tools": true, "functions": true, "input": true,
	"max_output_tokens": true, "background": true, "service_tier": true, "modalities": true, "web_search_options": true,
	"speed": true, "inference_geo": true, "previous_response_id": true, "conversation": true,
}

// folded is a name as servers see it that do not tell capitals apart, such as those in Go. A long s is an s to them.
func folded(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "\u017f", "s")
}

func peekMember(r *exchange.Request, name string, v gjson.Result) *badField {
	switch name {
	case "model":
		if v.Type != gjson.String {
			return &badField{name, "model must be a string"}
		}
		r.Model = v.Str
	case "metadata":
		if f := v.Get("feature"); f.Type == gjson.String && r.Feature == "" {
			r.Feature = f.Str
		}
	}
	peekPrice(r, name, v)
	switch {
	case r.Operation == exchange.Embeddings:
		return peekEmbedding(r, name, v)
	case r.Dialect == exchange.MessagesDialect:
		return peekClaude(r, name, v)
	case r.Dialect == exchange.ResponsesDialect:
		return peekResponses(r, name, v)
	}
	return peekChat(r, name, v)
}

func peekChat(r *exchange.Request, name string, v gjson.Result) *badField {
	switch name {
	case "messages":
		return peekMessages(r, v)
	case "stream":
		return peekStream(r, name, v)
	case "stream_options":
		r.IncludeUsage = v.Get("include_usage").Bool()
	case "max_tokens", "max_completion_tokens":
		n, bad := count(name, v, 1, outputMax)
		if bad != nil {
			return bad
		}
		if n > 0 && (r.MaxOutput == 0 || n < r.MaxOutput) {
			r.MaxOutput = n
		}
	case "reasoning_effort":
		r.Thinking = adapter.ThinkingTokens(v.Str)
	case "n":
		n, bad := count(name, v, 1, choicesMax)
		if bad != nil {
			return bad
		}
		r.Choices = max(n, 1)
	case "tools":
		r.Tools = v.IsArray() && len(v.Raw) > 2
		r.InputBytes += int64(len(v.Raw))
	case "functions":
		r.Tools = true
		r.InputBytes += int64(len(v.Raw))
	case "response_format":
		r.JSONSchema = v.Get("type").Str == "json_schema"
		r.InputBytes += int64(len(v.Raw))
	}
	return nil
}

func peekStream(r *exchange.Request, name string, v gjson.Result) *badField {
	if v.Type != gjson.True && v.Type != gjson.False && v.Type != gjson.Null {
		return &badField{name, "stream must be true or false"}
	}
	r.Stream = v.Bool() && r.Operation == exchange.Chat // a count comes whole, whatever a copied body says
	return nil
}

// count reads a whole number between least and most; null and 0 results mean absent.
func count(name string, v gjson.Result, least, most int64) (int64, *badField) {
	if v.Type == gjson.Null {
		return 0, nil
	}
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	if v.Type != gjson.Number || err != nil || n < least || n > most {
		return 0, &badField{name, fmt.Sprintf("%s must be a whole number from %d to %d", name, least, most)}
	}
	return n, nil
}

func peekMessages(r *exchange.Request, v gjson.Result) *badField {
	if !v.IsArray() {
		return &badField{"messages", "messages must be an array"}
	}
	var bad *badField
	i := 0
	v.ForEach(func(_, m gjson.Result) bool {
		if !m.IsObject() {
			bad = &badField{fmt.Sprintf("messages[%d]", i), "a message must be an object"}
			return false
		}
		peekMessage(r, m)
		i++
		return true
	})
	if bad == nil && i == 0 {
		bad = &badField{"messages", "messages must not be empty"}
	}
	r.Messages = int64(i)
	return bad
}

// peekMessage measures a message. Whatever is not known to be priced otherwise is counted as text by its raw size.
func peekMessage(r *exchange.Request, m gjson.Result) {
	m.ForEach(func(k, v gjson.Result) bool {
		if k.Str == "images" && v.IsArray() { // that a model drew earlier
			r.Vision = true
			r.InputExtra += int64(len(v.Array())) * imageTokens
			return true
		}
		if k.Str != "content" || !v.IsArray() {
			r.InputBytes += int64(len(v.Raw))
			return true
		}
		if r.Dialect == exchange.MessagesDialect {
			peekBlocks(r, v)
			return true
		}
		v.ForEach(func(_, part gjson.Result) bool {
			switch part.Get("type").Str {
			case "file":
				peekFile(r, part.Get("file.file_data").Str)
			case "image_url":
				r.Vision = true
				r.InputExtra += imageTokens
			case "input_audio":
				r.Audio = true
				r.InputBytes += int64(len(part.Raw))
			default:
				r.InputBytes += int64(len(part.Raw))
			}
			return true
		})
		return true
	})
}

func peekEmbedding(r *exchange.Request, name string, v gjson.Result) *badField {
	if name != "input" {
		return nil
	}
	switch {
	case v.Type == gjson.String:
		r.InputBytes, r.Messages = int64(len(v.Raw)), 1
	case v.IsArray():
		v.ForEach(func(_, e gjson.Result) bool {
			switch {
			case e.Type == gjson.String:
				r.InputBytes += int64(len(e.Raw))
			case e.IsArray():
				e.ForEach(func(_, _ gjson.Result) bool { r.InputExtra++; return true })
			default:
				r.InputExtra++
			}
			return true
		})
	default:
		return &badField{name, "input must be a string or an array"}
	}
	return nil
}
