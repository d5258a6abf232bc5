package store

import "time"

// The bounds of the store, and what is seen when they are hit.
const (
	// formatVersion is the format of the directory and of the state file. A newer one is refused.
	formatVersion = 1
	// snapshotFormat is the format of the snapshot stream. A newer one is refused.
	snapshotFormat = 1
	// backupFormat is the format of backups. A newer one is refused.
	backupFormat = 1
	// viewRetryEvery is how soon the file is looked at again while a snapshot holds it up.
	viewRetryEvery = 20 * time.Millisecond
	// snapshotsKept is how many snapshots stay on disk, so that a damaged newest one is not the end.
	snapshotsKept = 2

	// compactBytesDefault is how large a file must be to be made smaller. bbolt never gives space back: a file stays as
	// large as it ever was, which does no harm by itself.
	compactBytesDefault = 64 << 20
	// compactTxBytes bounds the transactions that write a smaller file.
	compactTxBytes = 16 << 20

	// flushEveryDefault is how often dirty records are written. The raft log covers the gap: so much is applied again
	// after a crash.
	flushEveryDefault = 30 * time.Second
	// flushRetryEvery is how soon a failed write is tried again.
	flushRetryEvery = time.Second
	// openTimeout is how long to wait for a lock on a file inside a directory that is already ours.
	openTimeout = time.Second

	// recordBytesMax is the largest record a snapshot may hold; a larger one is taken for damage.
	recordBytesMax = 64 << 20
	// restoreTxRecords is how many records one transaction of a restore holds, which bounds its memory.
	restoreTxRecords = 50_000
	// streamBufferBytes is the buffer between records and snapshot file.
	streamBufferBytes = 1 << 20
)
