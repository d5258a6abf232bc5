package relay

import (
	"io"
	"strings"
	"testing"
)

func BenchmarkOpenComplete(b *testing.B) {
	u := serve(b, once(plain(200, "application/json", okBody), false))
	c := newClient(b, Config{})
	b.ReportAllocs()
	for b.Loop() {
		if _, f := open(c, nil, u.url, false); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkStreamOf100Events(b *testing.B) {
	u := serve(b, once(whole(role, strings.Repeat(hello, 100), finish, usage, done), false))
	c := newClient(b, Config{})
	b.ReportAllocs()
	for b.Loop() {
		s := mustStream(b, c, u.url)
		if _, err := s.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
		_ = s.Close()
	}
}

// BenchmarkBufferPool shows what lending a buffer per batch costs against keeping one per stream, which would hold its
// size for as long as the stream is open.
func BenchmarkBufferPool(b *testing.B) {
	c := NewClient(Config{})
	b.Run("lent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.giveBack(c.buffer())
		}
	})
	b.Run("made", func(b *testing.B) {
		b.ReportAllocs()
		var sink []byte
		for b.Loop() {
			sink = make([]byte, 0, batchBytes)
		}
		_ = sink
	})
}
