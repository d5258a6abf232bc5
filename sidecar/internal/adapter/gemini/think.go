package gemini

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// mind is how a model is told how much to think.
type mind uint8

const (
	mindLevel  mind = iota // by a word: thinkingLevel, since Gemini 3
	mindBudget             // by a number of tokens: thinkingBudget, Gemini 2.5
	mindNone               // it cannot think
)

// Only the models of the past are known by name. Any other is taken for a new one.
var (
	unthinking = regexp.MustCompile(`gemini-(?:1\.|2\.0|pro$|pro-vision)|gemma-[123]`)
	budgeted   = regexp.MustCompile(`gemini-2\.5|gemini-robotics-er-1\.5`)
)

func mindOf(model string) mind {
	switch {
	case budgeted.MatchString(model):
		return mindBudget
	case unthinking.MatchString(model):
		return mindNone
	}
	return mindLevel
}

// isSwift reports whether it is a Flash model: these can think next to nothing, the others always think.
func isSwift(model string) bool { return strings.Contains(model, "flash") }

// budgetMost is the largest thinkingBudget that every model of that kind takes.
const budgetMost = 24_576

// think turns the caller's word into what the model understands. What a model thought is asked for too, as far as it
// tells.
func (t *translation) think() *exchange.Failure {
	const name = "reasoning_effort"
	switch effort := t.Effort; {
	case effort == "", effort == "none" && t.how == mindNone:
	case effort == "none" && t.how == mindBudget && t.swift:
		t.set("thinkingConfig", `{"thinkingBudget":0}`)
	case effort == "none":
		return t.Cannot(name, "this model always thinks before it answers")
	case t.how == mindNone:
		return t.Cannot(name, "this model cannot think before it answers")
	case t.how == mindBudget:
		tokens := min(adapter.ThinkingTokens(effort), budgetMost)
		t.set("thinkingConfig", fmt.Sprintf(`{"thinkingBudget":%d,"includeThoughts":true}`, tokens))
	default:
		t.set("thinkingConfig", `{"thinkingLevel":"`+t.level(effort)+`","includeThoughts":true}`)
	}
	return nil
}

// level is the model's word for an effort: the nearest there is.
func (t *translation) level(effort string) string {
	switch {
	case effort == "minimal" && t.swift:
		return "MINIMAL"
	case effort == "minimal", effort == "low":
		return "LOW"
	case effort == "medium":
		return "MEDIUM"
	}
	return "HIGH"
}

// The caller sees what the model thought as text in reasoning_content, and once more in reasoning_details. The
// signatures of texts stand there too, and make the same parts again when they are sent back. The shape is OpenRouter's:
//
//	{"type":"reasoning.text","format":"google-gemini-v1","index":0,"text":"..."}
//	{"type":"reasoning.encrypted","format":"google-gemini-v1","index":1,"data":"..."}
//
// In a stream an entry comes in pieces of the same index, and all of them have the format: the pieces of a text need not
// be put together, since the provider reads nothing from a text without a signature.
const (
	detailFormat    = "google-gemini-v1"
	detailText      = `{"type":"reasoning.text","format":"` + detailFormat + `","index":`
	detailEncrypted = `{"type":"reasoning.encrypted","format":"` + detailFormat + `","index":`
)

// appendThought appends the entry for a text that was thought, given escaped.
func appendThought[T string | []byte](dst []byte, index int, escaped T) []byte {
	dst = strconv.AppendInt(append(dst, detailText...), int64(index), 10)
	return append(append(append(dst, `,"text":"`...), escaped...), `"}`...)
}

// appendSignature appends the entry for the signature of a text, given escaped.
func appendSignature(dst []byte, index int, escaped string) []byte {
	dst = strconv.AppendInt(append(dst, detailEncrypted...), int64(index), 10)
	return append(append(append(dst, `,"data":"`...), escaped...), `"}`...)
}

// signatures are what an assistant's message brings back of Gemini's own: the signature of its text, as raw JSON or "",
// and those of its calls by their ids, where a caller keeps them as OpenRouter has them.
func signatures(m *prompt.Message) (text string, calls map[string]string) {
	if m.Details == "" {
		return "", nil
	}
	gjson.Parse(m.Details).ForEach(func(_, e gjson.Result) bool {
		data, id := e.Get("data"), e.Get("id").Str
		switch {
		case !strings.HasPrefix(e.Get("format").Str, "google-gemini"), e.Get("type").Str != "reasoning.encrypted",
			data.Type != gjson.String, data.Str == "":
		case id == "":
			text = data.Raw
		default:
			if calls == nil {
				calls = map[string]string{}
			}
			calls[id] = data.Str
		}
		return true
	})
	return text, calls
}
