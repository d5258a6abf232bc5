package adapter

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

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

// TextEnd walks the inside of a JSON string that begins at i, behind its quote: to is where its closing quote stands, and
// size how many bytes the text has once decoded. It is not for broken texts, nor for halves of surrogate pairs: to is -1
// for those. So copying the text as it stands cannot carry broken JSON to a caller.
func TextEnd(b []byte, i int) (to, size int) {
	from, more := i, 0 // bytes that stand there and are none of the text
	for {
		for i+8 <= len(b) {
			odd := oddBytes(binary.LittleEndian.Uint64(b[i:]))
			if odd != 0 {
				i += bits.TrailingZeros64(odd) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1, 0
		}
		switch c := b[i]; {
		case c == '"':
			return i, i - from - more
		case c < ' ':
			return -1, 0
		case c != '\\':
			i++
		default:
			length, n := escape(b[i:])
			if length == 0 {
				return -1, 0
			}
			i, more = i+length, more+length-n
		}
	}
}

// oddBytes finds among eight bytes, the first of which is the lowest, those that do not stand for themselves in a JSON
// string: quotes, backslashes, and controls. The highest bit of the first such byte is set, and none below it.
func oddBytes(v uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := v^('"'*ones), v^('\\'*ones)
	return ((v-' '*ones)&^v | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// escape reads the escape that b begins with: its length, and that of what it stands for in UTF-8; 0 for none.
func escape(b []byte) (length, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, 1
	case 'u':
		r := Hex4(b[2:])
		switch {
		case r < 0:
			return 0, 0
		case !utf16.IsSurrogate(r):
			return 6, utf8.RuneLen(r)
		}
		if len(b) > 7 && b[6] == '\\' && b[7] == 'u' && utf16.DecodeRune(r, Hex4(b[8:])) != utf8.RuneError {
			return 12, 4
		}
	}
	return 0, 0
}

// Hex4 reads the four digits of \uXXXX, -1 when they are none.
func Hex4(b []byte) (r rune) {
	if len(b) < 4 {
		return -1
	}
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// Said is what a JSON string says. Halves of surrogate pairs, which no text can hold, stay the escapes they are: what is
// said is JSON itself, mostly, and they mean the same there.
func Said(v gjson.Result) string {
	raw := Inside(v)
	if !strings.Contains(raw, `\u`) {
		return v.Str
	}
	kept := make([]byte, 0, len(v.Raw)+len(`""`))
	kept = append(kept, '"')
	for i := 0; i < len(raw); {
		n := 1
		if raw[i] == '\\' {
			if n, _ = escape([]byte(raw[i:min(len(raw), i+pairBytes)])); n == 0 { // half a pair: its backslash says itself
				kept, n = append(kept, '\\'), 1
			}
		}
		kept = append(kept, raw[i:i+n]...)
		i += n
	}
	return gjson.Parse(string(append(kept, '"'))).Str
}

// pairBytes is the length of the longest escape.
const pairBytes = len(`\ud83d\ude00`)

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
	switch {
	case name == "":
		return `a member without a name`
	case len(name) > most:
		return strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}
