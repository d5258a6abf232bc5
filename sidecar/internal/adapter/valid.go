package adapter

import "github.com/tidwall/gjson"

// depthMax is how deep an answer may nest; real ones stay below 20. The validator recurses, and an exhausted stack
// ends the whole process: a few dozen megabytes of brackets would do it.
const depthMax = 512

// Valid reports whether doc is one JSON value that nests at most 512 deep. Adapters check what providers send with it
// before they read anything of it.
func Valid(doc []byte) bool {
	depth, text := 0, false
	for i := 0; i < len(doc) && len(doc) > depthMax; i++ { // a shorter one cannot nest deeper
		c := doc[i]
		switch {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			if depth++; depth > depthMax {
				return false
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return gjson.ValidBytes(doc)
}
