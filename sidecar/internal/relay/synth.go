package relay

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// replay is the stream made of a complete chat completion, for a server that ignored that a stream was asked for. It
// has no events; all comes at its end.
type replay struct {
	body      gjson.Result // a chat completion in the caller's dialect
	usage     exchange.Usage
	wantUsage bool
	delivered int64
}

func newReplay(body []byte, usage exchange.Usage, wantUsage bool) *replay {
	// On one line, since not every client reads events of several data lines.
	return &replay{body: gjson.GetBytes(body, "@ugly"), usage: usage, wantUsage: wantUsage}
}

func (p *replay) Event(dst, _, _ []byte) ([]byte, adapter.Progress) { return dst, adapter.Progress{} }

func (p *replay) Abort(dst []byte, _ *exchange.Failure) []byte { return dst }

func (p *replay) Usage() exchange.Usage { return p.usage }

func (p *replay) Delivered() adapter.Delivered { return adapter.Delivered{Bytes: p.delivered} }

// End appends the whole stream: per choice a chunk with the message, one with its tool calls and one with the finish
// reason, then the usage chunk if it is wanted, and [DONE].
func (p *replay) End(dst []byte) ([]byte, *exchange.Failure) {
	var chunk []byte
	base := p.base()
	emit := func(rest ...string) {
		chunk = append(chunk[:0], base...)
		for _, s := range rest {
			chunk = append(chunk, s...)
		}
		dst = sse.AppendData(dst, append(chunk, '}'))
	}
	none := "" // as servers say it on every other chunk when usage is asked for
	if p.wantUsage {
		none = `,"usage":null`
	}
	for i, choice := range p.body.Get("choices").Array() {
		index := strconv.Itoa(i)
		if v := choice.Get("index"); v.Type == gjson.Number {
			index = strconv.FormatInt(v.Int(), 10)
		}
		head := `,"choices":[{"index":` + index + `,"delta":`
		message := choice.Get("message")
		logprobs := ""
		if v := choice.Get("logprobs"); v.IsObject() {
			logprobs = `,"logprobs":` + v.Raw
		}
		emit(head, p.delta(message), logprobs, `,"finish_reason":null}]`, none)
		if calls := p.toolCalls(message); calls != "" {
			emit(head, `{"tool_calls":[`, calls, `]},"finish_reason":null}]`, none)
		}
		reason := `"stop"`
		if v := choice.Get("finish_reason"); v.Type == gjson.String {
			reason = v.Raw
		}
		emit(head, `{},"finish_reason":`, reason, `}]`, none)
	}
	if usage := p.body.Get("usage"); p.wantUsage && usage.IsObject() {
		own := ""
		if v := p.body.Get("x_gateway"); v.IsObject() {
			own = `,"x_gateway":` + v.Raw
		}
		emit(`,"choices":[],"usage":`, usage.Raw, own)
	}
	return append(dst, sse.Done...), nil
}

// base is the start of every chunk, without its closing brace.
func (p *replay) base() string {
	base := `{"object":"chat.completion.chunk"`
	for _, name := range [...]string{"id", "created", "model", "service_tier", "system_fingerprint"} {
		if v := p.body.Get(name); v.Exists() && v.Type != gjson.Null {
			base += `,"` + name + `":` + v.Raw
		}
	}
	return base
}

// delta is the message but for its tool calls: role first, whatever else it has as it is, nulls left out.
func (p *replay) delta(message gjson.Result) string {
	delta := `{"role":"assistant"`
	message.ForEach(func(name, v gjson.Result) bool {
		switch name.Str {
		case "role", "tool_calls":
			return true
		case "content", "reasoning", "reasoning_content", "refusal":
			p.delivered += int64(len(v.Str))
		}
		if v.Type != gjson.Null {
			delta += "," + name.Raw + ":" + v.Raw
		}
		return true
	})
	return delta + "}"
}

// toolCalls are the message's tool calls with the index that a stream wants.
func (p *replay) toolCalls(message gjson.Result) string {
	calls := ""
	for i, call := range message.Get("tool_calls").Array() {
		if !call.IsObject() {
			continue
		}
		p.delivered += int64(len(call.Get("function.arguments").Str))
		if calls != "" {
			calls += ","
		}
		calls += `{"index":` + strconv.Itoa(i)
		call.ForEach(func(name, v gjson.Result) bool {
			if name.Str != "index" {
				calls += "," + name.Raw + ":" + v.Raw
			}
			return true
		})
		calls += "}"
	}
	return calls
}
