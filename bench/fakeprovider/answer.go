package fakeprovider

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// answer is what one request gets, before any fault and in no dialect.
type answer struct {
	choices   int64
	reasoning int64 // tokens, of each choice
	text      int64 // tokens, of each choice
	unicode   bool
	document  []string // tokens of the JSON document that was asked for, in place of words
	calls     []toolCall
	finish    finish
	tier      string // "" for the usual one
	logprobs  bool   // of each text token are told
	top       int64  // alternatives to each
}

type toolCall struct {
	name      string
	fragments []string // of the JSON arguments; one token each, and one more for the name
	cut       bool     // the cap cut the arguments off
	custom    bool     // the fragments are a text
}

func (c toolCall) arguments() string { return strings.Join(c.fragments, "") }

type finish int

const (
	finishStop finish = iota
	finishLength
	finishTools
)

// compose decides the answer. The output never exceeds the request's cap: reasoning comes first, then text, then
// tool calls, and what does not fit is cut off with finishLength.
func compose(req *request, b *Behavior) answer {
	a := answer{choices: req.choices, unicode: b.Unicode, tier: b.Tier, logprobs: req.logprobs, top: req.topLogprobs}
	names, forced := chooseTools(req, b)

	left := req.maxTokens
	if left < 0 {
		left = outputTokensMax
	}
	take := func(want int64) int64 {
		if want > left {
			a.finish = finishLength
			want = left
		}
		left -= want
		return want
	}
	text := b.Tokens
	if text < 0 && len(names) > 0 {
		text = 0
	} else if text < 0 {
		text = defaultTokens
	}
	a.reasoning = take(b.Reasoning)
	if req.document.IsObject() && len(names) == 0 {
		a.document = splitArguments(exampleArguments(req.document))
		text = int64(len(a.document))
	}
	a.text = take(text)
	for _, name := range names {
		if take(1) == 0 {
			break
		}
		tool := req.tool(name)
		call := toolCall{name: name, custom: tool.custom}
		fragments := splitArguments(exampleArguments(tool.schema))
		if tool.custom {
			fragments = splitArguments(exampleText)
		}
		n := take(int64(len(fragments)))
		call.fragments, call.cut = fragments[:n], n < int64(len(fragments))
		a.calls = append(a.calls, call)
	}
	// A named tool_choice ends in "stop", as at OpenAI; the Anthropic dialect says tool_use for any call.
	if a.finish == finishStop && len(a.calls) > 0 && !forced {
		a.finish = finishTools
	}
	return a
}

// chooseTools picks the tools to call, in order, and says whether the request named the one itself.
func chooseTools(req *request, b *Behavior) (names []string, forced bool) {
	if len(req.tools) == 0 || req.toolMode == toolNever || !req.userTurn {
		return nil, false
	}
	if req.toolMode == toolNamed {
		if req.offers(req.toolName) {
			return []string{req.toolName}, true
		}
		return nil, false
	}
	for _, name := range slices.Concat(b.Calls, namesAfterCall(req.control)) {
		if req.offers(name) && !slices.Contains(names, name) && len(names) < callsMax {
			names = append(names, name)
		}
	}
	if len(names) == 0 && req.toolMode == toolAny {
		names = []string{req.tools[0].name}
	}
	if !req.parallel && len(names) > 1 {
		names = names[:1]
	}
	return names, false
}

func (req *request) offers(name string) bool {
	return slices.ContainsFunc(req.tools, func(t toolSpec) bool { return t.name == name })
}

func (req *request) tool(name string) toolSpec {
	return req.tools[slices.IndexFunc(req.tools, func(t toolSpec) bool { return t.name == name })]
}

// namesAfterCall finds the words behind every "call " in a text.
func namesAfterCall(text string) []string {
	var names []string
	for len(names) < callsMax {
		i := strings.Index(text, "call ")
		if i < 0 {
			break
		}
		text = text[i+len("call "):]
		end := strings.IndexFunc(text, func(r rune) bool {
			return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		})
		if end < 0 {
			end = len(text)
		}
		if end > 0 {
			names = append(names, text[:end])
		}
	}
	return names
}

// exampleText is every string in the arguments of a call, and what a custom tool is told.
const exampleText = "example"

// exampleArguments fills the top-level properties of a JSON schema with fixed values, in the schema's order.
func exampleArguments(schema gjson.Result) string {
	var out strings.Builder
	out.WriteByte('{')
	schema.Get("properties").ForEach(func(name, property gjson.Result) bool {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.WriteString(quote(name.String()))
		out.WriteByte(':')
		first := property.Get("enum.0")
		switch kind := property.Get("type").String(); {
		case first.Exists():
			out.WriteString(first.Raw)
		case kind == "integer":
			out.WriteString("7")
		case kind == "number":
			out.WriteString("1.5")
		case kind == "boolean":
			out.WriteString("true")
		case kind == "array":
			out.WriteString("[]")
		case kind == "object":
			out.WriteString("{}")
		default:
			out.WriteString(quote(exampleText))
		}
		return true
	})
	out.WriteByte('}')
	return out.String()
}

// splitArguments cuts text into fragments of four runes.
func splitArguments(text string) []string {
	var out []string
	start, runes := 0, 0
	for i := range text {
		if runes == 4 {
			out = append(out, text[start:i])
			start, runes = i, 0
		}
		runes++
	}
	return append(out, text[start:])
}

// perChoice is the output tokens of one choice.
func (a *answer) perChoice() int64 {
	n := a.reasoning + a.text
	for _, c := range a.calls {
		n += 1 + int64(len(c.fragments))
	}
	return n
}

func (a *answer) total() int64 { return a.choices * a.perChoice() }

type pieceKind int

const (
	pieceReasoning pieceKind = iota
	pieceText
	pieceCall // a call's name; its arguments follow
	pieceArguments
)

// piece is one output token.
type piece struct {
	kind   pieceKind
	step   int64 // position in its choice; equal steps of all choices come together
	choice int64
	call   int
	text   string
}

// pieces yields every token in stream order; choices are interleaved token by token.
func (a *answer) pieces() iter.Seq[piece] {
	return func(yield func(piece) bool) {
		var step int64
		all := func(p piece) bool {
			p.step = step
			step++
			for p.choice = range a.choices {
				if !yield(p) {
					return false
				}
			}
			return true
		}
		for i := range a.reasoning {
			if !all(piece{kind: pieceReasoning, text: word(i, false)}) {
				return
			}
		}
		for i := range a.text {
			if !all(piece{kind: pieceText, text: a.token(i)}) {
				return
			}
		}
		for k, c := range a.calls {
			if !all(piece{kind: pieceCall, call: k, text: c.name}) {
				return
			}
			for _, fragment := range c.fragments {
				if !all(piece{kind: pieceArguments, call: k, text: fragment}) {
					return
				}
			}
		}
	}
}

// token is text token i.
func (a *answer) token(i int64) string {
	if a.document != nil {
		return a.document[i]
	}
	return word(i, a.unicode)
}

// chance is the logprobs of a token, "" when they are not told. All tokens are equally likely.
func (a *answer) chance(token string) string {
	if !a.logprobs {
		return ""
	}
	bytes := make([]int, len(token))
	for i := range len(token) {
		bytes[i] = int(token[i])
	}
	list, err := json.Marshal(bytes)
	if err != nil {
		panic("BUG: numbers do not marshal: " + err.Error())
	}
	one := `{"token":` + quote(token) + `,"logprob":-0.5,"bytes":` + string(list)
	others := make([]string, a.top)
	for i := range others {
		others[i] = one + `}`
	}
	return one + `,"top_logprobs":[` + strings.Join(others, ",") + `]}`
}

// chances are the logprobs of the whole text, comma separated.
func (a *answer) chances() string {
	if !a.logprobs {
		return ""
	}
	all := make([]string, a.text)
	for i := range all {
		all[i] = a.chance(a.token(int64(i)))
	}
	return strings.Join(all, ",")
}

// words is the whole text.
func (a *answer) words() string {
	if a.document != nil {
		return strings.Join(a.document[:a.text], "")
	}
	return Text(a.text, a.unicode)
}

// Text is the text of an answer of n text tokens, so that a test can check what arrived. unicode is for answers with
// text=unicode.
func Text(n int64, unicode bool) string {
	var out strings.Builder
	for i := range n {
		out.WriteString(word(i, unicode))
	}
	return out.String()
}

// word is text token i; all but the first start with a space. No word needs escaping in JSON.
func word(i int64, unicode bool) string {
	if unicode {
		words := [...]string{" naïve", " 日本語", " 🙂", " Ωμέγα", " żółć", " 👩‍🚀", " नमस्ते", " ünïcödé"}
		if i == 0 {
			return words[0][1:]
		}
		return words[i%int64(len(words))]
	}
	words := [...]string{" river", " stone", " amber", " cloud", " field", " lantern", " north", " window",
		" paper", " quiet", " copper", " meadow", " harbor", " violet", " timber", " signal"}
	if i == 0 {
		return words[0][1:]
	}
	return words[i%int64(len(words))]
}

// quote is text as a JSON string.
func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic("BUG: a string does not marshal: " + err.Error())
	}
	return string(out)
}
