package anthropic

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Native serves callers of the Messages API with a provider that speaks it: what they send goes out as it is, and what
// comes back too. Only the model's name is changed, both ways, and x_gateway is added to the end of an answer.
type Native struct{ host *Host }

var _ interface {
	adapter.Adapter
	adapter.Replayer
} = (*Native)(nil)

// Request implements adapter.Adapter. r.Native is a valid JSON object with no member twice.
func (n *Native) Request(r *exchange.Request, d *exchange.Deployment, secret []byte) (adapter.Call, *exchange.Failure) {
	path := n.host.path(r, d)
	if path == "" {
		return adapter.Call{}, adapter.Unsupported("model", "the provider does not count tokens")
	}
	if r.Query != "" && n.host.Path == nil { // other hosts know no ?beta=true, and their own clients leave it out
		path += "?" + r.Query
	}
	betas := n.host.betas(r.Betas)
	// The caller's body is written for the version that the caller names.
	return n.host.call(path, cmp.Or(r.APIVersion, d.APIVersion, version), betas, n.body(r, d, betas), secret), nil
}

// body is the caller's, byte for byte where the host is Anthropic.
func (n *Native) body(r *exchange.Request, d *exchange.Deployment, betas string) []byte {
	doc := gjson.ParseBytes(r.Native)
	foreign := bytes.Contains(r.Native, []byte(`"`+adapter.ForeignMark)) || bytes.Contains(r.Native, []byte(adapter.SignatureMark))
	if n.host.Version == "" && !foreign {
		return renamed(r.Native, doc.Get("model"), d.Model)
	}
	b := n.host.appendVersion(append(make([]byte, 0, len(r.Native)+256), '{'), betas)
	doc.ForEach(func(k, v gjson.Result) bool {
		value := v.Raw
		switch {
		case k.Str == "model" && !n.host.namesModel(r.Operation), k.Str == "stream" && n.host.StreamByPath:
			return true
		case k.Str == "model":
			value = string(adapter.AppendString(nil, d.Model))
		case k.Str == "messages" && foreign:
			value = withoutForeign(v)
		}
		b = append(append(append(append(b, k.Raw...), ':'), value...), ',')
		return true
	})
	return append(bytes.TrimSuffix(b, []byte(",")), '}')
}

// withoutForeign is the messages without the thinking of other vendors' models, which the gateway itself put into
// blocks for the caller: Claude would refuse their signatures. Those in the ids of calls go too.
func withoutForeign(messages gjson.Result) string {
	var list []string
	for _, m := range messages.Array() {
		content := m.Get("content")
		if !content.IsArray() || !strings.Contains(content.Raw, `"`+adapter.ForeignMark) && !strings.Contains(content.Raw, adapter.SignatureMark) {
			list = append(list, m.Raw)
			continue
		}
		var blocks []string
		for _, b := range content.Array() {
			if !isForeign(b) {
				blocks = append(blocks, unsigned(b))
			}
		}
		if len(blocks) == 0 {
			continue // there was nothing else in it
		}
		at := content.Index - m.Index
		list = append(list, m.Raw[:at]+"["+strings.Join(blocks, ",")+"]"+m.Raw[at+len(content.Raw):])
	}
	return "[" + strings.Join(list, ",") + "]"
}

// unsigned is a block without the signature in the id of the call that it makes or answers.
func unsigned(b gjson.Result) string {
	var id gjson.Result
	switch b.Get("type").Str {
	case "tool_use":
		id = b.Get("id")
	case "tool_result":
		id = b.Get("tool_use_id")
	}
	if !strings.Contains(id.Str, adapter.SignatureMark) {
		return b.Raw
	}
	at := id.Index - b.Index
	return b.Raw[:at] + string(adapter.AppendString(nil, adapter.FitCallID(id.Str))) + b.Raw[at+len(id.Raw):]
}

func isForeign(b gjson.Result) bool {
	switch b.Get("type").Str {
	case "thinking":
		return strings.HasPrefix(b.Get("signature").Str, adapter.ForeignMark)
	case "redacted_thinking":
		return strings.HasPrefix(b.Get("data").Str, adapter.ForeignMark)
	}
	return false
}

// renamed is doc with another string in the place of v, which is part of it. Without v it is doc.
func renamed(doc []byte, v gjson.Result, name string) []byte {
	if v.Type != gjson.String || v.Index == 0 {
		return doc
	}
	b := make([]byte, 0, len(doc)+len(name))
	b = adapter.AppendString(append(b, doc[:v.Index]...), name)
	return append(b, doc[v.Index+len(v.Raw):]...)
}

// Response implements adapter.Adapter.
func (n *Native) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	use := exchange.Usage{Source: exchange.FromEstimate}
	m, f := reply.Object(body)
	if f != nil {
		return nil, use, f
	}
	if detail := m.Get("error"); detail.Type != gjson.Null || m.Get("type").Str == "error" {
		return nil, use, reported(detail)
	}
	content := m.Get("content")
	var c counts
	switch {
	case r.Operation == exchange.CountTokens:
		if m.Get("input_tokens").Type != gjson.Number {
			return nil, use, adapter.InvalidAnswer("the provider's answer has no input_tokens")
		}
		use.Source = exchange.FromProvider // nothing was used
	case !content.IsArray():
		return nil, use, adapter.InvalidAnswer("the provider's answer has no content")
	default:
		if c.update(m.Get("usage")); c.hasOutput {
			use = c.usage()
		}
	}
	own, use := a(nil, use, adapter.Delivered{Bytes: int64(len(content.Raw))})
	return annotated(renamed(bytes.TrimSpace(body), m.Get("model"), r.Model), own), use, nil
}

// annotated is a JSON object with the member x_gateway at its end.
func annotated(object, own []byte) []byte {
	object = bytes.TrimRight(object, " \t\r\n")
	head := bytes.TrimRight(object[:len(object)-1], " \t\r\n")
	b := append(make([]byte, 0, len(object)+len(own)+16), head...)
	if head[len(head)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, `"x_gateway":`...), own...), '}')
}

// Stream implements adapter.Adapter.
func (n *Native) Stream(r *exchange.Request, a adapter.Annotate) adapter.Stream {
	return n.host.unwrap(newNativeStream(r, a))
}

// Failure implements adapter.Adapter. The member at fault is named as the caller named it.
func (n *Native) Failure(status int, h adapter.Header, body []byte) *exchange.Failure {
	f := n.host.classify(status, h, body)
	if f.Param != "" {
		if path, _, ok := strings.Cut(f.Message, ":"); ok && !strings.ContainsAny(path, " `") {
			f.Param = path
		}
	}
	return f
}
