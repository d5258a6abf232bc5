package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// each calls put with every record of the state, in an order that follows from the state alone.
func (m *Machine) each(put func(store.Record)) {
	put(record(metaKey, m.meta()))
	for _, r := range m.Ledger.Resources() {
		for _, one := range append([]ledger.Resource{r}, m.Ledger.Children(r.ID)...) {
			s, _ := m.Ledger.ResourceState(one.ID)
			put(record(resourceKey(one.ID), resourceTo(s)))
		}
	}
	for _, member := range m.Ledger.Members() {
		s, _ := m.Ledger.MemberState(member.Incarnation)
		put(record(memberKey(member.Incarnation), memberTo(s)))
		for _, c := range m.Ledger.Counters(member.Incarnation) {
			put(record(counterKey(ledger.CounterKey{Incarnation: c.Incarnation, Resource: c.Resource, Period: c.Period}), counterStateTo(c)))
		}
	}
	for _, o := range m.Registry.Objects("", "") {
		put(record(objectKey(registry.Ref{Kind: o.Kind, ID: o.ID}), &raftlogv1.ObjectState{Kind: o.Kind, Id: o.ID, SpecJson: o.Spec, Version: o.Version}))
	}
	for _, h := range m.Registry.History(math.MaxInt) {
		put(record(historyKey(h.Version), historyTo(h)))
	}
	for _, r := range m.Rollup.Rows() {
		put(record(usageKey(r.Names), usageTo(r)))
	}
	for _, s := range m.Rollup.Sources() {
		put(record(sourceKey(s.Source), &raftlogv1.UsageSourceState{Source: s.Source, LastSeq: s.LastSeq, AtMs: s.AtMS}))
	}
	for _, name := range m.SealedNames() {
		put(record(sealedKey(name), m.sealed[name]))
	}
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		put(record(nodeKey(id), m.nodes[id]))
	}
	if m.level > 0 {
		put(m.levelRecord())
	}
	for i, piece := range m.staging.pieces {
		number := uint32(i)
		put(record(pieceKey(number), &raftlogv1.RestoreChunkState{Id: m.staging.id, Number: number, Data: piece}))
	}
}

// hash sums up the whole state: nodes that applied the same entries have the same one, however they came to them.
func (m *Machine) hash() (sum [sha256.Size]byte) {
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	m.each(func(r store.Record) {
		part([]byte(r.Key))
		part(r.Value)
	})
	h.Sum(sum[:0])
	return sum
}

// stateHash returns the hash and the index of the state it is of.
func (n *Node) stateHash() (applied uint64, sum [sha256.Size]byte) {
	n.fsm.view(func(m *Machine) { applied, sum = n.fsm.applied, m.hash() })
	return applied, sum
}
