package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"
)

// Raft counts entries. An entry may be 30 bytes or 256 KiB, so the log is also bounded by bytes.

// diskBounds are the bounds of the log, see limits.go, and how large a file must be to be made smaller at the start.
type diskBounds struct{ log, trailing, compact int64 }

func (b diskBounds) withDefaults() diskBounds {
	if b.log == 0 {
		b.log = logBytesMax
	}
	if b.trailing == 0 {
		b.trailing = trailingBytesMax
	}
	return b
}

// runDisk keeps the log within its bounds until ctx ends.
func (n *Node) runDisk(ctx context.Context) error {
	look := time.NewTicker(diskEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if err := n.boundLog(ctx); err != nil && ctx.Err() == nil {
				n.log.Warn("the log was not cut", zap.Error(err))
			}
		}
	}
}

// boundLog has as many entries left behind the next snapshot as fit into the bound, and takes one when it is due.
func (n *Node) boundLog(ctx context.Context) error {
	entries, bytes := n.watch.entries.Load(), n.watch.bytes.Load()
	if entries == 0 {
		return nil
	}
	trailing := uint64(min(trailingEntries, max(trailingEntriesMin, n.cfg.disk.trailing/(bytes/entries))))
	if c := n.raft.ReloadableConfig(); c.TrailingLogs != trailing {
		c.TrailingLogs = trailing
		if err := n.raft.ReloadConfig(c); err != nil {
			return err
		}
	}
	if bytes < n.cfg.disk.log {
		return nil
	}
	err := n.awaitCtx(ctx, func() error { return n.raft.Snapshot().Error() })
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return err
	}
	n.watch.entries.Add(-entries)
	n.watch.bytes.Add(-bytes)
	return nil
}
