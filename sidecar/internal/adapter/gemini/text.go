package gemini

import (
	"strconv"
	"strings"

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
func compact(v gjson.Result) string { return v.Get("@ugly").Raw }

func appendInt(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), n, 10)
}

// appendComma appends a comma unless nothing stands in the list yet.
func appendComma(list []byte) []byte {
	if len(list) > 0 {
		return append(list, ',')
	}
	return list
}

// trimmed cuts a provider's text to a length that is fit for an error.
func trimmed(s string) string {
	const most = 4096
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// printable keeps a member's name, which is the caller's text, short.
func printable(name string) string {
	const most = 64
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}
