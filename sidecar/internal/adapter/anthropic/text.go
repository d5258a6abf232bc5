package anthropic

import "unicode/utf8"

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
