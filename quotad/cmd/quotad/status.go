package main

import (
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// silentAfter is how long a node that is well may take to answer the leader, which asks several times a second.
const silentAfter = time.Second

func statusCommand(c *console) *cobra.Command {
	hash := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show nodes, leader, lag, sidecars and the configuration each has in force", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := ask(cmd.Context(), c, adminv1connect.AdminServiceClient.Status, &adminv1.StatusRequest{Hash: hash})
			if err != nil {
				return err
			}
			if l := m.GetLeaderAdminAddress(); !hash && l != "" && m.GetLeaderId() != m.GetNodeId() {
				// Only the leader knows the sidecars. If it does not answer, what this node knows is better than nothing.
				leader := &console{addr: l, tls: c.tls}
				if lm, lerr := ask(cmd.Context(), leader, adminv1connect.AdminServiceClient.Status, &adminv1.StatusRequest{}); lerr == nil {
					m = lm
				}
			}
			return c.print(cmd.OutOrStdout(), m, func(w *tabwriter.Writer) { statusTable(w, m) })
		},
	}
	cmd.Flags().BoolVar(&hash, "hash", false, "also sum up the state of the node at --addr: nodes at the same index must agree")
	return cmd
}

func statusTable(w *tabwriter.Writer, m *adminv1.StatusResponse) {
	leader := "no leader at present"
	if m.GetLeaderId() != "" {
		leader = "led by " + m.GetLeaderId()
	}
	fmt.Fprintf(w, "cluster %s, %s, term %d, applied %d\n", m.GetClusterId(), leader, m.GetTerm(), m.GetApplied())
	if h := m.GetStateHash(); h != "" {
		fmt.Fprintf(w, "state of %s at %d: %s\n", m.GetNodeId(), m.GetApplied(), h)
	}
	connected, current := 0, 0
	for _, s := range m.GetSidecars() {
		if s.GetState() == "connected" {
			connected++
			if s.GetConfigVersion() == m.GetConfigVersion() {
				current++
			}
		}
	}
	fmt.Fprintf(w, "configuration %d", m.GetConfigVersion())
	if m.GetLeaderId() == m.GetNodeId() { // others know no sessions
		fmt.Fprintf(w, ", in force on %d of %d connected sidecars", current, connected)
	}
	fmt.Fprintln(w)
	if v := m.GetConservationViolations(); v > 0 {
		fmt.Fprintf(w, "the books did not balance after %d entries: a fault in quotad, please report it\n", v)
	} else {
		fmt.Fprintln(w, "the books balance")
	}
	if p := m.GetTlsProblem(); p != "" {
		fmt.Fprintf(w, "%s: %s\n", m.GetNodeId(), p)
	}
	fmt.Fprintln(w)
	row(w, "NODE", "RAFT", "ROLE", "LAG", "ANSWERED")
	for _, n := range m.GetMembers() {
		row(w, n.GetId(), n.GetRaftAddress(), role(n), unlessNegative(n.GetLag(), num), unlessNegative(n.GetLastContactMs(), ago))
	}
	if len(m.GetSidecars()) == 0 {
		fmt.Fprintln(w, "\nno sidecars")
		return
	}
	fmt.Fprintln(w)
	row(w, "SIDECAR", "INCARNATION", "STATE", "CONFIG", "RENEWED", "BUILD")
	for _, s := range m.GetSidecars() {
		config, build := num(int64(s.GetConfigVersion())), s.GetBuild()
		if s.GetState() != "connected" {
			config, build = "-", "-"
		}
		row(w, s.GetIdentity(), strconv.FormatUint(s.GetIncarnation(), 10), s.GetState(), config, unlessNegative(s.GetLastRenewMs(), ago), build)
	}
}

func role(n *adminv1.Member) string {
	role := "voter"
	switch {
	case n.GetLeader():
		role = "leader"
	case !n.GetVoter():
		role = "learner"
	}
	if n.GetLastContactMs() > silentAfter.Milliseconds() {
		role += ", silent"
	}
	return role
}

// unlessNegative writes a number; a negative one stands for what is not known.
func unlessNegative(n int64, write func(int64) string) string {
	if n < 0 {
		return "-"
	}
	return write(n)
}

// ago is a time in the past, as exact as people need it.
func ago(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return "now"
	case d < 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return d.String() + " ago"
}
