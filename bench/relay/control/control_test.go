package control

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
)

const stream = "event: a\r\ndata: {\"x\":1}\r\n\r\n: comment\n\ndata: one\ndata: two\n\ndata: cr\r\r" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"more\":{\"n\":1}}}\n\ndata: {\"usage\":null}\n\n"

// TestPass: however a stream is split, its bytes go out as they came, its events are counted, and its usage is found.
func TestPass(t *testing.T) {
	for range 500 {
		l := New()
		var out []byte
		for rest := []byte(stream); len(rest) > 0; {
			n := 1 + rand.IntN(min(len(rest), 30))
			out = l.Pass(out, rest[:n])
			rest = rest[n:]
		}
		if string(out) != stream || l.Events != 6 || string(l.Usage) != `{"prompt_tokens":3,"more":{"n":1}}` {
			t.Fatalf("%d events, usage %s, %q", l.Events, l.Usage, out)
		}
	}
}

// TestTranslate: however a stream is split, its texts come out in chunks, numbered if they have a number, and its usage is
// found.
func TestTranslate(t *testing.T) {
	in := "event: message_start\ndata: {\"type\":\"message_start\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\\"b\"},\"usage\":{\"n\":3}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"c\"}}\n\n"
	end := "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n"
	wire := Wire{Text: `text_delta","text":"`, Usage: `usage":{`}
	for size := 1; size <= len(in+end); size++ {
		for _, c := range []struct {
			from  Wire
			to    Chunk
			in    string
			want  string
			usage string
		}{
			{wire, Chunk{Head: "<", Tail: ">"}, in + end, `<a\"b><c>`, `{"output_tokens":7}`},
			{wire, Chunk{Head: "<", Middle: ":", Tail: ">", Number: 9}, in, `<9:a\"b><10:c>`, `{"n":3}`},
			{Wire{Text: wire.Text, Usage: wire.Usage, Apart: true}, Chunk{Head: "<", Tail: ">"}, in, `<a\"b><c>`, ""},
		} {
			l := NewTranslation(c.from, c.to)
			var out []byte
			for piece := range slices.Chunk([]byte(c.in), size) {
				out = l.Translate(out, piece)
			}
			if string(out) != c.want || string(l.Usage) != c.usage {
				t.Fatalf("in pieces of %d: %q, usage %q, want %q, %q", size, out, l.Usage, c.want, c.usage)
			}
		}
	}
}

// frame is one of AWS's.
func frame(headers, payload string) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(preludeBytes+len(headers)+len(payload)+trailerBytes))
	f = binary.BigEndian.AppendUint32(f, uint32(len(headers)))
	f = binary.BigEndian.AppendUint32(f, crc32.ChecksumIEEE(f))
	f = append(append(f, headers...), payload...)
	return binary.BigEndian.AppendUint32(f, crc32.ChecksumIEEE(f))
}

// TestTranslateFrames: the same of frames, and a damaged byte anywhere in one is noticed: it makes no chunk.
func TestTranslateFrames(t *testing.T) {
	start := func() *Loop {
		return NewTranslation(Wire{Event: "delta", Text: `text":"`, Usage: `usage":{`, Apart: true}, Chunk{Head: "<", Tail: ">"})
	}
	one, all := frame("h delta", `{"delta":{"text":"a\"b"}}`), []byte(nil)
	all = append(append(append(all, one...), append(frame("delta", `{"delta":{"text":"c"}}`), frame("", `{"delta":{"text":"d"}}`)...)...), frame("h", `{"usage":{"n":7}}`)...)
	for size := 1; size <= len(all); size++ {
		l := start()
		var out []byte
		for piece := range slices.Chunk(all, size) {
			out = l.TranslateFrames(out, piece)
		}
		if string(out) != `<a\"b><c>` || l.Events != 4 || string(l.Usage) != `{"n":7}` || l.Broken {
			t.Fatalf("in pieces of %d: %d events, %q, usage %q", size, l.Events, out, l.Usage)
		}
	}
	for i := range one {
		bad := bytes.Clone(all)
		bad[i] ^= 0x10
		l := start()
		if out := l.TranslateFrames(nil, bad); len(out) > 0 || !l.Broken {
			t.Errorf("byte %d is damaged: %q", i, out)
		}
	}
}
