package adapter

import (
	"strings"

	"github.com/tidwall/gjson"
)

// AppendString appends s as a JSON string. Beyond what JSON demands it escapes nothing, so that what came unescaped goes
// out so.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
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

// Inside is the escaped text of a JSON string, without its quotes; "" for a value that is none. It can be put into another
// JSON string as it is.
func Inside(v gjson.Result) string {
	if v.Type != gjson.String || len(v.Raw) < 2 {
		return ""
	}
	return v.Raw[1 : len(v.Raw)-1]
}

// Compact is a JSON value without insignificant space. v is part of a document that was found valid.
func Compact(v gjson.Result) string { return v.Get("@ugly").Raw }

// Comma separates an element from the one before it, in a list that begins at from.
func Comma(dst []byte, from int) []byte {
	if len(dst) > from {
		return append(dst, ',')
	}
	return dst
}

// Trimmed cuts a provider's text to a length that is fit for an error.
func Trimmed(s string) string {
	const most = 4096
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// Printable keeps a member's name, which is the caller's text, short.
func Printable(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}
