package replica

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/hashicorp/raft"
)

// book knows where the other nodes are: where the log says, and where the own configuration says, which is all there is
// before there is a log, and may be newer when every address has changed at once. Whoever answers is asked who it is, so
// that a wrong address costs a try and nothing else.
type book struct {
	configured map[string]Peer
	logged     func(id string) (Peer, bool)

	mu   sync.Mutex
	good map[string]string // by node: the address that answered last
}

func newBook(peers []Peer, logged func(string) (Peer, bool)) *book {
	b := &book{configured: map[string]Peer{}, logged: logged, good: map[string]string{}}
	for _, p := range peers {
		b.configured[p.ID] = p
	}
	return b
}

// ServerAddr implements raft.ServerAddressProvider. To the transport a node's address is its name: where that is is
// found out at each connection.
func (b *book) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

// peer tells where a node is; false when that is not known.
func (b *book) peer(id string) (Peer, bool) {
	if p, ok := b.logged(id); ok {
		return p, true
	}
	p, ok := b.configured[id]
	p.ID = id
	return p, ok
}

// addresses lists where a node may be, the likeliest first.
func (b *book) addresses(id string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	add := func(a string) {
		for _, have := range out {
			if have == a {
				return
			}
		}
		if a != "" {
			out = append(out, a)
		}
	}
	logged, _ := b.logged(id)
	known := map[string]bool{logged.RaftAddress: true, b.configured[id].RaftAddress: true}
	if good := b.good[id]; known[good] {
		add(good)
	}
	add(logged.RaftAddress)
	add(b.configured[id].RaftAddress)
	return out
}

func (b *book) answered(id, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.good[id] = address
}

// Why a connection between nodes is refused.
var (
	// errNotPeer: the other side's certificate is valid and not a node's, or not that node's.
	errNotPeer = errors.New("certificate is not of that node")
	// errOtherNode: another node is at the address.
	errOtherNode = errors.New("another node is at that address")
	// ErrOtherCluster: the node belongs to another cluster.
	ErrOtherCluster = errors.New("the node belongs to another cluster")
	// errStranger: the node has no state and is not one of the cluster.
	errStranger = errors.New("the node is not one of the cluster")
	// ErrRemoved: this node was removed from the cluster.
	ErrRemoved = errors.New("this node was removed from the cluster: `quotad member add` takes it back")
	// errGreeting: what answers is not quotad.
	errGreeting = errors.New("what answers does not speak as a node of quotad")
	// errUngreeted: the other side does not greet, as builds of the first version do not: they end what does not begin
	// as raft does.
	errUngreeted = errors.New("the node does not greet, it runs an older build")
)

// greeting is what two nodes say to each other before raft speaks: first the one that connects, then the other.
type greeting struct {
	ID      string `json:"id"`
	To      string `json:"to,omitempty"`      // whom it wants to speak to
	Group   string `json:"group,omitempty"`   // its cluster; empty while it has none
	Level   uint32 `json:"level,omitempty"`   // the highest that it knows, see upgrade.go
	Refusal string `json:"refusal,omitempty"` // in the answer
}

// greetingMagic begins a greeting. Raft's own messages begin with a small number.
const greetingMagic = "quotad/1"

// refusals by their name in a greeting.
var refusals = map[string]error{
	"node": errOtherNode, "cluster": ErrOtherCluster, "stranger": errStranger, "removed": ErrRemoved,
	"certificate": errNotPeer,
}

// verdict judges who connects. own is what this node says of itself.
func (b *book) verdict(own, from greeting, removed func(id string) bool) (refusal string) {
	_, known := b.peer(from.ID)
	switch {
	case from.To != own.ID:
		return "node"
	case own.Group != "" && from.Group != "" && own.Group != from.Group:
		return "cluster"
	case removed(from.ID):
		return "removed"
	case own.Group != "" && from.Group == "" && !known:
		return "stranger"
	}
	// A node of the same cluster that is not known here may be newer than what this node has heard of.
	return ""
}

func writeGreeting(w io.Writer, g greeting) error {
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint16([]byte(greetingMagic), uint16(len(b))), b...))
	return err
}

func readGreeting(r io.Reader) (g greeting, err error) {
	var head [len(greetingMagic) + 2]byte
	switch n, err := io.ReadFull(r, head[:]); {
	case n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return g, errUngreeted
	case err != nil:
		return g, fmt.Errorf("%w: %w", errGreeting, err)
	case string(head[:len(greetingMagic)]) != greetingMagic:
		return g, errGreeting
	}
	n := binary.BigEndian.Uint16(head[len(greetingMagic):])
	if n > greetingBytesMax {
		return g, fmt.Errorf("%w: %d bytes", errGreeting, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return g, fmt.Errorf("%w: %w", errGreeting, err)
	}
	if err := json.Unmarshal(b, &g); err != nil || g.ID == "" {
		return g, errGreeting
	}
	return g, nil
}
