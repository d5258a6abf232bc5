package control

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const stream = "event: a\r\ndata: {\"x\":1}\r\n\r\n: comment\n\ndata: one\ndata: two\n\ndata: cr\r\r" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"more\":{\"n\":1}}}\n\ndata: {\"usage\":null}\n\n"

// TestPass: however a stream is split, its bytes go out as they came, its events are counted, and its usage is found.
func TestPass(t *testing.T) {
	for range 500 {
		l := New("", "")
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

func TestTranslate(t *testing.T) {
	in := "event: message_start\ndata: {\"type\":\"message_start\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\\"b\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n"
	for size := 1; size <= len(in); size++ {
		l := New("<", ">")
		var out []byte
		for rest := []byte(in); len(rest) > 0; {
			n := min(size, len(rest))
			out = l.Translate(out, rest[:n])
			rest = rest[n:]
		}
		if string(out) != `<a\"b>` || !strings.Contains(string(l.Usage), "7") {
			t.Fatalf("in pieces of %d: %q, usage %q", size, out, l.Usage)
		}
	}
}
