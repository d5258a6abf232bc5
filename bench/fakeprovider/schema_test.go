package fakeprovider

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestExample(t *testing.T) {
	for name, row := range map[string]struct{ schema, want string }{
		"none":               {``, `{}`},
		"not an object's":    {`{"type":"string"}`, `{}`},
		"no type":            {`{"properties":{"a":{"type":"boolean"}}}`, `{"a":true}`},
		"in the order given": {`{"type":"object","properties":{"b":{"type":"number"},"a":{"type":"null"}}}`, `{"b":1.5,"a":null}`},
		"fixed values":       {`{"type":"object","properties":{"a":{"enum":["C","F"]},"b":{"const":3}}}`, `{"a":"C","b":3}`},
		"the first of several": {`{"type":"object","properties":{"a":{"type":["integer","null"]},"b":{"anyOf":[{"type":"boolean"},{"type":"null"}]}}}`,
			`{"a":7,"b":true}`},
		"nested":    {`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"type":"string"}}}}}}`, `{"a":[{"b":"example"}]}`},
		"any items": {`{"type":"object","properties":{"a":{"type":"array"}}}`, `{"a":[]}`},
		"referred to": {`{"$ref":"#/$defs/Thing","$defs":{"Thing":{"type":"object","properties":{"a":{"$ref":"#/$defs/Other"}}},"Other":{"type":"integer"}}}`,
			`{"a":7}`},
		"referred to in the dark": {`{"type":"object","properties":{"a":{"$ref":"#/$defs/None"}}}`, `{"a":"example"}`},
	} {
		if got := example(gjson.Parse(row.schema)); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
	endless := example(gjson.Parse(`{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#/properties/b"}}}`))
	if !gjson.Valid(endless) || strings.Count(endless, `"a"`) > schemaDepthMax {
		t.Errorf("a schema that refers to itself: %s", endless)
	}
}
