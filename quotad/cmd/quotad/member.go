package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad"
)

const (
	// memberLookEvery is how often a new node is looked at until it votes, and a new leader asked until it is ready.
	memberLookEvery = 200 * time.Millisecond
	// handOverWait is how long there may be no leader when a node is removed.
	handOverWait = 5 * time.Second
)

func memberCommand(c *console) *cobra.Command {
	cmd := &cobra.Command{Use: "member", Short: "Show and change which nodes make up the cluster"}
	cmd.AddCommand(memberListCommand(c), memberAddCommand(c), memberRemoveCommand(c))
	return cmd
}

func memberListCommand(c *console) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the nodes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.ListMembers, &adminv1.ListMembersRequest{})
			if err != nil {
				return err
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { memberTable(w, m.GetMembers()) })
		},
	}
}

func memberTable(w io.Writer, members []*adminv1.Member) {
	row(w, "NODE", "ROLE", "RAFT", "SIDECARS", "ADMIN", "LAG", "ANSWERED")
	for _, n := range members {
		row(w, n.GetId(), role(n), n.GetRaftAddress(), n.GetSidecarAddress(), n.GetAdminAddress(),
			unlessNegative(n.GetLag(), num), unlessNegative(n.GetLastContactMs(), ago))
	}
}

func memberAddCommand(c *console) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "add ID=HOST | ID=RAFT/SIDECARS/ADMIN",
		Short: "Take a node into the cluster, or say where one that is in it is now",
		Long: `Take a node into the cluster, or say where one that is in it is now.

The node is started with the same --id and --join, on an empty directory, before or after this. It learns all that the
others know, and votes once it has caught up. HOST alone stands for the default ports; else each of the three is
host:port as others reach it.`,
		Example: "  quotad serve --id quotad-3 --data-dir /var/lib/quotad --join …   # on the new machine\n" +
			"  quotad member add quotad-3=10.0.0.14                             # anywhere\n" +
			"  quotad member add quotad-1=10.0.0.99                             # quotad-1 has moved",
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait until it votes; 0 does not wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if wait < 0 {
			return fmt.Errorf("--wait: %s is below 0", wait)
		}
		p, err := quotad.ParsePeer(args[0])
		if err != nil {
			return err
		}
		req := &adminv1.AddMemberRequest{
			Id: p.ID, RaftAddress: p.RaftAddress, SidecarAddress: p.ClientAddress, AdminAddress: p.AdminAddress,
		}
		m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.AddMember, req)
		if err != nil {
			return err
		}
		out := m.GetMember()
		if !out.GetVoter() && wait > 0 {
			if out, err = c.untilVoter(cmd.Context(), p.ID, wait); err != nil {
				return err
			}
		}
		return c.print(cmd.OutOrStdout(), &adminv1.AddMemberResponse{Member: out}, func(w *tabwriter.Writer) {
			memberTable(w, []*adminv1.Member{out})
		})
	}
	return cmd
}

// untilVoter waits until a node votes.
func (c *console) untilVoter(ctx context.Context, id string, wait time.Duration) (*adminv1.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	look := time.NewTicker(memberLookEvery)
	defer look.Stop()
	state := "it has not answered yet"
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is in the cluster and does not vote yet: %s. Is it started with --id %s --join, and is "+
				"that its address? It votes once it has caught up: see `quotad member list`; `quotad member remove %s` undoes it",
				id, state, id, id)
		case <-look.C:
		}
		m, err := ask(ctx, c, adminv1connect.AdminServiceClient.ListMembers, &adminv1.ListMembersRequest{})
		if err != nil {
			continue // an election, perhaps; the deadline bounds it
		}
		for _, n := range m.GetMembers() {
			switch {
			case n.GetId() != id:
			case n.GetVoter():
				return n, nil
			case n.GetLastContactMs() >= 0:
				state = fmt.Sprintf("it answered %s and is %d entries behind", ago(n.GetLastContactMs()), n.GetLag())
			}
		}
	}
}

func memberRemoveCommand(c *console) *cobra.Command {
	req := &adminv1.RemoveMemberRequest{}
	cmd := &cobra.Command{
		Use: "remove ID", Short: "Take a node out of the cluster; it is told and stops", Args: cobra.ExactArgs(1),
		Long: `Take a node out of the cluster. If it runs it is told, says so and stops; its directory may then be deleted.
A dead node is removed the same way. To replace one: remove it, then add another, one at a time.`,
	}
	cmd.Flags().BoolVar(&req.Force, "force", false, "also if too few of the others answer to go on without it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req.Id = args[0]
		m, err := c.remove(cmd.Context(), req)
		if err != nil {
			return err
		}
		return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { memberTable(w, m.GetMembers()) })
	}
	return cmd
}

// remove takes a node out. A leader that is to go hands over first, and the next one needs a moment: to ask again does
// no harm, a node that is out stays out.
func (c *console) remove(ctx context.Context, req *adminv1.RemoveMemberRequest) (*adminv1.RemoveMemberResponse, error) {
	waiting, cancel := context.WithTimeout(ctx, handOverWait)
	defer cancel()
	for {
		m, err := ask(ctx, c, adminv1connect.AdminServiceClient.RemoveMember, req)
		if connect.CodeOf(err) != connect.CodeUnavailable || !errors.As(err, new(refusal)) || !wait(waiting, memberLookEvery) {
			return m, err
		}
	}
}
