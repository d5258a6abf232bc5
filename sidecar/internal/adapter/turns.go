package adapter

import "slices"

// Turns is the messages array in the making. The provider wants user and assistant to alternate, so messages of one
// role that follow each other become one turn.
type Turns struct {
	body []byte // without the outer brackets; the last turn is still open
	role string // of the open turn, "" before the first
	// results is where the next result of a tool of the open turn goes. The provider wants them before all else in a turn.
	results int
	start   int // of the open turn's blocks
}

// Any reports whether there is a turn.
func (t *Turns) Any() bool { return t.role != "" }

// Role is the open turn's, "" before the first.
func (t *Turns) Role() string { return t.role }

// Block adds one block to a turn of the role, which is user, assistant or system.
func (t *Turns) Block(role string, block []byte) {
	t.open(role)
	if len(t.body) > t.start {
		t.body = append(t.body, ',')
	}
	t.body = append(t.body, block...)
}

// Result adds a tool's result to a user turn, behind the results that are there and before other blocks.
func (t *Turns) Result(block []byte) {
	t.open("user")
	at := t.results
	switch {
	case len(t.body) == t.start:
		t.body = append(t.body, block...)
		t.results = len(t.body)
	case at == t.start:
		t.body = slices.Insert(t.body, at, append(block, ',')...)
		t.results = at + len(block)
	default:
		t.body = slices.Insert(t.body, at, append([]byte{','}, block...)...)
		t.results = at + 1 + len(block)
	}
}

func (t *Turns) open(role string) {
	if t.role == role {
		return
	}
	if t.role != "" {
		t.body = append(t.body, `]},`...)
	}
	t.body = append(t.body, `{"role":"`+role+`","content":[`...)
	t.role, t.start, t.results = role, len(t.body), len(t.body)
}

// Close ends the last turn and returns the turns, comma separated.
func (t *Turns) Close() []byte {
	if t.role != "" {
		t.body = append(t.body, `]}`...)
		t.role = ""
	}
	return t.body
}

// NewTurns makes room for size bytes.
func NewTurns(size int) Turns { return Turns{body: make([]byte, 0, size)} }
