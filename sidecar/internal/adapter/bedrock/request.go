package bedrock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// translation is a Converse request in the making.
type translation struct {
	*prompt.Chat
	model     string
	reads     []string // the formats of the thoughts that it takes back
	system    []byte   // blocks, comma separated
	turns     adapter.Turns
	names     map[string]int  // of documents, those that are taken, and the number to try next behind them
	called    []prompt.Text   // functions that the history calls, each once
	known     map[string]bool // those in called
	answered  bool            // the history has calls or results
	inference []byte          // members of inferenceConfig, each with a leading comma
	output    []byte          // members of outputConfig, comma separated
	extra     string          // additionalModelRequestFields, "" for none
	tier      string          // serviceTier, "" to leave it to the provider
}

// translate turns the caller's body, which is a valid JSON object, into the provider's.
func translate(r *exchange.Request, model string) ([]byte, *exchange.Failure) {
	in, f := prompt.Read(r, "Bedrock")
	if f != nil {
		return nil, f
	}
	t := translation{Chat: in, model: model, reads: readable(model), turns: adapter.NewTurns(len(r.Body))}
	for _, m := range in.Rest {
		if f := in.Refuse(m); f != nil {
			return nil, f
		}
	}
	if f := t.sample(); f != nil {
		return nil, f
	}
	if f := t.think(); f != nil {
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
	if f := t.choose(); f != nil {
		return nil, f
	}
	return t.assemble(), nil
}

// sample takes temperature and top_p, which Bedrock takes up to 1, stop and the cap.
func (t *translation) sample() *exchange.Failure {
	for _, m := range [...]struct {
		name, theirs string
		sent         prompt.Number
	}{{"temperature", "temperature", t.Temperature}, {"top_p", "topP", t.TopP}} {
		switch {
		case m.sent.Raw == "":
		case m.sent.Value > 1:
			if f := t.Cannot(m.name, fmt.Sprintf("Bedrock's %s goes from 0 to 1", m.name)); f != nil {
				return f
			}
		default:
			t.inference = append(append(append(append(t.inference, `,"`...), m.theirs...), `":`...), m.sent.Raw...)
		}
	}
	var stop []byte
	for i, s := range t.Stop {
		if s.Str == "" {
			stop = nil
			if f := t.Cannot(t.StopAt(i), "Bedrock takes no empty stop sequence"); f != nil {
				return f
			}
			break
		}
		stop = append(adapter.Comma(stop, 0), s.Raw...)
	}
	if len(stop) > 0 {
		t.inference = append(append(append(t.inference, `,"stopSequences":[`...), stop...), ']')
	}
	if t.Limit > 0 {
		t.inference = strconv.AppendInt(append(t.inference, `,"maxTokens":`...), t.Limit, 10)
	}
	return nil
}

// think says how much to think in the words that the model's family has for it (AWS docs: OpenAI models; Amazon Nova user
// guides: Extended thinking). Bedrock's own word serves all whose family is not known. That Nova wants no cap at its highest
// effort is said in one place there and left out in another: the cap is sent, for it is what is reserved.
func (t *translation) think() *exchange.Failure {
	effort := t.Effort
	switch effort {
	case "", "none":
		return nil // none is what they do unasked
	case "minimal":
		effort = "low" // the least there is
	}
	ofThree := effort
	if ofThree != "low" && ofThree != "medium" {
		ofThree = "high"
	}
	switch {
	case strings.Contains(t.model, "openai.gpt-oss"):
		t.extra = `{"reasoning_effort":"` + ofThree + `"}`
	case isNova(t.model) && ofThree == "high" && t.Temperature.Raw != "":
		return t.Cannot("reasoning_effort", "this model takes no temperature when it thinks as much as it can")
	case isNova(t.model) && ofThree == "high" && t.TopP.Raw != "":
		return t.Cannot("reasoning_effort", "this model takes no top_p when it thinks as much as it can")
	case isNova(t.model):
		t.extra = `{"reasoningConfig":{"type":"enabled","maxReasoningEffort":"` + ofThree + `"}}`
	default:
		t.output = append(adapter.Comma(t.output, 0), `"effort":"`+effort+`"`...)
	}
	return nil
}

// answer takes what the answer must be like, and how it is served. Bedrock wants a schema as text, not as JSON.
func (t *translation) answer() *exchange.Failure {
	if t.Format.JSON {
		if f := t.Cannot("response_format", "Bedrock has no json_object format: use json_schema"); f != nil {
			return f
		}
	}
	if t.Format.Schema != "" {
		b := append(adapter.Comma(t.output, 0), `"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"schema":`...)
		b = adapter.AppendString(b, adapter.Compact(gjson.Parse(t.Format.Schema)))
		if name := t.Format.Name.Raw; name != "" {
			b = append(append(b, `,"name":`...), name...)
		}
		if description := t.Format.Description.Raw; description != "" {
			b = append(append(b, `,"description":`...), description...)
		}
		t.output = append(b, `}}}`...)
	}
	switch t.Tier {
	case "default", "flex", "priority":
		t.tier = t.Tier
	case "scale":
		return t.Cannot("service_tier", "Bedrock has the service tiers auto, default, flex and priority")
	}
	return nil
}

func (t *translation) assemble() []byte {
	turns := t.turns.Close()
	b := make([]byte, 0, len(turns)+len(t.system)+t.ToolsSize()+len(t.output)+512)
	b = append(append(append(b, `{"messages":[`...), turns...), ']')
	if len(t.system) > 0 {
		b = append(append(append(b, `,"system":[`...), t.system...), ']')
	}
	if len(t.inference) > 0 {
		b = append(append(append(b, `,"inferenceConfig":{`...), t.inference[1:]...), '}')
	}
	b = t.appendTools(b)
	if len(t.output) > 0 {
		b = append(append(append(b, `,"outputConfig":{`...), t.output...), '}')
	}
	if t.extra != "" {
		b = append(append(b, `,"additionalModelRequestFields":`...), t.extra...)
	}
	if t.tier != "" {
		b = append(b, `,"serviceTier":{"type":"`+t.tier+`"}`...)
	}
	return append(b, '}')
}
