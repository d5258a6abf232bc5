package anthropic

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(append(dst, s[from:i]...), '\\')
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, c)
		case '\n':
			dst = append(dst, 'n')
		case '\r':
			dst = append(dst, 'r')
		case '\t':
			dst = append(dst, 't')
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// inside is the escaped text of a JSON string, without its quotes. It can be put into another JSON string as it is.
func inside(v gjson.Result) string {
	if v.Type != gjson.String || len(v.Raw) < 2 {
		return ""
	}
	return v.Raw[1 : len(v.Raw)-1]
}

// compact is a JSON value without insignificant space. v is part of a document that was found valid.
func compact(v gjson.Result) string {
	return v.Get("@ugly").Raw
}

// validJSON reports whether s is one JSON value.
func validJSON(s string) bool { return json.Valid([]byte(s)) }

// scanString walks the inside of a JSON string that starts at from. It returns the index of the closing quote and
// the number of bytes that the text has once decoded. ok is false when it is no well-formed string.
func scanString(p []byte, from int) (end int, size int64, ok bool) {
	for i := from; i < len(p); {
		switch c := p[i]; {
		case c == '"':
			return i, size, true
		case c < ' ':
			return 0, 0, false
		case c != '\\':
			i, size = i+1, size+1
		default:
			if i+1 >= len(p) {
				return 0, 0, false
			}
			switch p[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i, size = i+2, size+1
			case 'u':
				n := escapedSize(p[i+2:])
				if n == 0 {
					return 0, 0, false
				}
				i, size = i+6, size+n
			default:
				return 0, 0, false
			}
		}
	}
	return 0, 0, false
}

// escapedSize is how many bytes of UTF-8 the four hex digits stand for, 0 when they are none. Half a surrogate pair
// counts 2, so that the pair counts 4.
func escapedSize(p []byte) int64 {
	if len(p) < 4 {
		return 0
	}
	var r rune
	for _, c := range p[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0
		}
	}
	if r >= 0xd800 && r < 0xe000 {
		return 2
	}
	return int64(utf8.RuneLen(r))
}

// textSize is the decoded size of the escaped text s, in bytes.
func textSize(s string) int64 {
	_, n, _ := scanString(append([]byte(s), '"'), 0)
	return n
}
