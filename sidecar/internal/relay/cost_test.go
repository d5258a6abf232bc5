package relay

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/relay/control"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// supply is a source that gives the pieces of a stream over and over, as a connection on which one arrives at a time.
type supply struct {
	pieces [][]byte
	at     int
	dry    bool
}

func (s *supply) next(block bool) ([]byte, error) {
	if !block {
		return nil, errNoBytes
	}
	p := s.pieces[s.at%len(s.pieces)]
	s.at++
	return p, nil
}

func chatEvent(i int) []byte {
	return []byte(`data: {"id":"chatcmpl-9QmTz0f3LxQb7yVw","object":"chat.completion.chunk","created":1796018863,"model":"gpt-large-2026-10-01","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" amber` + strconv.Itoa(i) + `"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
}

func messagesEvent(i int) []byte {
	return []byte("event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" amber` + strconv.Itoa(i) + `"}}` + "\n\n")
}

func responsesEvent(i int) []byte {
	return []byte("event: response.output_text.delta\ndata: " + `{"type":"response.output_text.delta","sequence_number":` + strconv.Itoa(i+10) + `,"item_id":"msg_0c8fb2a7d1e34f5a96","output_index":0,"content_index":0,"delta":" amber` + strconv.Itoa(i) + `","logprobs":[],"obfuscation":"x9QkT71bZ"}` + "\n\n")
}

func list(f func(int) []byte) (out [][]byte) {
	for i := range 256 {
		out = append(out, f(i))
	}
	return out
}

type lane struct {
	name string
	run  func(n int)
}

func product(pieces [][]byte, st adapter.Stream) func(n int) {
	c := NewClient(Config{})
	src := &supply{pieces: pieces}
	s := &Stream{c: c, src: src, rd: &sse.Reader{}, st: st, body: &body{over: true}, ans: &Answer{}}
	return func(n int) {
		for range n {
			s.advance()
			if len(s.out) == 0 {
				panic("nothing")
			}
			_, _ = io.Discard.Write(s.out)
			s.release()
		}
	}
}

func BenchmarkCost(b *testing.B) {
	r := &exchange.Request{Model: "alias", IncludeUsage: true, ID: "x", Native: nil}
	chat, msg, resp := list(chatEvent), list(messagesEvent), list(responsesEvent)
	pass := func(pieces [][]byte) func(int) {
		l, at := control.New("", ""), 0
		var dst []byte
		return func(n int) {
			for range n {
				dst = l.Pass(dst[:0], pieces[at%len(pieces)])
				at++
				_, _ = io.Discard.Write(dst)
			}
		}
	}
	trans := func() func(int) {
		l, at := control.New(`data: {"id":"x","object":"chat.completion.chunk","created":0,"model":"alias","choices":[{"index":0,"delta":{"content":"`, `"},"finish_reason":null}],"usage":null}`+"\n\n"), 0
		var dst []byte
		return func(n int) {
			for range n {
				dst = l.Translate(dst[:0], msg[at%len(msg)])
				at++
				_, _ = io.Discard.Write(dst)
			}
		}
	}
	nm := anthropic.New().Speak(exchange.MessagesDialect, &exchange.Deployment{}).Stream(r, nil)
	nr := openai.New().Speak(exchange.ResponsesDialect, &exchange.Deployment{Provider: "openai"}).Stream(r, nil)
	lanes := []lane{
		{"control-chat", pass(chat)}, {"chat", product(chat, openai.New().Stream(r, nil))},
		{"control-messages", pass(msg)}, {"messages", product(msg, nm)},
		{"control-responses", pass(resp)}, {"responses", product(resp, nr)},
		{"control-trans", trans()}, {"trans", product(msg, anthropic.New().Stream(r, nil))},
	}
	if only := os.Getenv("LANE"); only != "" {
		lanes = slices.DeleteFunc(lanes, func(l lane) bool { return l.name != only })
	}
	got := make([][]float64, len(lanes))
	allocs := make([]float64, len(lanes))
	for _, l := range lanes {
		l.run(1000)
	}
	for b.Loop() {
		for i, l := range lanes {
			var m0, m1 runtime.MemStats
			runtime.ReadMemStats(&m0)
			t0 := time.Now()
			l.run(20000)
			got[i] = append(got[i], float64(time.Since(t0))/20000)
			runtime.ReadMemStats(&m1)
			allocs[i] = float64(m1.Mallocs-m0.Mallocs) / 20000
		}
	}
	for i, l := range lanes {
		slices.Sort(got[i])
		b.Logf("%-20s %8.1f ns %6.2f allocs", l.name, got[i][len(got[i])/2], allocs[i])
	}
}
