package sse

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-gateway/sluice/sidecar/internal/readertest"
)

// got is an event with its bytes copied.
type got struct {
	name, data string
	bare       bool
}

func (g got) String() string { return fmt.Sprintf("%q=%q bare=%v", g.name, g.data, g.bare) }

func play(r *Reader, chunks ...[]byte) ([]got, error) {
	return readertest.Play(r, func(ev *Event) got { return got{string(ev.Name), string(ev.Data), ev.Bare} }, chunks...)
}

// model reads a whole stream the slow and obvious way.
func model(stream string) []got {
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	var out []got
	var name string
	var data []string
	flush := func() {
		if data != nil {
			out = append(out, got{name: name, data: strings.Join(data, "\n")})
		}
		name, data = "", nil
	}
	for _, line := range strings.Split(stream, "\n") {
		if line == "" {
			flush()
			continue
		}
		if line[0] == '{' && strings.Contains(line, `"error"`) {
			flush()
			out = append(out, got{data: line, bare: true})
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	flush()
	return out
}

func bytewise(s string) [][]byte { return slices.Collect(slices.Chunk([]byte(s), 1)) }

func same(a, b []got) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

var streams = []struct {
	name, in string
	want     []got
}{
	{"nothing", "", nil},
	{"one", "data: a\n\n", []got{{"", "a", false}}},
	{"two glued", "data: a\n\ndata: b\n\n", []got{{"", "a", false}, {"", "b", false}}},
	{"crlf", "data: a\r\n\r\ndata: b\r\n\r\n", []got{{"", "a", false}, {"", "b", false}}},
	{"cr", "data: a\r\rdata: b\r\r", []got{{"", "a", false}, {"", "b", false}}},
	{"mixed ends", "data: a\r\n\ndata: b\r\r\ndata: c\n\r", []got{{"", "a", false}, {"", "b", false}, {"", "c", false}}},
	{"named", "event: error\ndata: {}\n\n", []got{{"error", "{}", false}}},
	{"name after data", "data: {}\nevent: x\n\n", []got{{"x", "{}", false}}},
	{"name does not carry over", "event: x\ndata: 1\n\ndata: 2\n\n", []got{{"x", "1", false}, {"", "2", false}}},
	{"names that change", "event: x\ndata: 1\n\nevent: x\ndata: 2\n\nevent: xy\ndata: 3\n\nevent: \ndata: 4\n\nevent: x\rdata: 5\n\nevent: x\ndata\n\nevent: x\ndata: 6\n\n",
		[]got{{"x", "1", false}, {"x", "2", false}, {"xy", "3", false}, {"", "4", false}, {"x", "5", false}, {"x", "", false}, {"x", "6", false}}},
	{"no space", "data:{\"a\":1}\n\n", []got{{"", `{"a":1}`, false}}},
	{"one space at most", "data:  a\n\n", []got{{"", " a", false}}},
	{"several data lines", "data: {\ndata: \"a\":1\ndata: }\n\n", []got{{"", "{\n\"a\":1\n}", false}}},
	{"empty data", "data:\n\ndata\n\n", []got{{"", "", false}, {"", "", false}}},
	{"two empty data lines", "data\ndata\n\n", []got{{"", "\n", false}}},
	{"id and retry", "id: 7\nretry: 10\ndata: a\n\n", []got{{"", "a", false}}},
	{"unknown fields", "foo: bar\n data: no\nDATA: no\ndata: a\n\n", []got{{"", "a", false}}},
	{"comments", ": OPENROUTER PROCESSING\n\n:\n\ndata: a\n: between\n\n", []got{{"", "a", false}}},
	{"name without data", "event: ping\n\ndata: a\n\n", []got{{"", "a", false}}},
	{"blank lines", "\n\n\n\ndata: a\n\n\n\n", []got{{"", "a", false}}},
	{"bom", "\xef\xbb\xbfdata: a\n\n", []got{{"", "a", false}}},
	{"bom only at the start", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []got{{"", "a", false}}},
	{"no blank line at the end", "data: a\n\ndata: [DONE]\n", []got{{"", "a", false}, {"", "[DONE]", false}}},
	{"no line end at the end", "data: a\n\ndata: [DONE]", []got{{"", "a", false}, {"", "[DONE]", false}}},
	{"colons in data", "data: a: b:c\n\n", []got{{"", "a: b:c", false}}},
	{"bare error line", "data: a\n\n{\"error\":\"x\"}\n", []got{{"", "a", false}, {"", `{"error":"x"}`, true}}},
	{"bare error at once", "{\"error\":{\"message\":\"m\"}}", []got{{"", `{"error":{"message":"m"}}`, true}}},
	{"bare error behind an open event", "data: a\n{\"error\":1}\ndata: b\n\n",
		[]got{{"", "a", false}, {"", `{"error":1}`, true}, {"", "b", false}}},
	{"bare json without error", "{\"a\":1}\ndata: a\n\n", []got{{"", "a", false}}},
	{"multi-byte", "data: žluťoučký 🦉\n\n", []got{{"", "žluťoučký 🦉", false}}},
}

func TestReader(t *testing.T) {
	for _, tc := range streams {
		t.Run(tc.name, func(t *testing.T) {
			whole, err := play(&Reader{}, []byte(tc.in))
			if err != nil || !same(whole, tc.want) {
				t.Fatalf("whole: got %v, %v, want %v", whole, err, tc.want)
			}
			if ref := model(tc.in); !same(ref, tc.want) {
				t.Fatalf("the model disagrees: %v", ref)
			}
			one, err := play(&Reader{}, bytewise(tc.in)...)
			if err != nil || !same(one, tc.want) {
				t.Fatalf("byte by byte: got %v, %v, want %v", one, err, tc.want)
			}
			for i := range len(tc.in) + 1 {
				two, err := play(&Reader{}, []byte(tc.in[:i]), []byte(tc.in[i:]))
				if err != nil || !same(two, tc.want) {
					t.Fatalf("cut at %d: got %v, %v, want %v", i, two, err, tc.want)
				}
			}
		})
	}
}

func TestCommentsAreCounted(t *testing.T) {
	r := &Reader{}
	if _, err := play(r, []byte(": a\n\n:b\ndata: x\n\n: c")); err != nil {
		t.Fatal(err)
	}
	if got := r.Comments(); got != 3 {
		t.Fatalf("got %d comments, want 3", got)
	}
}

func TestAnEventIsReadyWithItsBlankLine(t *testing.T) {
	// A lone CR may be half of CRLF, but the event must not wait for the next chunk to find out.
	for _, in := range []string{"data: a\n\n", "data: a\r\n\r\n", "data: a\r\r", "data: a\r\n\r"} {
		r := &Reader{}
		r.Feed([]byte(in))
		if ev, ok, err := r.Next(); !ok || err != nil || string(ev.Data) != "a" {
			t.Errorf("%q: got %q, %v, %v", in, ev.Data, ok, err)
		}
	}
}

func TestCap(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		fails    bool
	}{
		{"at the cap", "data: " + strings.Repeat("x", 94) + "\n\n", false},
		{"one line above", "data: " + strings.Repeat("x", 95) + "\n\n", true},
		{"line without end above", "data: " + strings.Repeat("x", 95), true},
		{"many lines above", strings.Repeat("data: xxxxxxxxxx\n", 12), true},
		{"name and data above", "event: " + strings.Repeat("n", 60) + "\ndata: " + strings.Repeat("x", 60) + "\n\n", true},
		{"many small events", strings.Repeat("data: xxxxxxxxxx\n\n", 50), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for how, chunks := range map[string][][]byte{"whole": {[]byte(tc.in)}, "bytewise": bytewise(tc.in)} {
				r := &Reader{Max: 100}
				_, err := play(r, chunks...)
				if (err != nil) != tc.fails || err != nil && !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%s: got error %v, want one: %v", how, err, tc.fails)
				}
				if tc.fails {
					if _, _, err := r.Next(); !errors.Is(err, ErrTooLarge) {
						t.Fatalf("%s: the error did not stay: %v", how, err)
					}
				}
			}
		})
	}
}

func TestAWholeEventIsNotCopied(t *testing.T) {
	chunk := []byte("event: m\ndata: {\"a\":1}\n\n")
	r := &Reader{}
	r.Feed(chunk)
	ev, ok, err := r.Next()
	if !ok || err != nil {
		t.Fatalf("got %v, %v", ok, err)
	}
	if &ev.Data[0] != &chunk[bytes.IndexByte(chunk, '{')] || &ev.Name[0] != &chunk[len("event: ")] {
		t.Fatal("the event was copied")
	}
}

func TestFeedTooEarlyIsABug(t *testing.T) {
	r := &Reader{}
	r.Feed([]byte("data: a\n\n"))
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	r.Feed([]byte("data: b\n\n"))
}

func TestNoAllocationOnTheFastPath(t *testing.T) {
	chunk := []byte(strings.Repeat("event: m\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n: c\n\n", 8))
	halves := [][]byte{chunk[:len(chunk)/2+5], chunk[len(chunk)/2+5:]}
	r := &Reader{}
	n := 0
	run := func(p []byte) {
		r.Feed(p)
		n += readertest.Drain(t, r)
	}
	if got := testing.AllocsPerRun(100, func() { run(chunk) }); got != 0 {
		t.Errorf("whole events: %v allocations, want 0", got)
	}
	run(halves[0])
	run(halves[1]) // the buffers for split events are there now
	if got := testing.AllocsPerRun(100, func() { run(halves[0]); run(halves[1]) }); got != 0 {
		t.Errorf("split events: %v allocations, want 0", got)
	}
	if n == 0 {
		t.Fatal("no event seen")
	}
}

// genStream draws streams out of the pieces that matter, in any order.
func genStream(rt *rapid.T) string {
	pieces := []string{
		"data: ", "data:", "data", "event: ", "event:x", "id: 1", "retry: 5", ":", ": ping", "{\"error\":1}", "{",
		"\"error\"", "a", "{\"a\":1}", "[DONE]", " ", "é", "\xef\xbb\xbf", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\r\r",
	}
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 40).Draw(rt, "pieces"), "")
}

func TestSplitsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := genStream(rt)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		want := model(in)
		for range 3 {
			out, err := play(&Reader{}, readertest.Split(rnd, []byte(in))...)
			if err != nil || !same(out, want) {
				rt.Fatalf("%q: got %v, %v, want %v", in, out, err, want)
			}
		}
	})
}

func FuzzReader(f *testing.F) {
	for _, tc := range streams {
		f.Add([]byte(tc.in), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		want := model(string(in))
		rnd := rand.New(rand.NewPCG(seed, 2))
		for _, chunks := range [][][]byte{{in}, readertest.Split(rnd, in)} {
			out, err := play(&Reader{}, chunks...)
			if err != nil || !same(out, want) {
				t.Fatalf("%q in %d chunks: got %v, %v, want %v", in, len(chunks), out, err, want)
			}
		}
		small := &Reader{Max: 16}
		_, errWhole := play(small, in)
		_, errSplit := play(&Reader{Max: 16}, readertest.Split(rnd, in)...)
		if (errWhole == nil) != (errSplit == nil) {
			t.Fatalf("%q: the cap depends on the split: %v, %v", in, errWhole, errSplit)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	ev := "data: " + `{"id":"c","object":"chat.completion.chunk","choices":[{"delta":{"content":"` +
		strings.Repeat("x", 200) + `"}}]}` + "\n\n"
	chunk := []byte(strings.Repeat(ev, 10))
	r := &Reader{}
	b.ReportAllocs()
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		r.Feed(chunk)
		for {
			if _, ok, _ := r.Next(); !ok {
				break
			}
		}
	}
}
