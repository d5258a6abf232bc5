package gateway

import (
	"sync"

	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
)

const (
	// earlierMax is how many answers are kept in mind, the newest: about 1 MB.
	earlierMax = 8192
	// earlierIDBytesMax bounds the id of an answer or a conversation. A longer one is not kept in mind.
	earlierIDBytesMax = 128
	// earlierUnseen is what the earlier turns are taken for that a request names and no answer in mind has.
	earlierUnseen = 20_000
)

// earlier keeps in mind how long conversations have become that the provider keeps: a request of the Responses API names
// the answer before it, and its turns are in the prompt. The zero value is ready.
type earlier struct {
	mu     sync.Mutex
	tokens map[string]int64
	ring   [earlierMax]string // of their ids
	next   int
}

// of is the tokens of an answer and all before it. known is false, and it is earlierUnseen, when it is not in mind: another
// sidecar may have seen it.
func (e *earlier) of(id string) (tokens int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n, ok := e.tokens[id]; ok {
		return n, true
	}
	return earlierUnseen, false
}

// learn takes in how long an answer has made a conversation.
func (e *earlier) learn(id string, tokens int64) {
	if id == "" || len(id) > earlierIDBytesMax {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tokens == nil {
		e.tokens = map[string]int64{}
	}
	if _, there := e.tokens[id]; !there {
		delete(e.tokens, e.ring[e.next])
		e.ring[e.next] = id
		e.next = (e.next + 1) % earlierMax
	}
	e.tokens[id] = tokens
}

// measure says what the prompt is, as far as it is known: what was sent, and the turns before it.
func (g *Gateway) measure(f *flow) {
	f.input = estimate.Input{Bytes: f.req.InputBytes, Messages: f.req.Messages, Extra: f.req.InputExtra}
	if f.req.Earlier == "" {
		return
	}
	turns, known := g.earlier.of(f.req.Earlier)
	f.input.Extra, f.unseen = f.input.Extra+turns, !known
}
