package fakeprovider

import (
	"strings"

	"github.com/tidwall/gjson"
)

// exampleText is every string in an answer of a schema, and what a custom tool is told.
const exampleText = "example"

// anyObject answers a request for JSON without a schema.
var anyObject = gjson.Parse(`{"type":"object","properties":{"answer":{"type":"string"}}}`)

// documentOf is the schema of OpenAI's format of an answer, absent for prose. It lies at path.
func documentOf(format gjson.Result, path string) gjson.Result {
	if format.Get("type").String() == "json_object" {
		return anyObject
	}
	return format.Get(path)
}

// example is the JSON object that answers a schema: fixed values, in the schema's order. A schema that is no object's, or
// none at all, is answered with {}.
func example(schema gjson.Result) string {
	if kind := schemaKind(dereferenced(schema, schema)); kind != "object" {
		return "{}"
	}
	return exampleOf(schema, schema, 0)
}

// exampleOf is a value of one part of a schema. An object has all its properties, an array one item; what lies deeper than
// schemaDepthMax, as in a schema that refers to itself, is null.
func exampleOf(root, schema gjson.Result, depth int) string {
	if depth == schemaDepthMax {
		return "null"
	}
	schema = dereferenced(root, schema)
	for _, fixed := range []string{"const", "enum.0"} {
		if v := schema.Get(fixed); v.Exists() {
			return v.Raw
		}
	}
	if first := schema.Get("anyOf.0"); first.Exists() {
		return exampleOf(root, first, depth+1)
	}
	switch schemaKind(schema) {
	case "integer":
		return "7"
	case "number":
		return "1.5"
	case "boolean":
		return "true"
	case "null":
		return "null"
	case "array":
		if items := schema.Get("items"); items.IsObject() {
			return "[" + exampleOf(root, items, depth+1) + "]"
		}
		return "[]"
	case "object":
		var members []string
		schema.Get("properties").ForEach(func(name, property gjson.Result) bool {
			members = append(members, quote(name.String())+":"+exampleOf(root, property, depth+1))
			return true
		})
		return "{" + strings.Join(members, ",") + "}"
	}
	return quote(exampleText)
}

// schemaKind is a schema's type, the first of several.
func schemaKind(schema gjson.Result) string {
	if schema.Get("properties").Exists() {
		return "object" // some leave the type out
	}
	if kind := schema.Get("type"); !kind.IsArray() {
		return kind.String()
	}
	return schema.Get("type.0").String()
}

// dereferenced is what a reference into root ("#/$defs/Thing", "#" for all of it) stands for, or the schema itself if it is none.
func dereferenced(root, schema gjson.Result) gjson.Result {
	path, ok := strings.CutPrefix(schema.Get("$ref").String(), "#")
	if !ok {
		return schema
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name != "" {
			root = root.Get(gjson.Escape(name))
		}
	}
	return root
}
