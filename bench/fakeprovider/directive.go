package fakeprovider

import (
	"fmt"
	"strings"
)

// Setting is one key=value of a directive.
type Setting struct{ Key, Value string }

// ParseDirectives finds the control settings in a text, in order.
//
// A directive is [[key=value key=value ...]]: two brackets, then at once a lower-case name and an equals sign. Names
// are a-z, 0-9 and "-"; values hold no space and no "]". Any other pair of brackets is plain text, and so is a
// directive that is never closed. A text may hold several directives. Inside a directive every word must be a
// key=value; a word that is not, or more than 64 settings, is an error, because a typo in a test must not pass as an
// ordinary prompt. Whether a key exists and a value fits is for Behavior.Apply to say.
func ParseDirectives(text string) ([]Setting, error) {
	var out []Setting
	for {
		start := strings.Index(text, "[[")
		if start < 0 {
			return out, nil
		}
		text = text[start+2:]
		// In "[[[tokens=1]]" the last two brackets open the directive.
		for strings.HasPrefix(text, "[") {
			text = text[1:]
		}
		if _, _, ok := cutSetting(text); !ok {
			continue
		}
		end := strings.Index(text, "]]")
		if end < 0 {
			continue
		}
		for word := range strings.FieldsSeq(text[:end]) {
			key, value, ok := cutSetting(word)
			if !ok || strings.ContainsAny(value, "]") {
				return nil, fmt.Errorf("directive word %q is not a key=value", word)
			}
			if len(out) == settingsMax {
				return nil, fmt.Errorf("more than %d settings", settingsMax)
			}
			out = append(out, Setting{Key: key, Value: value})
		}
		text = text[end+2:]
	}
}

// cutSetting splits key=rest at the first equals sign when key is a well-formed name.
func cutSetting(word string) (key, rest string, ok bool) {
	for i := range len(word) {
		switch c := word[i]; {
		case c >= 'a' && c <= 'z':
		case i > 0 && (c == '-' || c >= '0' && c <= '9'):
		case i > 0 && c == '=':
			return word[:i], word[i+1:], true
		default:
			return "", "", false
		}
	}
	return "", "", false
}
