package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// topMax is how many resources are shown.
const topMax = 10

func inspectCommand() *cobra.Command {
	var tail int
	var output string
	cmd := &cobra.Command{
		Use: "inspect DATA_DIR", Short: "Look into the data directory of a node that does not run", Args: cobra.ExactArgs(1),
		Long: `Look into the data directory of a node that does not run: whose it is, how far log, snapshots and state go, the budgets,
and what is damaged. A damaged directory is read as far as it goes, and the verb fails. Nothing is written, and a directory that is in use
is refused.

The state hash is the same on all nodes whose state stands at the same index.`,
		Example: "  quotad inspect /var/lib/quotad\n  quotad inspect /var/lib/quotad --log 20   # the newest entries, in words",
	}
	cmd.Flags().IntVar(&tail, "log", 0, "also show this many of the newest log entries")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if output != "table" && output != "json" {
			return fmt.Errorf("--output: %q is neither table nor json", output)
		}
		if tail < 0 {
			return fmt.Errorf("--log: %d is below 0", tail)
		}
		x, err := replica.Inspect(args[0])
		if err != nil {
			return fmt.Errorf("DATA_DIR: %w", err)
		}
		defer func() { _ = x.Close() }() // only read
		r := report(x, tail)
		if output == "json" {
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			err = e.Encode(r)
		} else {
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			r.table(t)
			err = t.Flush()
		}
		if err == nil && len(r.Damage) > 0 {
			err = fmt.Errorf("DATA_DIR: %s is damaged", args[0])
		}
		return err
	}
	return cmd
}

// inspection is what is shown. Money is in nano-dollars.
type inspection struct {
	Dir           string            `json:"dir"`
	Damage        []string          `json:"damage"`
	NodeID        string            `json:"node_id"`
	ClusterID     string            `json:"cluster_id"`
	GroupID       string            `json:"group_id"`
	WrittenBy     string            `json:"written_by"`
	Epoch         uint64            `json:"epoch"`
	Term          uint64            `json:"term"`
	FirstIndex    uint64            `json:"first_index"`
	LastIndex     uint64            `json:"last_index"`
	SnapshotIndex uint64            `json:"snapshot_index"`
	Applied       uint64            `json:"applied"`
	NowMS         int64             `json:"now_ms"`
	ConfigVersion uint64            `json:"config_version"`
	StateHash     string            `json:"state_hash"`
	Records       int               `json:"records"`
	Members       []memberLine      `json:"members"`
	Processes     int               `json:"processes"`
	Budgets       []budgetLine      `json:"budgets"`
	Top           []topLine         `json:"top_resources"`
	Files         []fileLine        `json:"files"`
	Log           []replica.LogLine `json:"log,omitempty"`
}

type memberLine struct {
	ID      string `json:"id"`
	Raft    string `json:"raft"`
	Sidecar string `json:"sidecars"`
	Admin   string `json:"admin"`
	Role    string `json:"role"`
}

type budgetLine struct {
	Scope       string `json:"scope"`
	Owner       string `json:"owner"`
	Period      uint32 `json:"period"`
	Cap         int64  `json:"cap_nano"`
	Credits     int64  `json:"credits_nano"`
	Settled     int64  `json:"settled_nano"`
	Outstanding int64  `json:"outstanding_nano"`
	Suspense    int64  `json:"suspense_nano"`
	Free        int64  `json:"free_nano"`
}

// topLine is a resource by what of it is out at sidecars.
type topLine struct {
	ID          uint64 `json:"id"`
	Name        string `json:"name"`
	Outstanding int64  `json:"outstanding"`
	Level       int64  `json:"level"`
}

type fileLine struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func report(x *replica.Inspection, tail int) inspection {
	r := inspection{
		Dir: x.Dir, Damage: x.Damage, NodeID: x.NodeID, ClusterID: x.ClusterID, GroupID: x.ClusterID, WrittenBy: x.WrittenBy, Term: x.Term,
		FirstIndex: x.FirstIndex, LastIndex: x.LastIndex, Applied: x.Applied, StateHash: x.Hash, Records: x.Records,
		Log: x.Tail(tail),
	}
	if r.Damage == nil {
		r.Damage = []string{}
	}
	if len(x.Snapshots) > 0 {
		r.SnapshotIndex = x.Snapshots[0].Index
	}
	for _, f := range x.Files {
		r.Files = append(r.Files, fileLine{f.Name, f.Bytes})
	}
	for _, s := range x.Servers {
		m := memberLine{ID: string(s.ID), Raft: string(s.Address), Role: strings.ToLower(s.Suffrage.String())}
		if x.State != nil {
			if p, ok := x.State.Node(m.ID); ok {
				m.Raft, m.Sidecar, m.Admin = p.RaftAddress, p.ClientAddress, p.AdminAddress
			}
		}
		r.Members = append(r.Members, m)
	}
	if m := x.State; m != nil {
		r.ClusterID, r.GroupID, r.Epoch, r.NowMS, r.ConfigVersion = m.ClusterID(), m.GroupID(), m.Epoch(), m.Ledger.Now(), m.ConfigVersion()
		r.Processes = len(m.Ledger.Members())
		r.resources(m.Ledger.Resources())
	}
	return r
}

func (r *inspection) resources(all []ledger.Resource) {
	for _, res := range all {
		top := topLine{ID: res.ID, Name: fmt.Sprintf("%s %s %s", res.Spec.Scope, res.Spec.Owner, kindName(res.Spec.Kind)), Outstanding: res.Outstanding, Level: res.Level}
		for _, p := range res.Periods {
			top.Outstanding += p.Outstanding + p.Suspense
			top.Level = p.Free
			if res.Spec.Kind == ledger.Money {
				r.Budgets = append(r.Budgets, budgetLine{
					res.Spec.Scope, res.Spec.Owner, p.Period, p.Cap, p.Credits, p.Settled, p.Outstanding, p.Suspense, p.Free,
				})
			}
		}
		r.Top = append(r.Top, top)
	}
	slices.SortStableFunc(r.Top, func(a, b topLine) int { return cmp.Compare(b.Outstanding, a.Outstanding) })
	r.Top = r.Top[:min(len(r.Top), topMax)]
}

func kindName(k ledger.Kind) string {
	names := map[ledger.Kind]string{
		ledger.Requests: "requests", ledger.InputTokens: "input tokens", ledger.OutputTokens: "output tokens",
		ledger.TotalTokens: "tokens", ledger.Money: "money", ledger.Calls: "calls",
	}
	return cmp.Or(names[k], fmt.Sprintf("kind %d", k))
}

func (r *inspection) table(w io.Writer) {
	for _, d := range r.Damage {
		fmt.Fprintln(w, "DAMAGED "+d)
	}
	fmt.Fprintf(w, "node %s of cluster %s, epoch %d, last had by quotad %s\n", cmp.Or(r.NodeID, "?"), cmp.Or(r.ClusterID, "?"), r.Epoch, cmp.Or(r.WrittenBy, "?"))
	fmt.Fprintf(w, "term %d; log %d to %d; newest snapshot %d; state at %d, %s\n", r.Term, r.FirstIndex, r.LastIndex, r.SnapshotIndex, r.Applied, when(r.NowMS))
	fmt.Fprintf(w, "configuration %d; %d sidecar processes; %d records\nstate hash %s\n", r.ConfigVersion, r.Processes, r.Records, cmp.Or(r.StateHash, "-"))
	fmt.Fprintln(w)
	row(w, "NODE", "ROLE", "RAFT", "SIDECARS", "ADMIN")
	for _, m := range r.Members {
		row(w, m.ID, m.Role, m.Raft, m.Sidecar, m.Admin)
	}
	if len(r.Budgets) > 0 {
		fmt.Fprintln(w)
		row(w, "SCOPE", "OWNER", "PERIOD", "CAP", "SETTLED", "OUT", "SUSPENSE", "FREE")
		for _, b := range r.Budgets {
			row(w, b.Scope, b.Owner, num(int64(b.Period)), dollars(b.Cap+b.Credits), dollars(b.Settled), dollars(b.Outstanding), dollars(b.Suspense), dollars(b.Free))
		}
	}
	if len(r.Top) > 0 {
		fmt.Fprintln(w)
		row(w, "RESOURCE", "OUT", "LEFT")
		for _, t := range r.Top {
			row(w, t.Name, num(t.Outstanding), num(t.Level))
		}
	}
	fmt.Fprintln(w)
	row(w, "FILE", "BYTES")
	for _, f := range r.Files {
		row(w, f.Name, num(f.Bytes))
	}
	for i, l := range r.Log {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%d  term %d  %s\n", l.Index, l.Term, l.Type)
		for _, op := range l.Ops {
			fmt.Fprintln(w, "    "+op)
		}
	}
}
