package replica

import (
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

	clusterID string
	epoch     uint64
	sealed    map[string]*raftlogv1.SealedState // replaced whole, never changed

	touchedSeals  map[string]bool
	configChanged bool
}

// Result is the outcome of one operation. Index is always set; of the others, the one of the operation's kind.
type Result struct {
	Index         uint64              // of the entry
	Renew         ledger.RenewReply   // renew
	FileFinalDone bool                // file_final: filed, now or before, or unknown
	Change        registry.Result     // change
	Credit        ledger.CreditResult // credit
	UsageSeq      uint64              // usage_batch: last event counted of the source
	SealedVersion uint64              // seal: version of the credential now; 0: the name is refused
}

// newMachine returns the state of a cluster that is not made yet.
func newMachine(cfg ledger.Config) *Machine {
	return &Machine{
		Ledger:       ledger.New(cfg),
		Registry:     registry.New(),
		Rollup:       rollup.New(),
		sealed:       map[string]*raftlogv1.SealedState{},
		touchedSeals: map[string]bool{},
	}
}

// ClusterID names the cluster; empty until it is made.
func (m *Machine) ClusterID() string { return m.clusterID }

// Epoch is raised by each restore from a backup.
func (m *Machine) Epoch() uint64 { return m.epoch }

// ConfigVersion is the version of the configuration.
func (m *Machine) ConfigVersion() uint64 { return m.Registry.Version() }

// Sealed returns a sealed credential. It may be kept and must not be changed.
func (m *Machine) Sealed(name string) (*raftlogv1.SealedState, bool) {
	s, ok := m.sealed[name]
	return s, ok
}

// SealedNames lists the sealed credentials, sorted.
func (m *Machine) SealedNames() []string { return slices.Sorted(maps.Keys(m.sealed)) }

// Apply applies an entry and returns one result for each of its operations, each of which is known. It is total.
func (m *Machine) Apply(index uint64, e *raftlogv1.Entry) []Result {
	m.Ledger.Enter(index)
	m.Ledger.Advance(e.GetStampMs())
	m.Rollup.Advance(m.Ledger.Now())
	results := make([]Result, len(e.GetOps()))
	for i, op := range e.GetOps() {
		results[i] = m.applyOp(index, op)
		results[i].Index = index
	}
	return results
}

func (m *Machine) applyOp(index uint64, op *raftlogv1.Op) (r Result) {
	switch o := op.GetOp().(type) {
	case *raftlogv1.Op_Renew:
		r.Renew = m.Ledger.Renew(renewOf(o.Renew))
	case *raftlogv1.Op_FileFinal:
		r.FileFinalDone = m.Ledger.FileFinal(fileFinalOf(o.FileFinal))
	case *raftlogv1.Op_Change:
		r.Change = m.change(index, o.Change)
	case *raftlogv1.Op_OpenPeriods:
		m.Ledger.OpenPeriods(periodsOf(o.OpenPeriods.GetPeriods()))
	case *raftlogv1.Op_Credit:
		c := o.Credit
		r.Credit = m.Ledger.Credit(c.GetResource(), c.GetPeriod(), c.GetAmountNano(), c.GetId())
	case *raftlogv1.Op_UsageBatch:
		r.UsageSeq = m.Rollup.Apply(m.Ledger.Now(), batchOf(o.UsageBatch))
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
	specs, fair := next.Specs(), next.Fairness()
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
	m.configChanged = m.configChanged || result.Version != before
	// Periods first, so that a budget in a zone that is new is open at once.
	m.Ledger.OpenPeriods(periodsOf(c.GetPeriods()))
	if err := m.Ledger.Define(index, specs, fair); err != nil {
		panic(fmt.Sprintf("BUG: replica: resources refused after they were checked: %v", err))
	}
	return result
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
	return version
}
