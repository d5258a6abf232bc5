package responses

import (
	"encoding/json"

	"github.com/tidwall/gjson"
)

// object is a JSON object in the making.
type object map[string]any

// set takes a member over as it stands; null is as good as absent.
func (o object) set(name string, v gjson.Result) {
	if given(v) {
		o[name] = json.RawMessage(v.Raw)
	}
}

// raw writes it. It is made of strings, numbers and valid JSON: that cannot fail.
func (o object) raw() json.RawMessage {
	b, err := json.Marshal(o)
	if err != nil {
		panic("BUG: responses: " + err.Error())
	}
	return b
}

func given(v gjson.Result) bool { return v.Exists() && v.Type != gjson.Null }
