package sim

import (
	"fmt"
	"io"
	"time"
)

// tape is the event log. Its hash is always made, its text only when somebody reads it.
type tape struct {
	hash uint64
	out  io.Writer // nil: no text
	err  error
}

func newTape(out io.Writer) tape { return tape{hash: 14695981039346656037, out: out} }

// note adds one line: when, who ("" is the world), what, and numbers about it.
func (t *tape) note(now time.Duration, who, what string, numbers ...int64) {
	t.add(uint64(now))
	for _, s := range [2]string{who, what} {
		for i := range len(s) {
			t.hash = (t.hash ^ uint64(s[i])) * 1099511628211
		}
	}
	for _, n := range numbers {
		t.add(uint64(n))
	}
	if t.out != nil && t.err == nil {
		_, t.err = fmt.Fprintf(t.out, "%13.6f  %-9s %-24s %v\n", now.Seconds(), who, what, numbers)
	}
}

// add is FNV-1a of eight bytes.
func (t *tape) add(x uint64) {
	for range 8 {
		t.hash = (t.hash ^ x&255) * 1099511628211
		x >>= 8
	}
}
