// Package replica is one node of the Raft group: it orders operations, applies them to the state machines and keeps
// their state on disk.
//
// A caller proposes operations and gets their results after they are committed and applied; it reads the state under
// a lock, locally or after a check that this node still leads; and it watches for what it should push on. DESIGN.md
// has the order of events at start, at an election and at the end.
package replica

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Peer is one node of the cluster, this one included.
type Peer struct {
	ID            string // stable name, for example quotad-0; in production also in its certificate
	RaftAddress   string // host:port other nodes reach it at; resolved at each connection
	ClientAddress string // host:port of its sidecar plane, told to sidecars that ask the wrong node
	AdminAddress  string // host:port of its admin plane
}

// Config configures a Node.
type Config struct {
	ID            string // this node's name
	DataDir       string // directory of its files; made when absent
	RaftListen    string // host:port to listen on for peers
	RaftAdvertise string // host:port peers reach it at; default: its address in Peers, else RaftListen
	Peers         []Peer // all nodes, the same on each; empty means a cluster of this node alone
	// Bootstrap lets a node with an empty directory form the cluster out of Peers. Without it an empty node waits to
	// be contacted by a leader. It has no effect on a node that has state. A node without any asks all peers first, and
	// when one of them belongs to a cluster waits to be contacted too.
	Bootstrap bool
	// TLS returns the certificates of both directions, as they are now; nil speaks plain TCP: development only.
	TLS func() *tls.Config

	HeartbeatTimeout   time.Duration // default 350 ms
	ElectionTimeout    time.Duration // default 350 ms
	LeaderLeaseTimeout time.Duration // default 200 ms

	// WallOf asks another node what its wall clock shows: a month turns for all when it has turned for two. Nil where
	// there is nobody to ask.
	WallOf func(ctx context.Context, p Peer) (time.Time, error)
	Build  string // version of the program, noted in the directory

	FlushEvery time.Duration // how often the state file is written; default 30 s; the log covers the gap
	Ledger     ledger.Config // the same on each node

	// Listen and Dial are TCP unless they are set. With Transport set, they, RaftListen and TLS are not used.
	Listen    func(network, address string) (net.Listener, error)
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Transport raft.Transport

	wrapLog func(raft.LogStore) raft.LogStore // for tests: a disk that hangs
	disk    diskBounds                        // for tests: smaller ones
	older   bool                              // for tests: it knows level 0 alone
}

// Outcomes of a call that did nothing, or may have. Test with errors.Is, and errors.As for ErrNotLeader.
var (
	// ErrNoLeader: no node leads as far as this one knows, or this one leads and is not yet ready. Nothing was done;
	// try again shortly.
	ErrNoLeader = errors.New("replica: no leader")
	// ErrBusy: a queue is full. Nothing was done; try again later.
	ErrBusy = errors.New("replica: busy")
	// ErrUnknown: leadership was lost, or the caller stopped waiting, while the operations were on their way. They
	// may have been applied, and may yet be. Send again only what is safe to apply twice.
	ErrUnknown = errors.New("replica: outcome unknown")
	// ErrClosed: the node is not running. Nothing was done.
	ErrClosed = errors.New("replica: closed")
)

// ErrNotLeader says that another node leads. Nothing was done.
type ErrNotLeader struct {
	LeaderID      string
	ClientAddress string // of its sidecar plane
	AdminAddress  string // of its admin plane
}

func (e ErrNotLeader) Error() string {
	return fmt.Sprintf("replica: not the leader, which is %s", e.LeaderID)
}

// Signal is what happened since a watcher last read its channel. Signals that were not read yet are merged, so
// nothing is lost, and a slow watcher costs nothing. Every field is also a hint to look again: the
// truth is in View.
type Signal struct {
	ConfigVersion uint64   // not 0: the configuration stands at this version now
	Credentials   bool     // sealed credentials changed
	Wake          []uint64 // incarnations to tell to renew now, ascending, each once
	Leadership    bool     // leader, term or readiness to serve changed
	Alerts        bool     // a budget reached a threshold
}

// Status is a node's own view of itself and its cluster, for operators and metrics.
type Status struct {
	NodeID        string
	ClusterID     string // empty until the cluster is made
	Epoch         uint64
	State         string // leader, follower, candidate or shutdown
	Serving       bool   // leads and may answer
	Stalled       bool   // a write to the log has been stuck for longer than 2 s
	Term          uint64
	LastIndex     uint64 // newest entry in the log
	CommitIndex   uint64 // newest entry known to be committed
	Applied       uint64 // newest entry in the state
	ConfigVersion uint64
	NowMS         int64 // ledger time
	LeaderID      string
	Members       []MemberStatus // by id
	Flush         store.Stats
	Violations    uint64 // entries after which the books did not balance; anything but 0 is a fault of the program
}

// MemberStatus is one node as this node sees it.
type MemberStatus struct {
	Peer
	Voter  bool
	Leader bool
	Self   bool
	// LastContact is when it last answered this node, seen only on the leader; zero for never.
	LastContact time.Time
	// Lag is how many entries it was behind the leader's log at LastContact, seen only on the leader.
	Lag uint64
}

// Open opens the data directory, loads the state and starts to listen and to take part in elections. It does not
// wait for a leader. Nothing is proposed, served or flushed until Run is called. Log is never nil.
func Open(cfg Config, log *zap.Logger) (*Node, error) { return open(cfg, log) }

// Run does the node's work until ctx ends, and returns nil then. It returns an error when the node must stop: an
// entry it does not understand, a state or peers of another cluster, ErrRemoved, a Raft that shut down. Call it once. Calls that wait in
// Propose and Linearizable are answered before it returns.
func (n *Node) Run(ctx context.Context) error { return n.run(ctx) }

// Close hands leadership over when this node has it, stops Raft, writes the state file and closes the directory. It
// is called after Run has returned, or without Run. It blocks for up to 30 s when disk or network are stuck.
func (n *Node) Close() error { return n.close() }

// Propose has ops applied in order, within one entry when they fit, and returns one result for each. It blocks until
// they are applied, or ctx ends. At most 512 ops; more, none, or an op without content is a BUG panic.
//
// Errors: ErrNotLeader, ErrNoLeader, ErrBusy, ErrClosed and the error of ctx alone mean that nothing was done;
// ErrUnknown, joined with the error of ctx when that was the reason, that it may have been. A refusal by the state
// machines is a Result. Ops are the caller's again when Propose returns.
func (n *Node) Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]Result, error) {
	return n.propose(ctx, ops)
}

// Renew is Propose for one renew. It is the caller's again when Renew returns.
func (n *Node) Renew(ctx context.Context, r *ledger.Renew) (ledger.RenewReply, error) {
	return n.renew(ctx, r)
}

// View calls read with the state, which holds still meanwhile. It holds up everything else, so it must be short,
// must not call the node and must not keep what it is given. It must not change anything.
func (n *Node) View(read func(*Machine)) { n.fsm.view(read) }

// Linearizable returns nil when this node was the leader at some moment of the call, with everything applied that was
// acknowledged to anybody before the call. A View after it is as fresh. Concurrent calls share one round of messages.
// It blocks until a majority has answered or ctx ends. Errors as of Propose, without ErrUnknown.
func (n *Node) Linearizable(ctx context.Context) error { return n.linearizable(ctx) }

// WaitApplied returns nil once the entry of this index is in this node's state. It blocks until then or until ctx ends.
func (n *Node) WaitApplied(ctx context.Context, index uint64) error { return n.fsm.wait(ctx, index) }

// AddMember takes a node into the cluster, or notes where one that is in it is now. A new one votes once it has caught
// up, which Status tells. Repeated, it changes nothing. Only the leader can: errors as of Propose; ErrAddressTaken,
// ErrOwnAddress.
func (n *Node) AddMember(ctx context.Context, p Peer) error { return n.addMember(ctx, p) }

// RemoveMember takes a node out of the cluster. A leader that is to remove itself hands leadership over and returns
// ErrNotLeader. Errors as of Propose; ErrUnknownNode, ErrLastVoter, and without force ErrNoQuorum.
func (n *Node) RemoveMember(ctx context.Context, id string, force bool) error {
	return n.removeMember(ctx, id, force)
}

// Backup writes the whole state as it is at one moment, with everything that was acknowledged before the call. build is
// noted in it. Only the leader does: errors as of Linearizable, and what the disk or w says.
func (n *Node) Backup(ctx context.Context, w io.Writer, build string) error {
	return n.backup(ctx, w, build)
}

// Restore replaces the whole state by that of a backup that ReadBackup found good, and begins an epoch. keepID leaves
// the cluster its id. It blocks until the state is replaced on this node. Errors as of Propose.
func (n *Node) Restore(ctx context.Context, r io.Reader, keepID bool, actor, note string) (RestoreOutcome, error) {
	return n.restore(ctx, r, keepID, actor, note)
}

// Dir is the data directory.
func (n *Node) Dir() string { return n.cfg.DataDir }

// Leader names the leader as far as this node knows; empty during an election. self is true only when this node leads
// and serves.
func (n *Node) Leader() (id, clientAddr, adminAddr string, self bool) { return n.leader() }

// Status returns the node's view of the cluster. It blocks shortly.
func (n *Node) Status() Status { return n.status() }

// StateHash sums up the whole state and says which index it stands at. Nodes that stand at the same index have the same
// sum, or else they have diverged. It reads everything there is and holds up what View holds up: seconds, if there are
// millions of leases.
func (n *Node) StateHash() (applied uint64, sum [sha256.Size]byte) { return n.stateHash() }

// Watch returns a channel of what happens from now on. It holds at most one signal, merged from all that were not
// read. The first one comes at once and has Leadership and the configuration's version. It is closed when ctx ends.
func (n *Node) Watch(ctx context.Context) <-chan Signal { return n.hub.watch(ctx) }
