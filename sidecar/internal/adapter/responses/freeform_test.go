package responses

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFreeform: what a custom tool is told comes out of the arguments, however they are cut, and nothing of arguments
// that are none is lost.
func TestFreeform(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"input":"*** Begin Patch\n+a \"b\" \\n\n*** End Patch\n"}`: "*** Begin Patch\n+a \"b\" \\n\n*** End Patch\n",
		` { "input" : "a" , "more" : 1 } `:                           "a",
		`{"more":1,"input":"a"}`:                                     "a",
		`{"input":""}`:                                               "",
		`{"input":"\u00e9 \ud83d\ude00 \ud83d x 日本"}`:                "é 😀 \ufffd x 日本",
		`{"input":"cut in the mid`:                                   "cut in the mid",
		`{"input":"cut \u00`:                                         `cut \u00`,
		`{"input":"a\`:                                               `a\`,
		`{"input":"a\qb"}`:                                           `a\qb`,
		"{\"input\":\"a\nb\tc\"}":                                    "a\nb\tc", // a string must not hold a line's end
		`{"input":"fmt.Print("hi")"}`:                                `fmt.Print("hi")"}`,
		`{"input":"a"`:                                               "a",
		`{"input":5}`:                                                `{"input":5}`,
		`{"inp`:                                                      `{"inp`,
		`*** Begin Patch`:                                            "*** Begin Patch",
		``:                                                           "",
	} {
		for size := 1; size <= max(1, len(arguments)); size++ {
			var f freeform
			pieces := ""
			for rest := arguments; rest != ""; {
				n := min(size, len(rest))
				piece := f.more(rest[:n])
				if !json.Valid([]byte(quoted(piece))) {
					t.Fatalf("%s in pieces of %d: %q", arguments, size, piece)
				}
				pieces, rest = pieces+string(piece), rest[n:]
			}
			pieces += string(f.end(arguments))
			var got string
			if err := json.Unmarshal([]byte(quoted(f.said)), &got); err != nil || got != want || pieces != string(f.said) {
				t.Errorf("%s in pieces of %d: %v\ngot  %q\nwant %q", arguments, size, err, got, want)
			}
		}
	}
}

// TestSettled: half of a character waits for the other half, and what only looks like it does not.
func TestSettled(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `abc`: 3, `ab\ud83d`: 2, `ab\ud83d\ude00`: 14, `\ud83d`: 0, `ab\\ud83d`: 9, `a\\\ud83d`: 3, `\u00e9`: 6, `\ude00`: 6,
	} {
		if got := settled([]byte(text)); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

func FuzzFreeform(f *testing.F) {
	f.Add(`{"input":"a\ud83d\ude00\n"}`, 3)
	f.Add(`{"input":"a"b"`, 1)
	f.Fuzz(func(t *testing.T, arguments string, size int) {
		if size < 1 || !json.Valid([]byte(arguments)) && strings.ToValidUTF8(arguments, "") != arguments {
			return
		}
		var whole, cut freeform
		whole.more(arguments)
		whole.end(arguments)
		for rest := arguments; rest != ""; {
			n := min(size, len(rest))
			cut.more(rest[:n])
			rest = rest[n:]
		}
		cut.end(arguments)
		if string(whole.said) != string(cut.said) {
			t.Errorf("%q is %q whole and %q in pieces", arguments, whole.said, cut.said)
		}
		var said string
		if err := json.Unmarshal([]byte(quoted(whole.said)), &said); err != nil {
			t.Fatalf("%q: %v", whole.said, err)
		}
		var want struct{ Input *string }
		if json.Unmarshal([]byte(arguments), &want) == nil && strings.HasPrefix(arguments, `{"input":"`) &&
			strings.Count(strings.ToLower(arguments), "input") == 1 && !strings.Contains(arguments, `\`) && want.Input != nil && said != *want.Input {
			t.Errorf("%q is %q", arguments, said)
		}
	})
}
