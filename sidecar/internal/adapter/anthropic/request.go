package anthropic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// translation is a Messages request in the making.
type translation struct {
	*prompt.Chat
	r           *exchange.Request
	host        *Host
	model       string
	base        string         // the model that decides what can be asked for
	system      []byte         // text blocks, comma separated
	later       []*prompt.Part // of the system's that wait for their place
	turns       adapter.Turns
	format      string // output_config.format, "" for none
	effort      string // output_config.effort, "" for none
	thinking    string // "" to leave it to the model
	thinks      bool   // thinking is on
	temperature string // as written; "" for the default
	topP        string
	stop        []prompt.Text
	tier        string // "" to leave it to the provider
}

// translate turns the caller's body, which is a valid JSON object, into the provider's.
func (h *Host) translate(r *exchange.Request, d *exchange.Deployment) ([]byte, *exchange.Failure) {
	in, f := prompt.Read(r, "Anthropic")
	if f != nil {
		return nil, f
	}
	t := translation{Chat: in, r: r, host: h, model: d.Model, base: d.Base(), turns: adapter.NewTurns(len(r.Body))}
	for _, m := range in.Rest {
		if f := in.Refuse(m); f != nil {
			return nil, f
		}
	}
	if f := t.think(); f != nil {
		return nil, f
	}
	if f := t.sample(h.Version == "" && d.APIVersion >= versionStrict); f != nil {
		return nil, f
	}
	if f := t.answer(); f != nil {
		return nil, f
	}
	for i := range in.Messages {
		if f := t.message(&in.Messages[i]); f != nil {
			return nil, f
		}
	}
	t.placeLater()
	return t.assemble(), nil
}

// sample takes temperature and top_p, which a strict API version does not have, and stop.
func (t *translation) sample(strict bool) *exchange.Failure {
	for _, m := range [...]struct {
		name string
		sent prompt.Number
		to   *string
	}{{"temperature", t.Temperature, &t.temperature}, {"top_p", t.TopP, &t.topP}} {
		// 1 is the default of both and is not sent: models that know the member no more refuse it whatever it says.
		if m.sent.Raw == "" || m.sent.Value == 1 {
			continue
		}
		why := ""
		switch {
		case m.sent.Value > 1:
			why = fmt.Sprintf("Anthropic's %s goes from 0 to 1", m.name)
		case strict:
			why = fmt.Sprintf("Anthropic's API has no %s any more", m.name)
		case t.thinks:
			why = fmt.Sprintf("Anthropic models that think take no %s", m.name)
		default:
			*m.to = m.sent.Raw
			continue
		}
		if f := t.Cannot(m.name, why); f != nil {
			return f
		}
	}
	for i, s := range t.Stop {
		if strings.TrimSpace(s.Str) == "" {
			return t.Cannot(t.StopAt(i), "Anthropic takes no stop sequence that is only white space")
		}
	}
	t.stop = t.Stop
	return nil
}

// answer takes what the answer must be like: its format, the tools it must call, and how it is served.
func (t *translation) answer() *exchange.Failure {
	switch schema := t.Format.Schema; {
	case t.Format.JSON:
		if f := t.Cannot("response_format", "Anthropic has no json_object format: use json_schema"); f != nil {
			return f
		}
	case schema != "" && !knowsFormat(t.base):
		if f := t.Cannot("response_format", "this model cannot be held to a schema"); f != nil {
			return f
		}
	case schema != "":
		t.format = `{"type":"json_schema","schema":` + schema + `}`
	}
	if t.thinks && t.Choice.Forced() {
		if f := t.Cannot("tool_choice", "Anthropic models that think cannot be forced to call a tool"); f != nil {
			return f
		}
		t.Choice = prompt.Choice{}
	}
	switch t.Tier {
	case "":
	case "auto":
		t.tier = "auto"
	case "default":
		t.tier = "standard_only"
	default:
		return t.Cannot("service_tier", "Anthropic has only the service tiers auto and default")
	}
	return nil
}

func (t *translation) assemble() []byte {
	if t.Limit == 0 {
		t.Limit = outputDefault
	}
	turns := t.turns.Close()
	b := make([]byte, 0, len(turns)+len(t.system)+t.ToolsSize()+len(t.format)+512)
	b = t.host.appendVersion(append(b, '{'), "")
	if t.host.namesModel(exchange.Chat) {
		b = append(adapter.AppendString(append(b, `"model":`...), t.model), ',')
	}
	b = strconv.AppendInt(append(b, `"max_tokens":`...), t.Limit, 10)
	if len(t.system) > 0 {
		b = append(append(append(b, `,"system":[`...), t.system...), ']')
	}
	b = append(append(append(b, `,"messages":[`...), turns...), ']')
	b = t.appendTools(b)
	for _, m := range [...]struct{ name, value string }{
		{"temperature", t.temperature}, {"top_p", t.topP}, {"thinking", t.thinking},
	} {
		if m.value != "" {
			b = append(append(append(append(b, `,"`...), m.name...), `":`...), m.value...)
		}
	}
	for i, s := range t.stop {
		if i == 0 {
			b = append(b, `,"stop_sequences":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, s.Raw...)
	}
	if len(t.stop) > 0 {
		b = append(b, ']')
	}
	if t.tier != "" && !t.host.Tierless {
		b = append(b, `,"service_tier":"`+t.tier+`"`...)
	}
	switch {
	case t.format != "" && t.effort != "":
		b = append(b, `,"output_config":{"effort":"`+t.effort+`","format":`+t.format+`}`...)
	case t.format != "":
		b = append(b, `,"output_config":{"format":`+t.format+`}`...)
	case t.effort != "":
		b = append(b, `,"output_config":{"effort":"`+t.effort+`"}`...)
	}
	if t.r.UserSHA256 != "" {
		b = append(adapter.AppendString(append(b, `,"metadata":{"user_id":`...), t.r.UserSHA256), '}')
	}
	if t.r.Stream && !t.host.StreamByPath {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}')
}

// appendTools appends the tools and which of them may be called.
func (t *translation) appendTools(b []byte) []byte {
	if len(t.Tools) == 0 {
		return b
	}
	b = append(b, `,"tools":[`...)
	from := len(b)
	for i := range t.Tools {
		tool := &t.Tools[i]
		b = append(append(adapter.Comma(b, from), `{"name":`...), tool.Name.Raw...)
		if tool.Description.Raw != "" {
			b = append(append(b, `,"description":`...), tool.Description.Raw...)
		}
		b = tool.AppendSchema(append(b, `,"input_schema":`...))
		if tool.Strict {
			b = append(b, `,"strict":true`...)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	mode := [...]string{prompt.Auto: "auto", prompt.Required: "any", prompt.Named: "tool", prompt.None: "none"}[t.Choice.Mode]
	if mode == "" && t.Serial {
		mode = "auto"
	}
	if mode == "" {
		return b
	}
	b = append(append(append(b, `,"tool_choice":{"type":"`...), mode...), '"')
	if mode == "tool" {
		b = adapter.AppendString(append(b, `,"name":`...), t.Choice.Name)
	}
	if t.Serial && mode != "none" {
		b = append(b, `,"disable_parallel_tool_use":true`...)
	}
	return append(b, '}')
}
