package jsonseq

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/readertest"
)

func play(r *Reader, chunks ...[]byte) ([]string, error) {
	return readertest.Play(r, func(v []byte) string { return string(v) }, chunks...)
}

func bytewise(s string) [][]byte { return slices.Collect(slices.Chunk([]byte(s), 1)) }

var streams = []struct {
	name, in string
	want     []string
	err      error
}{
	{"nothing", " \r\n", nil, nil},
	{"lines", "{\"a\":1}\n{\"b\":[2,{}]}\n", []string{`{"a":1}`, `{"b":[2,{}]}`}, nil},
	{"no newline at the end", `{"a":1}`, []string{`{"a":1}`}, nil},
	{"over several lines", "{\r\n \"a\":\n1}\r\n\r\n{}", []string{"{\r\n \"a\":\n1}", "{}"}, nil},
	{"an array", "[{\"a\":1}\n,\r\n{\"b\":2}]\n", []string{`{"a":1}`, `{"b":2}`}, nil},
	{"an empty array", "[]", nil, nil},
	{"an array that is not closed", `[{"a":1},`, []string{`{"a":1}`}, nil},
	{"brackets and quotes in strings", `[{"}]\"{":"\\"},{"x":"\\\"]"}]`, []string{`{"}]\"{":"\\"}`, `{"x":"\\\"]"}`}, nil},
	{"letters of several bytes", `{"a":"naïve 日本 🙂"}{}`, []string{`{"a":"naïve 日本 🙂"}`, "{}"}, nil},
	{"cut", `[{"a":1},{"b"`, []string{`{"a":1}`}, ErrCut},
	{"cut in a string", `{"b":"}`, nil, ErrCut},
	{"a comma between lines", `{},{}`, []string{"{}"}, ErrMalformed},
	{"a scalar", `7`, nil, ErrMalformed},
	{"a scalar in an array", `[{},7]`, []string{"{}"}, ErrMalformed},
	{"an array in an array", `[[]]`, nil, ErrMalformed},
	{"an array after an object", `{}[]`, []string{"{}"}, ErrMalformed},
	{"more after the array", `[{}]{}`, []string{"{}"}, ErrMalformed},
	{"server-sent events", "data: {}\n\n", nil, ErrMalformed},
}

func TestReader(t *testing.T) {
	for _, tc := range streams {
		for name, chunks := range map[string][][]byte{
			"whole": {[]byte(tc.in)}, "bytes": bytewise(tc.in), "halves": {[]byte(tc.in[:len(tc.in)/2]), nil, []byte(tc.in[len(tc.in)/2:])},
		} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				got, err := play(&Reader{}, chunks...)
				if !slices.Equal(got, tc.want) || !errors.Is(err, tc.err) {
					t.Fatalf("got %q, %v, want %q, %v", got, err, tc.want, tc.err)
				}
			})
		}
	}
}

// TestAnObjectIsReadyWithItsLastByte: a stream must not lag by one object.
func TestAnObjectIsReadyWithItsLastByte(t *testing.T) {
	var r Reader
	r.Feed([]byte(`[{"a":1}`))
	if v, ok, err := r.Next(); string(v) != `{"a":1}` || !ok || err != nil {
		t.Fatalf("got %q, %v, %v", v, ok, err)
	}
}

func TestCap(t *testing.T) {
	for _, chunks := range [][][]byte{{[]byte(`{"a":1}`)}, bytewise(`{"a":1}`)} {
		if got, err := play(&Reader{Max: 7}, chunks...); err != nil || len(got) != 1 {
			t.Errorf("at the cap: %q, %v", got, err)
		}
		r := &Reader{Max: 6}
		if _, err := play(r, chunks...); !errors.Is(err, ErrTooLarge) {
			t.Errorf("above the cap: %v", err)
		}
		if _, _, err := r.Next(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("the error does not stay: %v", err)
		}
	}
}

func TestFeedTooEarlyIsABug(t *testing.T) {
	for name, r := range map[string]*Reader{"before the last was used": {}, "after End": {ended: true}} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			r.Feed([]byte("{}{}"))
			_, _, _ = r.Next()
			r.Feed([]byte("{}"))
		})
	}
}

// FuzzReader holds the reader against encoding/json where that understands the stream, and against itself with other
// cuts where it does not.
func FuzzReader(f *testing.F) {
	for _, tc := range streams {
		f.Add(tc.in, uint64(1))
	}
	f.Fuzz(func(t *testing.T, in string, seed uint64) {
		whole, err := play(&Reader{}, []byte(in))
		cut, cutErr := play(&Reader{}, readertest.Split(rand.New(rand.NewPCG(seed, 1)), []byte(in))...)
		if !slices.Equal(whole, cut) || !errors.Is(cutErr, err) {
			t.Fatalf("whole %q, %v; cut %q, %v", whole, err, cut, cutErr)
		}
		if want, ok := decode(in); ok && (err != nil || !slices.Equal(whole, want)) {
			t.Fatalf("got %q, %v, want %q", whole, err, want)
		}
	})
}

// decode reads a stream of objects, or one array of them, with encoding/json; false when it is neither.
func decode(in string) (out []string, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal([]byte(in), &list) != nil {
		d := json.NewDecoder(strings.NewReader(in))
		for {
			var v json.RawMessage
			if d.Decode(&v) != nil {
				break
			}
			list = append(list, v)
		}
		if strings.Trim(in[d.InputOffset():], " \t\r\n") != "" {
			return nil, false
		}
	}
	for _, v := range list {
		if !bytes.HasPrefix(v, []byte("{")) {
			return nil, false
		}
		out = append(out, string(v))
	}
	return out, true
}
