package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// pieceBytes is how much of a backup goes into one message.
const pieceBytes = 256 << 10

// Backup implements the admin service. The state is written to a file first, so that a slow caller holds up nothing.
func (s *Service) Backup(ctx context.Context, _ *connect.Request[adminv1.BackupRequest], out *connect.ServerStream[adminv1.BackupResponse]) error {
	f, err := s.scratch()
	if err != nil {
		return s.failed(err)
	}
	defer func() { _ = f.Close() }() // it has no name any more
	if err := s.node.Backup(ctx, f, s.cfg.Build); err != nil {
		return s.failed(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return s.failed(err)
	}
	b := make([]byte, pieceBytes)
	for {
		n, err := f.Read(b)
		if n > 0 {
			if err := out.Send(&adminv1.BackupResponse{Data: b[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return s.failed(err)
		}
	}
}

// scratch makes a file that goes with its descriptor.
func (s *Service) scratch() (*os.File, error) {
	f, err := os.CreateTemp(s.node.Dir(), "scratch-*")
	if err != nil {
		return nil, fmt.Errorf("make a scratch file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("unlink a scratch file: %w", err), f.Close())
	}
	return f, nil
}

// Restore implements the admin service. The backup is read to its end and judged before anything is proposed.
func (s *Service) Restore(ctx context.Context, in *connect.ClientStream[adminv1.RestoreRequest]) (*connect.Response[adminv1.RestoreResponse], error) {
	// A node that does not lead need not read it all.
	if err := s.node.Linearizable(ctx); err != nil {
		return nil, s.failed(err)
	}
	f, err := s.scratch()
	if err != nil {
		return nil, s.failed(err)
	}
	defer func() { _ = f.Close() }() // it has no name any more
	first, err := receive(in, f)
	if err != nil {
		return nil, s.notRestored(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, s.failed(err)
	}
	b, err := replica.ReadBackup(f)
	if err != nil {
		return nil, s.notRestored(err)
	}
	keepID, err := s.mayRestore(b, first.GetOtherCluster())
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, s.failed(err)
	}
	made := time.UnixMilli(b.GetMadeAtMs()).UTC().Format(time.RFC3339)
	note := fmt.Sprintf("restored from a backup of %s, version %d of cluster %s", made, b.GetConfigVersion(), b.GetClusterId())
	done, err := s.node.Restore(ctx, f, keepID, actorOf(ctx, first.GetActor()), note)
	if err != nil {
		return nil, s.failed(err)
	}
	if done.Refusal != "" {
		return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("nothing was restored: %s", done.Refusal))
	}
	s.log.Warn("the state was replaced by a backup", zap.String("made", made), zap.Uint64("epoch", done.Epoch))
	out := &adminv1.RestoreResponse{
		Epoch: done.Epoch, Version: done.Version, MadeAtMs: b.GetMadeAtMs(), Records: b.Records, HoldMs: done.HoldMS,
	}
	s.node.View(func(m *replica.Machine) {
		out.ClusterId = m.ClusterID()
		out.Unknown = unknownSpend(m)
	})
	return connect.NewResponse(out), nil
}

// mayRestore judges whether a backup belongs here.
func (s *Service) mayRestore(b *replica.Backup, otherCluster bool) (keepID bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(b.SealKey)) {
		if id := b.SealKey[name]; !slices.Contains(s.ring.KeyIDs(), id) {
			return false, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(
				"nothing was restored: credential %s is sealed with key %s, which is not in this node's key_file", name, id))
		}
	}
	s.node.View(func(m *replica.Machine) {
		fresh := m.Registry.Version() == 0
		keepID = !fresh && b.GetClusterId() != m.ClusterID()
		if keepID && !otherCluster {
			err = connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("nothing was restored: the backup is of cluster %s, "+
				"this is %s (--other-cluster restores it all the same)", b.GetClusterId(), m.ClusterID()))
		}
	})
	return keepID, err
}

// receive writes what comes to a file, as far as it is a backup: what is none must not fill the disk. first is the message
// that says how.
func receive(in *connect.ClientStream[adminv1.RestoreRequest], f io.Writer) (first *adminv1.RestoreRequest, err error) {
	checked, w := io.Pipe()
	judged := make(chan error, 1)
	go func() {
		_, _, err := store.ReadBackup(checked, func(string, []byte) error { return nil })
		_ = checked.CloseWithError(err)
		judged <- err
	}()
	first = &adminv1.RestoreRequest{}
	to := io.MultiWriter(f, w)
	for n := 0; err == nil && in.Receive(); n++ {
		if n == 0 {
			first.OtherCluster, first.Actor = in.Msg().GetOtherCluster(), in.Msg().GetActor()
		}
		_, err = to.Write(in.Msg().GetData())
	}
	err = cmp.Or(err, in.Err())
	_ = w.CloseWithError(err)
	return first, cmp.Or(err, <-judged)
}

// notRestored says what is wrong with a backup.
func (s *Service) notRestored(err error) error {
	if errors.Is(err, replica.ErrBadBackup) || errors.Is(err, store.ErrNewerFormat) || errors.Is(err, replica.ErrBadRecord) {
		return badInput("nothing was restored: %w", err)
	}
	if errors.As(err, new(*connect.Error)) { // the stream's
		return err
	}
	return s.failed(err)
}

// unknownSpend lists what may have been spent since the backup without a trace: what was free then.
func unknownSpend(m *replica.Machine) []*adminv1.UnknownSpend {
	var out []*adminv1.UnknownSpend
	for _, r := range m.Ledger.Resources() {
		if r.Spec.Kind != ledger.Money || r.Spec.Each != ledger.Whole {
			continue
		}
		for _, p := range r.Periods {
			if !p.Closed {
				out = append(out, &adminv1.UnknownSpend{
					Scope: r.Spec.Scope, Owner: r.Spec.Owner, Period: p.Period, AtMostNano: max(0, p.Free), Hard: r.Spec.Hard,
				})
			}
		}
	}
	return out
}
