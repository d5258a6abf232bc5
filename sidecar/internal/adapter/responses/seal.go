package responses

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// sealed is what a chat answer holds and no item of the Responses API has a member for. Callers carry it in the
// encrypted_content of a reasoning item and send it back unread, so that signatures reach the model that made them.
type sealed struct {
	Details []json.RawMessage          `json:"details,omitempty"` // reasoning_details
	Calls   map[string]json.RawMessage `json:"calls,omitempty"`   // extra_content by call id (Gemini's thought signatures)
}

func (s sealed) empty() bool { return len(s.Details) == 0 && len(s.Calls) == 0 }

func (s sealed) seal() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: responses: " + err.Error()) // all of it was parsed from valid JSON
	}
	return adapter.ForeignMark + base64.RawURLEncoding.EncodeToString(b)
}

// unseal opens what seal made. What another made, such as a provider's own, is empty here: nobody else can read it.
func unseal(text string) (s sealed) {
	text, ours := strings.CutPrefix(text, adapter.ForeignMark)
	b, err := base64.RawURLEncoding.DecodeString(text)
	if !ours || err != nil || !adapter.Valid(b) || json.Unmarshal(b, &s) != nil {
		return sealed{}
	}
	return s
}

// thought is one entry of reasoning_details, put together from its pieces.
type thought struct {
	index, kind string
	texts       []text                     // members that come in pieces
	rest        map[string]json.RawMessage // of the others the first one counts
}

type text struct {
	name string
	said []byte // escaped
}

// think adds an entry to those before it: pieces of one entry have the same index and type.
func think(list []thought, d gjson.Result) []thought {
	index, kind := d.Get("index").Raw, d.Get("type").Str
	if n := len(list); n == 0 || index == "" || list[n-1].index != index || list[n-1].kind != kind {
		list = append(list, thought{index: index, kind: kind, rest: map[string]json.RawMessage{}})
	}
	to := &list[len(list)-1]
	d.ForEach(func(k, v gjson.Result) bool {
		switch {
		case v.Type == gjson.String && (k.Str == "text" || k.Str == "signature" || k.Str == "data" || k.Str == "summary"):
			to.add(k.Str, adapter.Inside(v))
		case v.Type != gjson.Null && to.rest[k.Str] == nil:
			to.rest[k.Str] = json.RawMessage(v.Raw)
		}
		return true
	})
	return list
}

func (t *thought) add(name, said string) {
	for i := range t.texts {
		if t.texts[i].name == name {
			t.texts[i].said = append(t.texts[i].said, said...)
			return
		}
	}
	t.texts = append(t.texts, text{name, []byte(said)})
}

func (t *thought) raw() json.RawMessage {
	o := object{}
	for k, v := range t.rest {
		o[k] = v
	}
	for _, s := range t.texts {
		o[s.name] = json.RawMessage(quoted(s.said))
	}
	return o.raw()
}

// quoted is the JSON text of what stands escaped.
func quoted(escaped []byte) string { return `"` + string(escaped) + `"` }
