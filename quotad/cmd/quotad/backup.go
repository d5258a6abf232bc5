package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// pieceBytes is how much of a backup goes into one message.
const pieceBytes = 256 << 10

func backupCommand(c *console) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "backup", Short: "Save the whole state: configuration, budgets, leases, usage, sealed credentials", Args: cobra.NoArgs,
		Long: `Save the whole state as it is at one moment: configuration and its history, budgets, leases, usage, and the provider
credentials as they are sealed. The key file that opens them is not part of it: keep a copy of that elsewhere.

What is saved is checked as it comes; a file appears under its name only when it is whole. On standard output an error
means that what was written must not be used.`,
		Example: "  quotad backup -o sluice-$(date +%F).backup\n  quotad backup | age -r … > sluice.backup.age",
	}
	c.connection(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "-", "where to; - is standard output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "-" {
			h, n, err := c.backup(cmd.Context(), cmd.OutOrStdout())
			return reportBackup(cmd.ErrOrStderr(), h, n, err)
		}
		f, err := beside(file)
		if err != nil {
			return fmt.Errorf("--output: %s: %w", file, bare(err))
		}
		h, n, err := c.backup(cmd.Context(), f)
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), file)
		}
		if err != nil {
			if plain := bare(err); !errors.Is(plain, err) { // it is of the file, whose name for now nobody knows
				err = fmt.Errorf("--output: %s: %w", file, plain)
			}
			return errors.Join(err, os.Remove(f.Name()))
		}
		return reportBackup(cmd.ErrOrStderr(), h, n, nil)
	}
	return cmd
}

// beside makes the file that takes the name when it is whole. What is there and is no file stays: the name of a device
// or a directory is not taken from it.
func beside(name string) (*os.File, error) {
	switch old, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !old.Mode().IsRegular():
		return nil, errors.New("is there and is not a file (- is standard output)")
	}
	return os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
}

func reportBackup(w io.Writer, h *raftlogv1.BackupHeader, records uint64, err error) error {
	if err == nil {
		fmt.Fprintf(w, "saved %d records of %s: cluster %s, epoch %d, configuration %d\n", records, when(h.GetMadeAtMs()),
			h.GetClusterId(), h.GetEpoch(), h.GetConfigVersion())
	}
	return err
}

// backup streams a backup from the leader to w, and checks it as it passes.
func (c *console) backup(ctx context.Context, w io.Writer) (h *raftlogv1.BackupHeader, records uint64, err error) {
	err = c.onLeader(ctx, func(client adminv1connect.AdminServiceClient) error {
		stream, err := client.Backup(ctx, connect.NewRequest(&adminv1.BackupRequest{}))
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		r, checked := io.Pipe()
		done := make(chan error, 1)
		go func() {
			var err error
			h, records, err = store.ReadBackup(r, func(string, []byte) error { return nil })
			_ = r.CloseWithError(err)
			done <- err
		}()
		for stream.Receive() && err == nil {
			if _, err = w.Write(stream.Msg().GetData()); err == nil {
				_, _ = checked.Write(stream.Msg().GetData()) // what is wrong is in done
			}
		}
		_ = checked.Close()
		judged := <-done
		switch {
		case stream.Err() != nil:
			return stream.Err()
		case err != nil:
			return err
		case judged != nil:
			return fmt.Errorf("what came is not to be used: %w", judged)
		}
		return nil
	})
	return h, records, err
}

func restoreCommand(c *console) *cobra.Command {
	req := &adminv1.RestoreRequest{}
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Replace the whole state by that of a backup; - is standard input", Args: cobra.ExactArgs(1),
		Long: `Replace the whole state by that of a backup, on a new cluster or a running one. Which nodes make it up stays.

Sidecars need no restart. What they know to have been granted and spent since the backup counts, and so does the usage
they send again. Until that is known, for some seconds, nothing is granted. What was spent since by processes that are
gone with their disks is recorded nowhere; the bound of it is printed.

A backup that is cut short, damaged, of another cluster or sealed with another key file is refused and changes nothing.`,
	}
	cmd.Flags().BoolVar(&req.OtherCluster, "other-cluster", false, "also a backup of another cluster; this one keeps its id")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := openBackup(cmd, args[0])
		if err != nil {
			return fmt.Errorf("FILE: %s: %w", shown(args[0]), bare(err))
		}
		defer func() { _ = f.Close() }() // only read
		req.Actor = actor()
		var m *adminv1.RestoreResponse
		err = c.onLeader(cmd.Context(), func(client adminv1connect.AdminServiceClient) (err error) {
			m, err = sendBackup(cmd.Context(), client, f, req)
			return err
		})
		if connect.CodeOf(err) == connect.CodeInvalidArgument { // it is for what stands in the file
			return fmt.Errorf("FILE: %s: %w", shown(args[0]), err)
		}
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { restoreTable(w, m) })
	}
	return cmd
}

// openBackup opens a backup. What can be read but once is kept in a file without a name, as far as it is a backup: a
// leader that hands over, or a device without an end, must not matter.
func openBackup(cmd *cobra.Command, name string) (*os.File, error) {
	if name != "-" {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, bare(err)
		case info.IsDir():
			return nil, errors.New("is a directory")
		case info.Mode().IsRegular():
			return os.Open(name)
		}
	}
	kept, err := os.CreateTemp("", "sluice-*.backup")
	if err == nil {
		err = os.Remove(kept.Name())
	}
	if err != nil {
		return nil, err
	}
	in := input(cmd, name)
	defer func() { _ = in.Close() }() // only read
	if _, _, err := store.ReadBackup(io.TeeReader(in, kept), func(string, []byte) error { return nil }); err != nil {
		if cmd.Context().Err() != nil {
			err = cmd.Context().Err()
		}
		return nil, errors.Join(fmt.Errorf("nothing was restored: %w", err), kept.Close())
	}
	return kept, nil
}

func sendBackup(ctx context.Context, client adminv1connect.AdminServiceClient, f io.ReadSeeker, first *adminv1.RestoreRequest) (*adminv1.RestoreResponse, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	stream := client.Restore(ctx)
	err := stream.Send(first)
	b := make([]byte, pieceBytes)
	for err == nil {
		var n int
		if n, err = f.Read(b); n > 0 {
			if serr := stream.Send(&adminv1.RestoreRequest{Data: b[:n]}); serr != nil {
				err = io.EOF // the server has answered: why is below
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	resp, err := stream.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

func restoreTable(w io.Writer, m *adminv1.RestoreResponse) {
	made := time.UnixMilli(m.GetMadeAtMs())
	fmt.Fprintf(w, "restored %d records of %s, %s old: cluster %s, epoch %d, configuration %d\n", m.GetRecords(),
		when(m.GetMadeAtMs()), time.Since(made).Round(time.Second), m.GetClusterId(), m.GetEpoch(), m.GetVersion())
	fmt.Fprintf(w, "nothing is granted for %s, until sidecars have told what they hold\n",
		(time.Duration(m.GetHoldMs()) * time.Millisecond).Round(100*time.Millisecond))
	if len(m.GetUnknown()) == 0 {
		return
	}
	fmt.Fprintln(w, "\nSpent since the backup and recorded nowhere, by processes that are gone with their disks, can be at most:")
	row(w, "SCOPE", "OWNER", "PERIOD", "AT MOST")
	for _, u := range m.GetUnknown() {
		most := dollars(u.GetAtMostNano())
		if !u.GetHard() {
			most += " and what a soft budget let pass"
		}
		row(w, u.GetScope(), u.GetOwner(), num(int64(u.GetPeriod())), most)
	}
}
