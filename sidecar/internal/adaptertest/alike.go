package adaptertest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Alike plays events to two streams, of which one has forgotten before each what it could take a shorter way for. Both
// must give the same bytes, progress, counts and end. name is that of the events.
func Alike(t *testing.T, fast, slow adapter.Stream, forget func(), name string, events ...string) {
	t.Helper()
	same := func(what string, x, y any) {
		t.Helper()
		if x != y {
			t.Fatalf("%s\nfast %s\nslow %s", what, x, y)
		}
	}
	for _, ev := range events {
		forget()
		x, px := fast.Event(nil, []byte(name), []byte(ev))
		y, py := slow.Event(nil, []byte(name), []byte(ev))
		same(ev, string(x), string(y))
		if px.Real != py.Real || px.Done != py.Done || (px.Failure == nil) != (py.Failure == nil) {
			t.Fatalf("%s\nfast %+v\nslow %+v", ev, px, py)
		}
		if fast.Delivered() != slow.Delivered() {
			t.Fatalf("%s\nfast %+v\nslow %+v", ev, fast.Delivered(), slow.Delivered())
		}
		if len(ev)%3 == 0 && fast.Usage() != slow.Usage() { // not each time: to ask may have an effect
			t.Fatalf("%s\nfast %+v\nslow %+v", ev, fast.Usage(), slow.Usage())
		}
	}
	forget()
	x, fx := fast.End(nil)
	y, fy := slow.End(nil)
	same("the end", string(x), string(y))
	if (fx == nil) != (fy == nil) || fast.Usage() != slow.Usage() {
		t.Fatalf("the end\nfast %+v %+v\nslow %+v %+v", fx, fast.Usage(), fy, slow.Usage())
	}
	f := &exchange.Failure{Kind: exchange.FailCut, Message: "cut"}
	same("broken off", string(fast.Abort(nil, f)), string(slow.Abort(nil, f)))
}

// Pieces are a text of sixteen parts for Likes, escaped: letters, escapes of all sorts, and halves of surrogate pairs.
var Pieces = strings.Repeat(`abcdef`+`\n\"<b`+`\u00e9`+"é\\té", 2) + strings.Repeat(`\ud83d`+`\ude00`+`\\\\ &`+`ghijkl`, 2)

// Likes are sixteen events that are like one of two, bit by bit of order: with a growing part of text for each ~ in them, and
// a number for each #.
func Likes(first, second, text string, order uint16) (events []string) {
	for i := range 16 {
		ev := first
		if order>>i&1 == 1 {
			ev = second
		}
		ev = strings.ReplaceAll(ev, "~", text[:len(text)*i/16])
		events = append(events, strings.ReplaceAll(ev, "#", strconv.Itoa(i*int(order))))
	}
	return events
}

// AddChunks gives a fuzzer that plays Likes to a face the chat chunks to begin with.
func AddChunks(f *testing.F) {
	const head = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","choices":[{"index":0,"delta":`
	text := head + `{"content":"~"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"~x"}`
	for _, delta := range []string{
		`{"reasoning_content":"~","content":null},"finish_reason":null}]}`, `{"reasoning_content":"~","reasoning_details":[{"type":"reasoning.text","index":#,"text":"~"}]}}]}`,
		`{"role":"assistant","content":"~","refusal":""}}],"service_tier":"flex"}`, `{"content":"~","refusal":"~"}}]}`, `{"refusal":"~"}}]}`,
		`{"content":"~"},"logprobs":{"content":[{"token":"~"}]}}]}`, `{"content":"~"},"finish_reason":"length"}]}`, `{"content":"~"},"logprobs":{"content":[{"token":"a"}]}}]}`,
		`{"tool_calls":[{"index":#,"id":"i","function":{"name":"f","arguments":"~"}}]}}]}`, `{"content":"~","annotations":[{"type":"url_citation","url_citation":{"url":"~"}}]}}]}`,
		`{"content":"~","content":"a"}}]}`, `{"content":"~","content":"b"}},{"delta":{"content":"~"}}],"x_gateway":{"a":#}}`, `{"images":[{"image_url":{"url":"data:image/png;base64,~"}}]}}]}`,
	} {
		f.Add(text, head+delta, Pieces, uint16(0x0ff0))
		f.Add(head+delta, text, Pieces, uint16(0x3333))
		f.Add(head+delta, text, `"},{"`, uint16(0x0ff0))
	}
}

// Chunked is a stream of chat chunks for faces: its events are the chunks, and so is its End, unless that is empty.
type Chunked struct {
	adapter.Stream // nil
	Last           string
	sent           adapter.Delivered
}

// Event implements adapter.Stream. What is no JSON object makes no chunk.
func (s *Chunked) Event(dst, _, data []byte) ([]byte, adapter.Progress) {
	if len(data) == 0 || data[0] != '{' || !adapter.Valid(data) {
		return dst, adapter.Progress{}
	}
	line := strings.NewReplacer("\r", "", "\n", "").Replace(string(data))
	s.sent.Pieces++
	return append(append(append(dst, "data: "...), line...), "\n\n"...), adapter.Progress{Real: true}
}

// End implements adapter.Stream.
func (s *Chunked) End(dst []byte) ([]byte, *exchange.Failure) {
	return append(append(append(dst, "data: "...), s.Last...), "\n\ndata: [DONE]\n\n"...), nil
}

// Abort implements adapter.Stream.
func (s *Chunked) Abort(dst []byte, f *exchange.Failure) []byte {
	return adapter.AppendAbort(dst, f, 0)
}

// Usage implements adapter.Stream.
func (s *Chunked) Usage() exchange.Usage { return exchange.Usage{Source: exchange.FromEstimate} }

// Delivered implements adapter.Stream.
func (s *Chunked) Delivered() adapter.Delivered { return s.sent }
