package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Machine is the whole replicated state. It is pure, like its parts: the same entries in the same order give the same
// state on every node. Outside this package it is only read, within Node.View.
type Machine struct {
	Ledger   *ledger.Ledger
	Registry *registry.Registry
	Rollup   *rollup.Rollup

	cfg       ledger.Config
	clusterID string
	group     string                            // see GroupID; empty while it is the cluster's
	level     uint32                            // see Level
	base      uint64                            // added to the index of an entry wherever it names something
	sealed    map[string]*raftlogv1.SealedState // replaced whole, never changed
	nodes     map[string]*raftlogv1.NodeState   // likewise

	touchedSeals  map[string]bool
	touchedNodes  map[string]bool
	touchedPieces map[uint32]bool
	touchedLevel  bool
	staging       staging
	replaced      map[string][]byte // after a restore: the records it brought, until they are collected
	news          Signal            // for the watchers
}

// Result is the outcome of one operation. Index is always set; of the others, the one of the operation's kind.
type Result struct {
	Index         uint64              // of the entry
	Renew         ledger.RenewReply   // renew
	FileFinalDone bool                // file_final: filed, now or before, or unknown
	Change        registry.Result     // change
	Credit        ledger.CreditResult // credit
	UsageSeq      uint64              // usage_batch: last event counted of the source
	Restore       RestoreOutcome      // restore_chunk, restore_commit
	SealedVersion uint64              // seal: version of the credential now; 0: the name is refused
}

// newMachine returns the state of a cluster that is not made yet.
func newMachine(cfg ledger.Config) *Machine {
	m := &Machine{
		cfg:          cfg,
		Ledger:       ledger.New(cfg),
		Registry:     registry.New(),
		Rollup:       rollup.New(),
		sealed:       map[string]*raftlogv1.SealedState{},
		nodes:        map[string]*raftlogv1.NodeState{},
		touchedSeals: map[string]bool{},
		touchedNodes: map[string]bool{},

		touchedPieces: map[uint32]bool{},
	}
	m.obey(0)
	return m
}

// ClusterID names the cluster; empty until it is made.
func (m *Machine) ClusterID() string { return m.clusterID }

// GroupID names the raft group, which no restore changes: directories and peers belong to it.
func (m *Machine) GroupID() string { return cmp.Or(m.group, m.clusterID) }

// Epoch is raised by each restore from a backup.
func (m *Machine) Epoch() uint64 { return m.Ledger.Restored().Epoch }

// ConfigVersion is the version of the configuration.
func (m *Machine) ConfigVersion() uint64 { return m.Registry.Version() }

// Sealed returns a sealed credential. It may be kept and must not be changed.
func (m *Machine) Sealed(name string) (*raftlogv1.SealedState, bool) {
	s, ok := m.sealed[name]
	return s, ok
}

// HasPeriod reports whether a time zone has an open budget period.
func (m *Machine) HasPeriod(timezone string) bool {
	return slices.ContainsFunc(m.Ledger.Periods(), func(p ledger.Period) bool { return p.Timezone == ledgerZone(timezone) })
}

// SealedNames lists the sealed credentials, sorted.
func (m *Machine) SealedNames() []string { return slices.Sorted(maps.Keys(m.sealed)) }

// Apply applies an entry and returns one result for each of its operations, each of which is known. It is total.
func (m *Machine) Apply(index uint64, e *entry) []Result {
	m.Ledger.Enter(m.base + index)
	m.Ledger.Advance(e.stampMS)
	m.Rollup.Advance(m.Ledger.Now())
	results := make([]Result, len(e.ops))
	for i, op := range e.ops {
		if op.renew != nil {
			results[i].Renew = m.Ledger.Renew(*op.renew)
		} else {
			results[i] = m.applyOp(index, op.other)
		}
		results[i].Index = index
	}
	return results
}

func (m *Machine) applyOp(index uint64, op *raftlogv1.Op) (r Result) {
	switch o := op.GetOp().(type) {
	case *raftlogv1.Op_FileFinal:
		r.FileFinalDone = m.Ledger.FileFinal(fileFinalOf(o.FileFinal))
	case *raftlogv1.Op_Change:
		r.Change = m.change(m.base+index, o.Change)
	case *raftlogv1.Op_OpenPeriods:
		m.Ledger.OpenPeriods(periodsOf(o.OpenPeriods.GetPeriods()))
	case *raftlogv1.Op_Credit:
		c := o.Credit
		r.Credit = m.Ledger.Credit(c.GetResource(), c.GetPeriod(), ledger.Credit{
			ID: c.GetId(), Amount: c.GetAmountNano(), Actor: c.GetActor(), Reason: c.GetReason(),
		})
	case *raftlogv1.Op_UsageBatch:
		before, _ := m.Rollup.Source(o.UsageBatch.GetSource())
		r.UsageSeq = m.Rollup.Apply(m.Ledger.Now(), batchOf(o.UsageBatch, m.level))
		if r.UsageSeq > before.LastSeq && m.Ledger.Learning() {
			m.learn(o.UsageBatch.GetRows())
		}
	case *raftlogv1.Op_Seal:
		r.SealedVersion = m.seal(o.Seal)
	case *raftlogv1.Op_Bootstrap:
		if m.clusterID == "" {
			m.clusterID = o.Bootstrap.GetClusterId()
		}
	case *raftlogv1.Op_Tick:
		// The entry's stamp has moved the time.
	case *raftlogv1.Op_Fence:
		m.Ledger.Fence(o.Fence.GetIncarnation())
	case *raftlogv1.Op_RestoreChunk:
		r.Restore.Refusal = m.stage(o.RestoreChunk)
	case *raftlogv1.Op_RestoreCommit:
		r.Restore = m.commit(m.base+index, o.RestoreCommit)
	case *raftlogv1.Op_SetNode:
		m.setNode(index, o.SetNode)
	case *raftlogv1.Op_RemoveNode:
		m.removeNode(index, o.RemoveNode.GetId())
	case *raftlogv1.Op_Upgrade:
		_ = m.raise(m.base+index, o.Upgrade.GetLevel()) // the leader sees that the level is what it was
	case *raftlogv1.Op_AlertTold:
		m.Ledger.Told(o.AlertTold.GetResource(), o.AlertTold.GetPeriod(), o.AlertTold.GetPermille())
	default:
		// Entries are checked before they come here.
		panic(fmt.Sprintf("BUG: replica: operation %T applied", o))
	}
	return r
}

// change changes the configuration and what follows from it in the ledger, or neither.
func (m *Machine) change(index uint64, c *raftlogv1.Change) registry.Result {
	change := changeOf(c)
	next, refusal := m.Registry.Preview(change)
	if refusal != nil {
		return registry.Result{Version: m.Registry.Version(), Refusal: refusal}
	}
	specs, fair := m.wanted(next)
	if err := m.Ledger.CheckDefine(index, specs, fair); err != nil {
		return registry.Result{Version: m.Registry.Version(), Refusal: &registry.Refusal{
			Reason: registry.ReasonTooMany, Problems: []registry.Problem{{What: err.Error()}},
		}}
	}
	before := m.Registry.Version()
	result := m.Registry.Apply(index, change)
	if result.Refusal != nil {
		return result
	}
	if result.Version != before {
		m.tellConfig()
	}
	// Periods first, so that a budget in a zone that is new is open at once.
	m.Ledger.OpenPeriods(periodsOf(c.GetPeriods()))
	if err := m.Ledger.Define(index, specs, fair); err != nil {
		panic(fmt.Sprintf("BUG: replica: resources refused after they were checked: %v", err))
	}
	return result
}

// wanted is what a configuration asks of the ledger, as far as the level knows it.
func (m *Machine) wanted(r *registry.Registry) ([]ledger.Spec, ledger.Fairness) {
	if m.level == 0 {
		many := func(s ledger.Spec) bool { return s.Each != ledger.Whole }
		return slices.DeleteFunc(r.Specs(), many), ledger.Fairness{}
	}
	return r.Specs(), r.Fairness()
}

func (m *Machine) seal(s *raftlogv1.Seal) uint64 {
	if s.GetName() == "" || len(s.GetName()) > sealedNameMax {
		return 0
	}
	version := m.sealed[s.GetName()].GetVersion() + 1
	m.sealed[s.GetName()] = &raftlogv1.SealedState{
		Name: s.GetName(), Version: version, Sealed: s.GetSealed(), KeyId: s.GetKeyId(), AtMs: s.GetAtMs(), Actor: s.GetActor(),
	}
	m.touchedSeals[s.GetName()] = true
	m.news.Credentials = true
	return version
}
