package responses

import (
	"bytes"
	"strconv"
	"unicode/utf16"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// freeform reads what a custom tool is told out of the arguments of the function that stands for it, as they come: the
// text in {"input":"text"}. Models may write arguments that are none; nothing of those is lost either.
type freeform struct {
	rest []byte // of the arguments, not read yet
	in   reading
	said []byte // what was read, escaped
}

// reading is where in the arguments the reader is.
type reading int

const (
	before reading = iota // the text has not begun
	within
	behind
)

// more reads on and returns what came of it, escaped.
func (f *freeform) more(arguments string) []byte {
	f.rest = append(f.rest, arguments...)
	from := len(f.said)
	if f.in == before && len(f.rest) <= openingMax+len(arguments) {
		if n := opening(f.rest); n > 0 && n <= openingMax {
			f.rest, f.in = f.rest[n:], within
		}
	}
	if f.in == within {
		f.text(false)
	}
	return f.said[from:]
}

// end returns the last of it: what ends in the middle, as it does in an answer that was cut short, and what is no
// arguments after all.
func (f *freeform) end(arguments string) []byte {
	from := len(f.said)
	if f.in == within {
		f.text(true)
	}
	switch {
	case f.in == before:
		f.plain(customText(arguments))
	case f.in == behind && !f.closed():
		f.plain(string(f.rest)) // the model forgot to escape a quote: what stands behind it belongs to the text
	}
	return f.said[from:]
}

// closed reports whether what stands behind the text is the end of the arguments, or its beginning.
func (f *freeform) closed() bool {
	object := append([]byte(`{"":"`), f.rest...)
	return adapter.Valid(object) || adapter.Valid(append(object, '}'))
}

func (f *freeform) plain(text string) {
	escaped := gjson.AppendJSONString(nil, text)
	f.said = append(f.said, escaped[1:len(escaped)-1]...)
}

// opening is how long the beginning of the arguments is, up to the text; 0 when they do not begin so, or not yet.
func opening(arguments []byte) int {
	rest := arguments
	for _, token := range [...]string{"{", `"` + customInput + `"`, ":", `"`} {
		ok := false
		if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(token)); !ok {
			return 0
		}
	}
	return len(arguments) - len(rest)
}

// text reads up to the quote that ends the text. Escapes that are not whole yet wait, unless these are the last.
func (f *freeform) text(last bool) {
	i := 0
	for i < len(f.rest) && f.in == within {
		switch c := f.rest[i]; {
		case c == '"':
			f.in = behind // the quote stays in the rest
		case c == '\\':
			n, whole := escape(f.rest[i:])
			if !whole && !last {
				f.rest = f.rest[i:]
				return
			}
			if n == 0 { // no escape: a backslash
				f.said = append(f.said, `\\`...)
				n = 1
			} else {
				f.said = append(f.said, f.rest[i:i+n]...)
			}
			i += n
		case c < ' ': // which a model should have escaped
			f.said = append(f.said, `\u00`...)
			f.said = strconv.AppendInt(append(f.said, c>>4+'0'), int64(c&15), 16)
			i++
		default:
			f.said = append(f.said, c)
			i++
		}
	}
	f.rest = f.rest[i:]
}

// escape is how long the escape is that b begins with, 0 when it is none; two that are one character are one. whole says
// that what follows cannot change that.
func escape(b []byte) (n int, whole bool) {
	if len(b) < 2 {
		return 0, false
	}
	if b[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), b[1]) < 0 {
			return 0, true
		}
		return 2, true
	}
	code, n := unit(b)
	switch {
	case n == 0:
		return 0, len(b) >= unitBytes
	case !utf16.IsSurrogate(code) || code >= lowSurrogate:
		return n, true
	}
	second, m := unit(b[n:])
	if m > 0 && second >= lowSurrogate && utf16.IsSurrogate(second) {
		return n + m, true
	}
	return n, len(b) >= 2*unitBytes
}

const (
	unitBytes    = len(`\u0000`)
	lowSurrogate = 0xdc00
)

// unit reads the \u escape that b begins with; n is 0 when there is none.
func unit(b []byte) (code rune, n int) {
	if len(b) < unitBytes || b[0] != '\\' || b[1] != 'u' {
		return 0, 0
	}
	v, err := strconv.ParseUint(string(b[2:unitBytes]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return rune(v), unitBytes
}

// settled is how much of an escaped text can be read before more of it is known: all, but for half of a character.
func settled(escaped []byte) int {
	at := len(escaped) - unitBytes
	if at < 0 {
		return len(escaped)
	}
	code, n := unit(escaped[at:])
	slashes := at - len(bytes.TrimRight(escaped[:at], `\`))
	if n == 0 || slashes%2 == 1 || !utf16.IsSurrogate(code) || code >= lowSurrogate {
		return len(escaped)
	}
	return at
}
