package bedrock

import (
	"strings"

	"github.com/tidwall/gjson"
)

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
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

// inside is the escaped text of a JSON string, without its quotes. It can be put into another JSON string as it is.
func inside(v gjson.Result) string {
	if v.Type != gjson.String || len(v.Raw) < 2 {
		return ""
	}
	return v.Raw[1 : len(v.Raw)-1]
}

// compact is a JSON value without insignificant space. v is part of a document that was found valid.
func compact(v gjson.Result) string { return v.Get("@ugly").Raw }

// comma separates an element from the one before it in a list that begins at from.
func comma(dst []byte, from int) []byte {
	if len(dst) > from {
		return append(dst, ',')
	}
	return dst
}

func hasScheme(url, scheme string) bool {
	return len(url) >= len(scheme) && strings.EqualFold(url[:len(scheme)], scheme)
}

// splitDataURI cuts data:MEDIA;base64,DATA. Parameters of the media type are dropped.
func splitDataURI(uri string) (media, data string, ok bool) {
	if !hasScheme(uri, "data:") {
		return "", "", false
	}
	head, data, ok := strings.Cut(uri[len("data:"):], ",")
	if !ok || data == "" {
		return "", "", false
	}
	head, ok = strings.CutSuffix(strings.ToLower(head), ";base64")
	if !ok {
		return "", "", false
	}
	media, _, _ = strings.Cut(head, ";")
	return strings.TrimSpace(media), data, true
}
