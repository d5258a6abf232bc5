package adapter

import "slices"

// Turns is the messages array in the making. The provider wants user and assistant to alternate, so messages of one
// role that follow each other become one turn.
type Turns struct {
	body []byte // without the outer brackets; the last turn is still open
	role string // of the open turn, "" before the first
	// results is where the results of tools in the open turn end. The provider wants them before all else in a turn.
	results int
	start   int // of the open turn's blocks
	block   int // where the last one begins, behind its comma
}

// NewTurns makes room for what becomes of a body of size bytes: about as much, in most cases.
func NewTurns(size int) Turns {
	const more = 96
	return Turns{body: make([]byte, 0, size+more)}
}

// Any reports whether there is a turn.
func (t *Turns) Any() bool { return t.role != "" }

// Role is the open turn's, "" before the first.
func (t *Turns) Role() string { return t.role }

// Begin begins a block of a turn of the role, which is user, assistant or system. What is appended to dst becomes the
// block when Keep or KeepResult gets it.
func (t *Turns) Begin(role string) (dst []byte) {
	if t.role != role {
		if t.role != "" {
			t.body = append(t.body, `]},`...)
		}
		t.body = append(append(append(t.body, `{"role":"`...), role...), `","content":[`...)
		t.role, t.start, t.results = role, len(t.body), len(t.body)
	}
	dst = Comma(t.body, t.start)
	t.block = len(dst)
	return dst
}

// Keep takes a block.
func (t *Turns) Keep(dst []byte) { t.body = dst }

// KeepResult takes a block that is a tool's result: it goes behind the results that are there and before other blocks.
func (t *Turns) KeepResult(dst []byte) {
	before, block := len(t.body), t.block
	t.body = dst
	if t.results == before {
		t.results = len(dst)
		return
	}
	result := slices.Clone(dst[block:])
	others := dst[t.results:before] // with a comma before them, if there are results
	copy(dst[len(dst)-len(others):], others)
	if t.results == t.start {
		copy(dst[t.results:], result)
		t.results += len(result)
		dst[t.results] = ','
		return
	}
	dst[t.results] = ','
	copy(dst[t.results+1:], result)
	t.results += 1 + len(result)
}

// Close ends the last turn and returns the turns, comma separated.
func (t *Turns) Close() []byte {
	if t.role != "" {
		t.body = append(t.body, `]}`...)
		t.role = ""
	}
	return t.body
}
