package openai

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// The names of the cap on output tokens.
const (
	oldCap = "max_tokens"
	newCap = "max_completion_tokens"
)

// request is the caller's body on its way to a deployment.
type request struct {
	r     *exchange.Request
	d     *exchange.Deployment
	w     *ways
	body  span
	edits edits
	limit *limit

	model, options span // the caller's members, if any
	kept           bool // a member so far stays
}

// outgoing is the caller's body, the object v, as the deployment gets it.
func outgoing(r *exchange.Request, d *exchange.Deployment, v span) ([]byte, *exchange.Failure) {
	q := request{r: r, d: d, w: waysOf(d), body: v}
	q.limit = newLimit(r, q.w.limit)
	for c := enter(r.Body, v); c.next(); {
		keep, f := q.member(&c)
		if f != nil {
			return nil, f
		}
		if !keep {
			q.edits.drop(&c, q.kept)
		}
		q.kept = q.kept || keep
	}
	if !q.model.is() {
		q.insert(`"model":`, string(quote(d.Model)))
	}
	if r.Operation == exchange.Chat {
		if r.Stream && !q.options.is() && !q.w.mute {
			q.insert(`"stream_options":{"include_usage":true}`)
		}
		if q.limit.value != "" && !q.limit.stands {
			q.insert(`"`, q.limit.name, `":`, q.limit.value)
		}
	}
	return q.edits.apply(make([]byte, 0, len(r.Body)+len(q.edits.text)), r.Body, v), nil
}

func (q *request) insert(parts ...string) {
	if q.kept {
		q.edits.back(q.body, ",")
	}
	q.kept = true
	q.edits.back(q.body, parts...)
}

// member mends the member in hand; keep is false when it goes.
func (q *request) member(c *cursor) (keep bool, f *exchange.Failure) {
	name := string(c.name())
	if name == "model" {
		q.model = c.value
		q.edits.put(c.value, func(dst []byte) []byte { return append(dst, quote(q.d.Model)...) })
		return true, nil
	}
	if slices.Contains(q.w.forgets, name) {
		return false, nil
	}
	if to, ok := q.w.names[name]; ok {
		if find(q.r.Body, q.body, to).is() {
			return false, &exchange.Failure{
				Kind: exchange.FailRequest, Param: name, Message: fmt.Sprintf("%s and %s are one, and both are there", name, to),
			}
		}
		q.edits.set(c.key, to)
		return true, nil
	}
	if q.r.Operation != exchange.Chat {
		return true, nil
	}
	switch name {
	case "stream_options":
		if !q.r.Stream || q.w.mute { // OpenAI refuses it without stream
			return false, nil
		}
		q.options = c.value
		askUsage(&q.edits, q.r.Body, c.value)
		return true, nil
	case oldCap, newCap:
		return q.limit.take(&q.edits, q.r.Body, c), nil
	case "messages":
		q.roles(c.value)
		return true, q.messages(c.value)
	case "tools":
		if q.w.plain {
			return q.functions(c.value)
		}
	}
	if q.cannot(name, c.value) {
		if adapter.Harmless(name, gjson.ParseBytes(q.r.Body[c.value.from:c.value.to])) || adapter.MayDrop(q.r.AllowDropped, name) {
			return false, nil
		}
		return false, refuse(name)
	}
	if name == "stop" && q.w.stops && isText(q.r.Body, c.value) {
		q.edits.set(span{c.value.from, c.value.from}, "[")
		q.edits.set(span{c.value.to, c.value.to}, "]")
	}
	return true, nil
}

// functions refuses tools that are none, or drops them where it may: not all servers that know only functions refuse
// others. keep is false when none is left.
func (q *request) functions(tools span) (keep bool, f *exchange.Failure) {
	made, i, left := len(q.edits.list), 0, 0
	for c := enter(q.r.Body, tools); c.next(); i++ {
		switch kind := text(q.r.Body, find(q.r.Body, c.value, "type")); {
		case kind == "", kind == "function":
			left++
		case slices.Contains(q.r.AllowDropped, "tools"):
			q.edits.drop(&c, left > 0)
		default:
			return true, refuse(fmt.Sprintf("tools[%d].type", i))
		}
	}
	if left == 0 && i > 0 {
		q.edits.list = q.edits.list[:made]
		return false, nil
	}
	return true, nil
}

func refuse(param string) *exchange.Failure {
	return adapter.Unsupported(param, "this deployment cannot honour "+adapter.Printable(param))
}

// cannot reports whether the deployment cannot honour a member.
func (q *request) cannot(name string, v span) bool {
	if name == "response_format" {
		return q.w.schema && text(q.r.Body, find(q.r.Body, v, "type")) == "json_schema"
	}
	effort := ""
	if len(q.w.models) > 0 && slices.Contains(sampling, name) {
		effort = text(q.r.Body, find(q.r.Body, q.body, "reasoning_effort"))
	}
	return q.w.cannot(name, q.d.Base(), effort)
}

// askUsage makes stream_options ask for usage: always, and hidden later from a caller that did not ask.
func askUsage(e *edits, doc []byte, v span) {
	if !isObject(doc, v) {
		e.set(v, `{"include_usage":true}`)
		return
	}
	asked, filled := false, false
	for c := enter(doc, v); c.next(); filled = true {
		if string(c.name()) == "include_usage" {
			asked = true
			if doc[c.value.from] != 't' {
				e.set(c.value, "true")
			}
		}
	}
	switch {
	case asked:
	case filled:
		e.back(v, `,"include_usage":true`)
	default:
		e.set(v, `{"include_usage":true}`)
	}
}

// limit is the one cap on output tokens that the provider is told: by the name it knows, and with the value that was
// reserved. A caller may have sent both names; a server that reads the other one must not go beyond.
type limit struct {
	name   string
	value  string // "" for none
	stands bool   // the body has it
}

func newLimit(r *exchange.Request, name string) *limit {
	l := &limit{name: name}
	if n := max(r.MaxOutput, 0); n > 0 || r.DefaultOutput > 0 {
		if n == 0 {
			n = r.DefaultOutput
		}
		l.value = strconv.FormatInt(n, 10)
	}
	return l
}

// take mends the cap in hand; false drops it, since another one says it.
func (l *limit) take(e *edits, doc []byte, c *cursor) bool {
	if l.stands {
		return false
	}
	if l.value == "" {
		return true // null, and there is no default
	}
	l.stands = true
	if string(c.name()) != l.name {
		e.set(c.key, l.name)
	}
	if string(doc[c.value.from:c.value.to]) != l.value {
		e.set(c.value, l.value)
	}
	return true
}
