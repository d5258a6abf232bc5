package gemini

import (
	"math"
	"strconv"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// translation is a request for generateContent in the making.
type translation struct {
	*prompt.Chat
	vertex  bool
	how     mind
	swift   bool  // a Flash model
	draws   bool  // it can answer with images
	choices int64 // to be made
	system  []byte
	turns   turns
	shown   []byte // parts: images of results that are still to be shown
	config  []byte // members of generationConfig, each with a leading comma
	params  []byte // further members of the request, each with a leading comma
	header  []adapter.Field
}

// translate turns the caller's body, which is a valid JSON object, into the provider's. header is what the request says in
// its head besides.
func translate(r *exchange.Request, model string, vertex bool) (body []byte, header []adapter.Field, f *exchange.Failure) {
	in, f := prompt.Read(r, "Gemini")
	if f != nil {
		return nil, nil, f
	}
	t := translation{Chat: in, vertex: vertex, how: mindOf(model), swift: isSwift(model), draws: draws(model), choices: r.Choices}
	t.turns.init(t.how == mindLevel, vertex, len(r.Body))
	if f := t.sample(); f != nil {
		return nil, nil, f
	}
	if f := t.think(); f != nil {
		return nil, nil, f
	}
	if f := t.answer(); f != nil {
		return nil, nil, f
	}
	for i := range in.Messages {
		if f := t.message(&in.Messages[i]); f != nil {
			return nil, nil, f
		}
	}
	t.show()
	return t.assemble(), t.header, nil
}

// sample takes what steers the choice of tokens, and what is told of it.
func (t *translation) sample() *exchange.Failure {
	t.pass("temperature", t.Temperature.Raw)
	t.pass("topP", t.TopP.Raw)
	told, most := false, "" // logprobs
	for _, m := range t.Rest {
		var f *exchange.Failure
		switch v := m.Value; m.Name {
		case "frequency_penalty":
			t.set("frequencyPenalty", v.Raw)
		case "presence_penalty":
			t.set("presencePenalty", v.Raw)
		case "top_k":
			t.set("topK", v.Raw)
		case "modalities":
			f = t.modalities(v)
		case "seed":
			if n := v.Int(); n < math.MinInt32 || n > math.MaxInt32 {
				f = t.Cannot("seed", "Gemini takes only seeds of 32 bits")
				break
			}
			t.set("seed", v.Raw)
		case "n":
			if t.choices > 1 {
				t.set("candidateCount", strconv.FormatInt(t.choices, 10))
			}
		case "logprobs":
			told = v.Bool()
		case "top_logprobs":
			most = v.Raw
		default:
			f = t.Refuse(m)
		}
		if f != nil {
			return f
		}
	}
	if f := t.stop(); f != nil {
		return f
	}
	if told {
		t.set("responseLogprobs", "true")
	}
	if most != "0" {
		t.pass("logprobs", most)
	}
	return nil
}

func (t *translation) stop() *exchange.Failure {
	var b []byte
	for i, s := range t.Stop {
		if s.Str == "" {
			return t.Cannot(t.StopAt(i), "Gemini takes no empty stop sequence")
		}
		b = append(adapter.Comma(b, 0), s.Raw...)
	}
	if len(b) > 0 {
		t.set("stopSequences", "["+string(b)+"]")
	}
	return nil
}

// answer takes what the answer must be like, and how it is served: the Gemini API is told the tier in the body, Vertex AI in
// the head (Google Cloud docs: Priority PayGo, Flex PayGo). What was rented there before is used up first.
func (t *translation) answer() *exchange.Failure {
	if t.Format.JSON || t.Format.Schema != "" {
		t.set("responseMimeType", `"application/json"`)
	}
	t.pass("responseJsonSchema", t.Format.Schema)
	if t.Serial && t.Choice.Mode != prompt.None {
		if f := t.Cannot("parallel_tool_calls", "Gemini models cannot be kept to one call at a time"); f != nil {
			return f
		}
	}
	switch tier := t.Tier; {
	case tier == "scale":
		return t.Cannot("service_tier", "Gemini has only the service tiers auto, default, flex and priority")
	case tier == "", tier == "auto", tier == "default" && t.vertex:
	case tier == "default":
		t.params = append(t.params, `,"serviceTier":"standard"`...)
	case t.vertex: // in the head (Google Cloud docs: Priority PayGo, Flex PayGo); what was rented there is used up first
		t.header = append(t.header, adapter.Field{Name: "x-vertex-ai-llm-shared-request-type", Value: tier})
	default:
		t.params = append(t.params, `,"serviceTier":"`+tier+`"`...)
	}
	return nil
}

// set adds a member to generationConfig.
func (t *translation) set(name, value string) {
	t.config = append(append(append(append(t.config, `,"`...), name...), `":`...), value...)
}

// pass adds a member, nothing for one that was not sent.
func (t *translation) pass(name, raw string) {
	if raw != "" {
		t.set(name, raw)
	}
}

func (t *translation) assemble() []byte {
	if t.Limit > 0 {
		t.set("maxOutputTokens", strconv.FormatInt(t.Limit, 10))
	}
	contents := t.turns.close()
	b := make([]byte, 0, len(contents)+len(t.system)+len(t.config)+len(t.params)+t.ToolsSize()+256)
	b = append(append(append(b, `{"contents":[`...), contents...), ']')
	if len(t.system) > 0 {
		b = append(append(append(b, `,"systemInstruction":{"parts":[`...), t.system...), "]}"...)
	}
	b = t.appendTools(b)
	if len(t.config) > 0 {
		b = append(append(append(b, `,"generationConfig":{`...), t.config[1:]...), '}')
	}
	return append(append(b, t.params...), '}')
}

// appendTools appends the tools and which of them may be called. A list of allowed names goes only with a demand for a
// call: those that are not allowed are left out instead.
func (t *translation) appendTools(b []byte) []byte {
	if len(t.Tools) == 0 {
		return b
	}
	b = append(b, `,"tools":[{"functionDeclarations":[`...)
	from, strict := len(b), false
	for i := range t.Tools {
		tool := &t.Tools[i]
		b = append(append(adapter.Comma(b, from), `{"name":`...), tool.Name.Raw...)
		if tool.Description.Raw != "" {
			b = append(append(b, `,"description":`...), tool.Description.Raw...)
		}
		if tool.Parameters != "" { // an empty one is not a schema to the provider
			b = append(append(b, `,"parametersJsonSchema":`...), tool.Parameters...)
		}
		b = append(b, '}')
		strict = strict || tool.Strict
	}
	b = append(b, "]}]"...)
	mode := [...]string{prompt.Auto: "AUTO", prompt.Required: "ANY", prompt.Named: "ANY", prompt.None: "NONE"}[t.Choice.Mode]
	if strict && (mode == "" || mode == "AUTO") {
		mode = "VALIDATED" // AUTO, and arguments fit their schema
	}
	if mode == "" {
		return b
	}
	b = append(append(append(b, `,"toolConfig":{"functionCallingConfig":{"mode":"`...), mode...), '"')
	if t.Choice.Mode == prompt.Named {
		b = append(adapter.AppendString(append(b, `,"allowedFunctionNames":[`...), t.Choice.Name), ']')
	}
	return append(b, "}}"...)
}
