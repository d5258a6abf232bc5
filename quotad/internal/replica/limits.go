package replica

import "time"

// The bounds of a node: each queue, batch and loop has one, with what is seen when it is hit.
const (
	// entryOpsMax is the most operations in one Raft entry. More go into the next entry.
	entryOpsMax = 512
	// entryBytesMax is how large an entry may grow by batching. One call of Propose that is larger goes alone.
	entryBytesMax = 256 << 10
	// entryWaitMax is how long an operation waits for company while other entries are in flight.
	entryWaitMax = time.Millisecond
	// entriesInFlightMax is how many entries may wait for their commit. Beyond it operations gather in the queue.
	entriesInFlightMax = 4
	// proposalsQueuedMax is how many calls of Propose may wait to be batched. Beyond it callers get ErrBusy.
	proposalsQueuedMax = 8192
	// enqueueTimeout is how long an entry may wait for Raft's main loop. Beyond it its callers get ErrBusy: the entry
	// was never taken. The loop is away that long only when the disk is.
	enqueueTimeout = time.Second

	// stallAfter is how long one write to the log may take before this node stops speaking as a leader. Raft's
	// heartbeats do not touch the disk, so a leader with a hung disk would otherwise be followed for ever.
	stallAfter = 2 * time.Second
	// standAsideFor is how long after a failed write to the log this node asks for no votes. The next write may succeed
	// and ends it; without one it may stand again, since there may be nobody else.
	standAsideFor = 5 * time.Second

	// barrierTimeout bounds one try of a new leader to have everything before its term applied. It is tried again.
	barrierTimeout = 5 * time.Second
	// dutyEvery is how often a leader looks after time and calendar when nothing is due sooner.
	dutyEvery = 250 * time.Millisecond
	// tickGapMin is the least time between two ticks, so that a due time that does not move on costs little.
	tickGapMin = 50 * time.Millisecond
	// dutyTimeout bounds one proposal of the leader's own. It is tried again.
	dutyTimeout = 5 * time.Second

	// wallsAskedEvery is how often the other nodes are asked for their wall clocks while a month waits to turn.
	wallsAskedEvery = 500 * time.Millisecond
	// wallWait bounds asking them. The leader's other duties wait meanwhile.
	wallWait = 300 * time.Millisecond
	// wallsSilentMax is how long a month waits while no other node tells its clock. Then this node's alone counts.
	wallsSilentMax = time.Minute
	// wallsDifferMax is how long clocks may differ about the month before it is said aloud.
	wallsDifferMax = 10 * time.Second

	// readsQueuedMax is how many calls of Linearizable may wait. Beyond it callers get ErrBusy.
	readsQueuedMax = 4096

	// nodesMax is how many nodes a cluster may have. Further ones are not written down.
	nodesMax = 64
	// nodesRemovedMax is how many removed nodes are remembered, to be told so.
	nodesRemovedMax = 64
	// nodeNameMax is the longest name of a node in bytes. A longer one is not written down.
	nodeNameMax = 128
	// greetingBytesMax bounds what a node says of itself.
	greetingBytesMax = 4096
	// probeTimeout bounds asking a node who it is.
	probeTimeout = 2 * time.Second
	// bootstrapEvery is how often a new node asks the others whether there is a cluster.
	bootstrapEvery = 200 * time.Millisecond
	// membershipEvery is how often a node looks whether it is still in the cluster.
	membershipEvery = time.Second
	// silentAfter is how long a node that is well may take to answer the leader, which asks several times a second.
	silentAfter = 2 * time.Second
	// quorumRetryEvery is how often a new leader looks whether the others have answered, before it refuses a removal.
	quorumRetryEvery = 50 * time.Millisecond
	// promoteLagMax is how many entries a new node may be behind when it begins to vote.
	promoteLagMax = 64

	// dialTimeout bounds connecting to a peer, name resolution and TLS handshake included.
	dialTimeout = 3 * time.Second
	// peerIOTimeout bounds one read or write on a peer connection.
	peerIOTimeout = 5 * time.Second
	// peerConnsMax is how many idle connections to a peer are kept.
	peerConnsMax = 3

	// restoreChunkBytes is how much of a backup goes into one entry.
	restoreChunkBytes = 192 << 10
	// restoreBytesMax bounds a compressed backup, which is held in memory until it is whole. A larger one is refused.
	restoreBytesMax = 512 << 20
	// restoreSkips is how far names go on after a restore: further than any cluster could have come since the backup.
	restoreSkips = 1 << 36

	// levelKnown is the highest level this version knows: see upgrade.go. A state of a higher one, or an entry that raises
	// it higher, halts the node.
	levelKnown = 1
	// upgradeEvery is how often a leader asks whether all nodes know more than the state's level.
	upgradeEvery = 3 * time.Second

	// opTextMax bounds how an operation is shown, in bytes.
	opTextMax = 400

	// entryFormat is what this version knows of entries. One that asks for more halts the node.
	entryFormat = 0

	// sealedNameMax is the longest name of a sealed credential in bytes. A longer one is refused: it is a key in the
	// state file, where it must fit.
	sealedNameMax = 256

	// logCacheEntries is how many of the newest entries are kept in memory for followers that are slightly behind.
	logCacheEntries = 512
	// collectMax is how many records are made in one go, about: that is how long entries wait for it.
	collectMax = 256
	// flushEvery is how often changed records are written to the state file. The log covers the gap: so much is applied
	// again after a crash. With 100,000 records a write takes a tenth of a second of the disk, and the log's waits for it.
	flushEvery = 30 * time.Second
	// snapshotEntries is how many entries make a snapshot due. Entries are batches: this many are seconds of replay.
	snapshotEntries = 16384
	// logBytesMax is how much may be written to the log before a snapshot is due, however few entries that is.
	logBytesMax = 256 << 20
	// trailingBytesMax is how much stays in the log behind a snapshot, about.
	trailingBytesMax = 128 << 20
	// trailingEntriesMin stay in any case.
	trailingEntriesMin = 64
	// entryOverhead is what an entry takes beside its data, about.
	entryOverhead = 64
	// diskEvery is how often that is looked at.
	diskEvery = 5 * time.Second
	// snapshotEvery is how often that is looked at (Raft waits up to twice as long).
	snapshotEvery = 30 * time.Second
	// trailingEntries is how many entries stay in the log behind a snapshot, so that a follower that was away for
	// a while needs no snapshot.
	trailingEntries = 20000

	// closeTimeout bounds what Close does before it gives up on a step and goes on to the next.
	closeTimeout = 10 * time.Second
)
