package openai

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func startNative() *nativeStream {
	r := &exchange.Request{Dialect: exchange.ResponsesDialect, Model: "alias", ID: "r1"}
	return native{New()}.Stream(r, note).(*nativeStream)
}

// slowly makes every event take the long way.
func (s *nativeStream) slowly(dst, name, data []byte) ([]byte, adapter.Progress) {
	s.templates = templates{}
	return s.Event(dst, name, data)
}

// named is an event of the Responses API: its name, a colon, its data.
func named(kind, members string) string { return kind + `:{"type":"` + kind + `",` + members + `}` }

func textDelta(seq, item, text, pad string) string {
	return named("response.output_text.delta",
		`"sequence_number":`+seq+`,"item_id":"m","output_index":`+item+`,"content_index":0,"delta":"`+text+`","logprobs":[],"obfuscation":"`+pad+`"`)
}

// alike plays events to two streams, of which one never takes the fast path. It reports how many the other one took it for.
func alike(t *testing.T, events []string) (taken int) {
	t.Helper()
	fast, slow := startNative(), startNative()
	for _, ev := range events {
		name, data, _ := strings.Cut(ev, ":")
		if fast.last == nil && fast.broken == nil {
			if _, _, ok := fast.templates.translate(nil, []byte(name), bytes.TrimSpace([]byte(data))); ok {
				taken++
			}
		}
		x, px := fast.Event(nil, []byte(name), []byte(data))
		y, py := slow.slowly(nil, []byte(name), []byte(data))
		if !bytes.Equal(x, y) || px.Real != py.Real || px.Done != py.Done || (px.Failure == nil) != (py.Failure == nil) ||
			fast.seq != slow.seq || fast.delivered != slow.delivered || len(fast.heard) != len(slow.heard) {
			t.Fatalf("%s\nfast %+v %+v, next %d: %s\nslow %+v %+v, next %d: %s", ev, px, fast.delivered, fast.seq, x, py, slow.delivered, slow.seq, y)
		}
	}
	if x, y := fast.Abort(nil, brokeOff("abort")), slow.Abort(nil, brokeOff("abort")); !bytes.Equal(x, y) {
		t.Fatalf("at the end\nfast %s\nslow %s", x, y)
	}
	return taken
}

// TestNativeFastEqualsSlow: an event of the Responses API gives the same bytes, count and state whether a template is
// found for it or not; taken says for how many one must be found.
func TestNativeFastEqualsSlow(t *testing.T) {
	arguments := func(seq, text string) string {
		return named("response.function_call_arguments.delta", `"sequence_number":`+seq+`,"item_id":"f","output_index":1,"delta":"`+text+`"`)
	}
	for name, c := range map[string]struct {
		events []string
		taken  int
	}{
		"text":           {[]string{textDelta("4", "0", "a", "x"), textDelta("5", "0", "b é😀", "long"), textDelta("10", "0", `\"\n`, "")}, 2},
		"code points":    {[]string{textDelta("4", "0", "a", "x"), textDelta("5", "0", `\u00e9\ud83d\ude00`, "x"), textDelta("6", "0", `\ud83d`, "x"), textDelta("7", "0", `\ud83d\u0041`, "x")}, 1}, // the first
		"empty":          {[]string{textDelta("4", "0", "a", "x"), textDelta("5", "0", "", "x")}, 1},
		"empty first":    {[]string{textDelta("4", "0", "", "x"), textDelta("5", "0", "a", "x")}, 0},
		"another item":   {[]string{textDelta("4", "0", "a", "x"), textDelta("5", "1", "a", "x"), textDelta("6", "1", "b", "x"), textDelta("7", "0", "c", "x")}, 2},
		"two kinds":      {[]string{textDelta("4", "0", "a", "x"), arguments("5", "{"), textDelta("6", "0", "b", "x"), arguments("7", "}")}, 2},
		"odd numbers":    {[]string{textDelta("4", "0", "a", "x"), textDelta("-5", "0", "b", "x"), textDelta("5.5", "0", "b", "x"), textDelta("1e3", "0", "b", "x"), textDelta("12345678901234567890", "0", "b", "x"), textDelta(`"5"`, "0", "b", "x"), textDelta("0", "0", "b", "x")}, 1}, // the last
		"leading zeros":  {[]string{textDelta("4", "0", "a", "x"), textDelta("05", "0", "b", "x")}, 0},
		"other name":     {[]string{textDelta("4", "0", "a", "x"), "x" + textDelta("5", "0", "b", "x")}, 0},
		"broken":         {[]string{textDelta("4", "0", "a", "x"), strings.TrimSuffix(textDelta("5", "0", "b", "x"), "}")}, 0},
		"line ends":      {[]string{strings.Replace(textDelta("4", "0", "a", "x"), ",", ",\n", 1), strings.Replace(textDelta("5", "0", "b", "x"), ",", ",\n", 1)}, 0},
		"without number": {[]string{named("response.output_text.delta", `"delta":"a"`), named("response.output_text.delta", `"delta":"b"`)}, 0},
		"behind its end": {[]string{textDelta("4", "0", "a", "x"), named("response.completed", `"response":{"id":"r","model":"m"}`), textDelta("5", "0", "b", "x")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if taken := alike(t, c.events); taken != c.taken {
				t.Errorf("%d took the fast path, want %d", taken, c.taken)
			}
		})
	}
}

// FuzzNativeFast: as above, for events that nobody thought of.
func FuzzNativeFast(f *testing.F) {
	f.Add(`"sequence_number":4,"output_index":0,"delta":"a"`, `"sequence_number":5,"output_index":0,"delta":"b\n"`, "x", uint8(0x55))
	f.Add(`"delta":"a","sequence_number":1,"obfuscation":"p"`, `"delta":"b","sequence_number":2,"obfuscation":""`, "1", uint8(3))
	f.Add(`"sequence_number":4,"delta":"a","response":{"model":"m"}`, `"sequence_number":4,"delta":"a","partial_image_b64":"x"`, "01", uint8(9))
	f.Fuzz(func(t *testing.T, first, second, pad string, order uint8) {
		var events []string
		for i := range 8 {
			members := first
			if order>>i&1 == 1 {
				members = second
			}
			events = append(events, named("response.x.delta", `"sequence_number":`+strconv.Itoa(i)+`,`+members+`,"obfuscation":"`+pad[:len(pad)*i/8]+`"`))
		}
		alike(t, events)
	})
}

// TestNativeDeltaAllocatesNothing: nearly all events of a stream are deltas of text.
func TestNativeDeltaAllocatesNothing(t *testing.T) {
	s := startNative()
	name, data, _ := strings.Cut(textDelta("4", "0", " amber", "x9Q"), ":")
	kind, ev, buf := []byte(name), []byte(data), make([]byte, 0, 4096)
	s.Event(buf, kind, ev)
	if n := testing.AllocsPerRun(100, func() { s.Event(buf, kind, ev) }); n != 0 {
		t.Errorf("%v allocations a delta, want none", n)
	}
}
