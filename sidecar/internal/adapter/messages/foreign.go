package messages

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// What other vendors' models think comes to the caller in blocks of thinking too. Callers send such blocks back as they
// are, so what the vendor wants back travels in their signature: adapter.ForeignMark, and the member of the chat answer
// it stood in. Towards Claude such blocks are left out, and towards others Claude's are.
type foreign struct {
	Details []json.RawMessage `json:"details,omitempty"` // of reasoning_details
	Call    string            `json:"call,omitempty"`    // id of the tool call that Extra belongs to
	Extra   json.RawMessage   `json:"extra,omitempty"`   // extra_content
}

// foreignMax bounds what travels in one signature, in bytes before its encoding.
const foreignMax = 1 << 20

func (f foreign) signature() string {
	b, err := json.Marshal(f)
	if err != nil || len(b) > foreignMax || len(b) == len("{}") {
		return adapter.ForeignMark
	}
	return adapter.ForeignMark + base64.RawURLEncoding.EncodeToString(b)
}

// readForeign reads a signature made here; ok is false for any other.
func readForeign(signature string) (f foreign, ok bool) {
	text, ok := strings.CutPrefix(signature, adapter.ForeignMark)
	if !ok {
		return f, false
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > foreignMax || !adapter.Valid(b) || json.Unmarshal(b, &f) != nil {
		return foreign{}, true // marked, and nothing in it
	}
	return f, true
}

// isClaude reports whether an entry of reasoning_details is Claude's thinking, whose signature is its own.
func isClaude(detail gjson.Result) bool {
	return strings.HasPrefix(detail.Get("format").Str, "anthropic")
}

// joined puts together entries of reasoning_details that came in pieces. What has an index is one with what has the same,
// and the type, before it.
func joined(pieces []gjson.Result) (list []json.RawMessage) {
	var last object
	var lastIndex, lastType string
	finish := func() {
		if last == nil {
			return
		}
		if b, err := json.Marshal(last); err == nil {
			list = append(list, b)
		}
	}
	for _, p := range pieces {
		index, kind := p.Get("index").Raw, p.Get("type").Str
		if last == nil || index == "" || index != lastIndex || kind != lastType {
			finish()
			last, lastIndex, lastType = object{}, index, kind
		}
		p.ForEach(func(k, v gjson.Result) bool {
			switch before, ok := last[k.Str].(escaped); {
			case v.Type == gjson.Null:
			case v.Type != gjson.String:
				last.set(k.Str, v)
			case ok && textual[k.Str]:
				last[k.Str] = before + said(v)
			case !ok || before == "":
				last[k.Str] = said(v)
			}
			return true
		})
	}
	finish()
	return list
}

// textual are the members of reasoning_details that come in pieces.
var textual = map[string]bool{"text": true, "summary": true, "data": true, "signature": true}

// memory is what the model that gave an earlier answer wants back with it.
type memory struct {
	details []any           // reasoning_details
	text    strings.Builder // reasoning_content, escaped: what nobody signed
	extras  map[string]any  // extra_content of calls, by their ids
}

// recall takes in a block of thinking.
func (m *memory) recall(b gjson.Result) {
	signature := b.Get("signature").Str
	if b.Get("type").Str == "redacted_thinking" {
		signature = b.Get("data").Str
	}
	f, marked := readForeign(signature)
	switch {
	case !marked:
		m.details = append(m.details, own(b, len(m.details)))
	case len(f.Details) > 0:
		for _, d := range f.Details {
			m.details = append(m.details, d)
		}
	case f.Call != "" && len(f.Extra) > 0:
		m.extras[f.Call] = f.Extra
	default:
		m.text.WriteString(adapter.Inside(b.Get("thinking")))
	}
}

// Claude takes only letters, digits, _ and - in the ids of calls; some vendors' have more, and want them back. Such an id
// goes to the caller encoded, so that the conversation may go on with any model.
const idMark = "sluice1_"

func idOut(id string) string {
	if adapter.IsPlain(id) && !strings.HasPrefix(id, idMark) {
		return id
	}
	return idMark + base64.RawURLEncoding.EncodeToString([]byte(id))
}

func idIn(id string) string {
	if text, ok := strings.CutPrefix(id, idMark); ok {
		if b, err := base64.RawURLEncoding.DecodeString(text); err == nil {
			return string(b)
		}
	}
	return id
}
