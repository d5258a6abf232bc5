package openai

import (
	"bytes"
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Response implements adapter.Adapter.
func (*Adapter) Response(r *exchange.Request, body []byte, a adapter.Annotate) ([]byte, exchange.Usage, *exchange.Failure) {
	none := exchange.Usage{Source: exchange.FromEstimate}
	if !adapter.Valid(body) {
		f := invalid("the provider's answer is not JSON")
		f.Type, f.Code = "upstream_invalid_response", "invalid_content_type"
		return nil, none, f
	}
	body = fromOllama(body, r, false)
	v := whole(body)
	doc := gjson.ParseBytes(body)
	if f := inBand(doc); f != nil {
		return nil, none, f
	}
	if !isObject(body, v) {
		return nil, none, invalid("the provider's answer is not a JSON object")
	}
	usage := usageOf(doc, r)
	m := &mender{}
	m.begin(body)
	var f *exchange.Failure
	if r.Operation == exchange.Embeddings {
		f = m.vectors(find(body, v, "data"), gjson.GetBytes(r.Body, "encoding_format").Str == "base64")
	} else {
		f = m.choices(find(body, v, "choices"), cmp.Or(text(body, find(body, v, "id")), r.ID))
	}
	if f != nil {
		return nil, usage, f
	}
	own, usage := a(nil, usage, adapter.Delivered{Bytes: m.delivered})
	m.close(v, r, usage, own)
	return m.edits.apply(make([]byte, 0, len(body)+len(m.edits.text)), body, v), usage, nil
}

// choices mends the choices of a complete answer.
func (m *mender) choices(v span, answer string) *exchange.Failure {
	c := enter(m.data, v)
	if !isArray(m.data, v) || !c.next() {
		return invalid("the provider's answer has no choices")
	}
	for at, more := 0, true; more; at, more = at+1, c.next() {
		message, finish := find(m.data, c.value, "message"), find(m.data, c.value, "finish_reason")
		if reason := text(m.data, finish); broken(reason) {
			return brokeOff(reason)
		}
		if enterable(m.data, message) {
			m.orText(message, find(m.data, message, "role"), "role", "assistant")
			if _, f := m.speech(message, place{answer: answer, index: at}); f != nil {
				return f
			}
		}
		if finish.is() {
			m.finish(c.value, finish, enterable(m.data, find(m.data, message, "tool_calls")))
		}
	}
	return nil
}

// enterable says that an array or object has something inside.
func enterable(doc []byte, v span) bool {
	c := enter(doc, v)
	return c.next()
}

// close mends the members of a complete answer that say whose it is and what it used.
func (m *mender) close(v span, r *exchange.Request, u exchange.Usage, own []byte) {
	var model, usage bool
	kept := false
	for c := enter(m.data, v); c.next(); {
		keep := true
		switch string(c.name()) {
		case "model":
			model = true
			m.edits.set(c.value, string(quote(r.Model)))
		case "usage":
			usage = true
			if mended := mendUsage(m.raw(c.value), u, r.Operation); !bytes.Equal(mended, m.raw(c.value)) {
				m.edits.set(c.value, string(mended))
			}
		case "error", "x_gateway": // no error, or clients would take its presence for one; a gateway behind this one
			keep = false
		}
		if !keep {
			m.edits.drop(&c, kept)
		}
		kept = kept || keep
	}
	if !model {
		m.edits.back(v, `,"model":`, string(quote(r.Model)))
	}
	if !usage {
		raw := []byte("null")
		if x := find(m.data, find(m.data, v, "x_groq"), "usage"); x.is() {
			raw = m.raw(x)
		}
		m.edits.back(v, `,"usage":`, string(mendUsage(raw, u, r.Operation)))
	}
	m.edits.back(v, `,"x_gateway":`, string(own))
}
