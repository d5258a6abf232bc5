package gemini

import (
	"slices"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
)

// The kinds of turns. Results are a user's turn to the provider, but stand by themselves.
const (
	turnUser   = "user"
	turnModel  = "model"
	turnResult = "result"
)

// called is a call that the model made earlier: what its result must name.
type called struct {
	name   string // raw JSON
	id     string // the provider's, "" for none
	number int    // among the calls of its turn
}

// result is the result of a call in the making.
type result struct {
	number int
	part   []byte
}

// turns is the contents array in the making. Messages of one kind that follow each other become one turn, and results
// come in the order of their calls: that order is all that tells two results of one function apart where the provider
// gave no ids.
type turns struct {
	body    []byte // without the outer brackets; the last turn is still open
	kind    string // of the open turn, "" before the first
	start   int    // of the open turn's parts
	results []result
	calls   map[string]called // by the caller's ids
	number  int               // of calls in the open turn
	strict  bool              // the model wants signatures of calls
	named   bool              // calls and results have ids
}

func (t *turns) init(strict, vertex bool, size int) {
	t.strict, t.named = strict, !vertex
	t.body = make([]byte, 0, size)
}

// begin begins a part of a turn of the user or the model. What is appended to dst becomes the part when keep gets it.
func (t *turns) begin(kind string) (dst []byte) {
	t.open(kind)
	return adapter.Comma(t.body, t.start)
}

// keep takes a part.
func (t *turns) keep(dst []byte) { t.body = dst }

// call adds a call that the model made.
func (t *turns) call(c *prompt.Call) {
	given, signature := readCallID(c.ID)
	if c.Signature != "" {
		signature = c.Signature
	}
	t.open(turnModel)
	if signature == "" && t.number == 0 && t.strict {
		signature = noSignature // the provider looks at the first call of a turn alone
	}
	if !t.named {
		given = ""
	}
	if t.calls == nil {
		t.calls = map[string]called{}
	}
	t.calls[c.ID] = called{name: c.Name.Raw, id: given, number: t.number}
	t.number++
	b := append(append(t.begin(turnModel), `{"functionCall":{"name":`...), c.Name.Raw...)
	b = appendMember(b, "id", given)
	b = append(append(append(b, `,"args":`...), c.Arguments...), '}')
	t.keep(append(appendMember(b, "thoughtSignature", signature), '}'))
}

// result adds what came of a call.
func (t *turns) result(c called, response string, parts []byte) {
	t.open(turnResult)
	b := make([]byte, 0, len(c.name)+len(c.id)+len(response)+len(parts)+80)
	b = appendMember(append(append(b, `{"functionResponse":{"name":`...), c.name...), "id", c.id)
	b = append(append(b, `,"response":`...), response...)
	if len(parts) > 0 {
		b = append(append(append(b, `,"parts":[`...), parts...), ']')
	}
	t.results = append(t.results, result{c.number, append(b, "}}"...)})
}

// appendMember appends a member with a text, nothing for an empty one.
func appendMember(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return adapter.AppendString(append(append(append(dst, `,"`...), name...), `":`...), text)
}

func (t *turns) open(kind string) {
	if t.kind == kind {
		return
	}
	t.end()
	role := kind
	if kind == turnResult {
		role = turnUser
	}
	t.body = append(t.body, `{"role":"`+role+`","parts":[`...)
	t.kind, t.start, t.number = kind, len(t.body), 0
}

func (t *turns) end() {
	if t.kind == "" {
		return
	}
	slices.SortStableFunc(t.results, func(a, b result) int { return a.number - b.number })
	for i, r := range t.results {
		if i > 0 {
			t.body = append(t.body, ',')
		}
		t.body = append(t.body, r.part...)
	}
	t.results = t.results[:0]
	t.body = append(t.body, `]},`...)
}

// close ends the last turn and returns the turns, comma separated.
func (t *turns) close() []byte {
	t.end()
	if t.kind == "" {
		return nil
	}
	t.kind = ""
	return t.body[:len(t.body)-1]
}
