package relay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http/httputil"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// dechunk runs a chunker over parts; rest is what lies behind the body.
func dechunk(parts ...[]byte) (body []byte, ended bool, rest int, err error) {
	var c chunker
	for _, p := range parts {
		for len(p) > 0 {
			if c.state == chunkEnd {
				rest += len(p)
				break
			}
			if c.state == chunkData {
				n := min(int64(len(p)), c.left)
				body = append(body, p[:n]...)
				c.took(int(n))
				p = p[n:]
				continue
			}
			n, err := c.advance(p)
			if err != nil {
				return body, false, 0, err
			}
			p = p[n:]
		}
	}
	return body, c.state == chunkEnd, rest, nil
}

func TestChunker(t *testing.T) {
	for _, tc := range []struct {
		name, in, body string
		ended, bad     bool
	}{
		{"one", "3\r\nabc\r\n0\r\n\r\n", "abc", true, false},
		{"two", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc", true, false},
		{"none", "0\r\n\r\n", "", true, false},
		{"upper case and leading zeros", "00A\r\n0123456789\r\n000\r\n\r\n", "0123456789", true, false},
		{"extension", "3;a=b\r\nabc\r\n0;x\r\n\r\n", "abc", true, false},
		{"space after the size", "3 \r\nabc\r\n0\r\n\r\n", "abc", true, false},
		{"trailers", "1\r\na\r\n0\r\nX: 1\r\nY: 2\r\n\r\n", "a", true, false},
		{"cut in data", "5\r\nab", "ab", false, false},
		{"cut in size", "1\r\na\r\n1", "a", false, false},
		{"cut in the last line", "1\r\na\r\n0\r\n", "a", false, false},
		{"not hex", "zz\r\n", "", false, true},
		{"negative", "-1\r\n", "", false, true},
		{"empty size", "\r\n", "", false, true},
		{"only an extension", ";a\r\n", "", false, true},
		{"huge", "fffffffffffffffff\r\n", "", false, true},
		{"overrun", "3\r\nabcdef\r\n", "abc", false, true},
		{"lone LF", "3\nabc\n0\n\n", "", false, true},
		{"LF in the extension", "3;a\nabc", "", false, true},
		{"LF in a trailer", "0\r\nX: 1\n\r\n", "", false, true},
		{"CR without LF", "3\rabc", "", false, true},
		{"endless extension", "3;" + strings.Repeat("x", metaBytesMax+1), "", false, true},
		{"endless trailers", "0\r\n" + strings.Repeat("X: 1\r\n", metaBytesMax), "", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			single := make([][]byte, len(tc.in))
			for i := range single {
				single[i] = []byte{tc.in[i]}
			}
			for how, parts := range map[string][][]byte{"whole": {[]byte(tc.in)}, "bytewise": single} {
				body, ended, _, err := dechunk(parts...)
				if string(body) != tc.body || ended != tc.ended || (err != nil) != tc.bad {
					t.Fatalf("%s: got %q, ended %v, %v", how, body, ended, err)
				}
			}
		})
	}
}

func TestChunkerReadsWhatAWriterWrote(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var in bytes.Buffer
		var want []byte
		w := httputil.NewChunkedWriter(&in)
		for range rapid.IntRange(0, 5).Draw(rt, "chunks") {
			p := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(rt, "chunk")
			want = append(want, p...)
			_, _ = w.Write(p)
		}
		_ = w.Close()
		in.WriteString("\r\nNEXT")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		got, ended, rest, err := dechunk(cut(rnd, in.Bytes())...)
		if err != nil || !ended || rest != len("NEXT") || !bytes.Equal(got, want) {
			rt.Fatalf("got %q, ended %v, rest %d, %v, want %q", got, ended, rest, err, want)
		}
	})
}

func cut(rnd *rand.Rand, p []byte) [][]byte {
	var out [][]byte
	for len(p) > 0 {
		n := 1 + rnd.IntN(len(p))
		out = append(out, p[:n])
		p = p[n:]
	}
	return out
}

func FuzzChunker(f *testing.F) {
	for _, s := range []string{"3\r\nabc\r\n0\r\n\r\n", "3;a=b\r\nabc\r\n0\r\nX: 1\r\n\r\n", "-1\r\n", "3\nabc\n", "5\r\nab"} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		body, ended, rest, err := dechunk(in)
		split, endedSplit, restSplit, errSplit := dechunk(cut(rand.New(rand.NewPCG(seed, 4)), in)...)
		if !bytes.Equal(body, split) || ended != endedSplit || rest != restSplit || (err == nil) != (errSplit == nil) {
			t.Fatalf("%q: the split matters: %q %v %d %v, %q %v %d %v", in, body, ended, rest, err, split, endedSplit,
				restSplit, errSplit)
		}
		// Whatever is accepted here, a laxer reader reads the same way.
		if err == nil && ended && !bytes.ContainsAny(in, ";") {
			lax, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(in)))
			if err == nil && !bytes.Equal(lax, body) {
				t.Fatalf("%q: got %q, net/http %q", in, body, lax)
			}
		}
	})
}
