package adapter

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// said is an inner stream that appends what it is made of: at an event, and at its end.
type said struct {
	Stream
	event, end string
	fault      *exchange.Failure
}

func (s said) Event(dst, _, _ []byte) ([]byte, Progress) {
	return append(dst, s.event...), Progress{Real: true, Failure: s.fault}
}
func (s said) End(dst []byte) ([]byte, *exchange.Failure) { return append(dst, s.end...), s.fault }
func (s said) Abort(dst []byte, f *exchange.Failure) []byte {
	return AppendAbort(dst, f, 0)
}

// teller tells the a of a chunk, and cannot tell nine.
type teller struct{ Teller }

func (teller) Tell(dst []byte, chunk gjson.Result) ([]byte, *exchange.Failure) {
	dst = append(dst, chunk.Get("a").Raw...)
	if chunk.Get("a").Int() == 9 {
		return dst, InvalidAnswer("nine")
	}
	return dst, nil
}

// TestRetold: every chunk is told once, in order, [DONE] and comments never; of an event that cannot be told, and of one
// that failed, nothing is left.
func TestRetold(t *testing.T) {
	const two = "data: {\"a\":1}\n\ndata: {\"a\":2}\n\n"
	r := Retold{Stream: said{event: two, end: "data: {\"a\":3}\n\n: x\n\ndata: \n\ndata: [DONE]\n\n"}}
	dst, p := r.Pass([]byte("<"), nil, nil, teller{})
	if string(dst) != "<12" || !p.Real || p.Failure != nil {
		t.Errorf("%s %+v", dst, p)
	}
	if dst, f := r.Finish(dst, teller{}); string(dst) != "<123" || f != nil {
		t.Errorf("%s %+v", dst, f)
	}
	r.Stream = said{event: two + "data: {\"a\":9}\n\n", end: "data: {\"a\":9}\n\n"}
	if dst, p := r.Pass([]byte("<"), nil, nil, teller{}); string(dst) != "<" || p.Failure == nil {
		t.Errorf("%s %+v", dst, p)
	}
	if dst, f := r.Finish([]byte("<"), teller{}); string(dst) != "<" || f == nil {
		t.Errorf("%s %+v", dst, f)
	}
	r.Stream = said{event: two, end: two, fault: InvalidAnswer("broken")}
	if dst, p := r.Pass([]byte("<"), nil, nil, teller{}); string(dst) != "<" || p.Failure == nil {
		t.Errorf("%s %+v", dst, p)
	}
	if dst, f := r.Finish([]byte("<"), teller{}); string(dst) != "<" || f == nil {
		t.Errorf("%s %+v", dst, f)
	}
	if got := r.Fault(InvalidAnswer("why")).Get("message").Str; got != "why" {
		t.Error(got)
	}
}
