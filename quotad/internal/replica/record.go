package replica

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// The keys of the state file. Numbers are 16 hex digits, so that keys sort by them; what is created together lies
// together.
//
//	meta                                MetaState
//	r/<id>                              ResourceState
//	c/<incarnation>/<resource>/<period> CounterState
//	m/<incarnation>                     MemberState
//	o/<kind>/<id>                       ObjectState
//	h/<version>                         HistoryState
//	s/<name>                            SealedState
//	level                               LevelState
//	n/<name>                            NodeState
//	x/<number>                          RestoreChunkState
//	u/r/<hour>/<names, escaped>         UsageRow; of an old day, under its first hour
//	u/s/<source>                        UsageSourceState
const (
	metaKey  = "meta"
	levelKey = "level"
)

func resourceKey(id uint64) string {
	return string(appendHex(append(make([]byte, 0, keyBytes), "r/"...), id))
}

func counterKey(k ledger.CounterKey) string {
	b := appendHex(append(make([]byte, 0, keyBytes), "c/"...), k.Incarnation)
	b = appendHex(append(b, '/'), k.Resource)
	b = append(b, '/')
	for unit := uint32(100_000); unit > 0; unit /= 10 {
		b = append(b, '0'+byte(k.Period/unit%10))
	}
	return string(b)
}

func memberKey(incarnation uint64) string {
	return string(appendHex(append(make([]byte, 0, keyBytes), "m/"...), incarnation))
}

// keyBytes is enough for any of the three keys above.
const keyBytes = 48

// appendHex appends 16 digits. These keys are made for each operation, and fmt would be a sixth of what that costs.
func appendHex(b []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&0xf])
	}
	return b
}

func objectKey(r registry.Ref) string { return "o/" + r.Kind + "/" + r.ID }

func historyKey(version uint64) string { return fmt.Sprintf("h/%016x", version) }

func usageKey(n rollup.Names) string {
	names := []string{n.Team, n.Key, n.Alias, n.Deployment, n.Feature, n.PriceVersion}
	for i, s := range names {
		names[i] = url.PathEscape(s) // so that the names cannot run into each other
	}
	return fmt.Sprintf("u/r/%016x/%s", uint64(n.HourMS), strings.Join(names, "/"))
}

func sourceKey(source string) string { return "u/s/" + source }

func nodeKey(id string) string { return "n/" + id }

func pieceKey(number uint32) string { return fmt.Sprintf("x/%08x", number) }

func sealedKey(name string) string { return "s/" + name }

// errBadRecord: a record does not decode, or the records do not make a state.
var errBadRecord = errors.New("replica: bad record")

// record encodes one record. Nothing in a record can fail to encode: it came in by decoding, or from an own number.
func record(key string, m proto.Message) store.Record {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("BUG: replica: record %q cannot be encoded: %v", key, err))
	}
	if b == nil {
		b = []byte{} // nil would delete
	}
	return store.Record{Key: key, Value: b}
}

// collect returns records that changed since they were collected last, about most of them, and whether there are more.
// Each is as it is now: they make a state when there are no more, together with those collected before.
func (m *Machine) collect(most int) (records []store.Record, more bool) {
	records = make([]store.Record, 0, min(most, collectMax)+1)
	put := func(key string, known bool, state func() proto.Message) {
		if !known {
			records = append(records, store.Record{Key: key})
			return
		}
		records = append(records, record(key, state()))
	}
	room := func() int { return max(0, most-len(records)) }

	resources, counters, members := m.Ledger.Touched(room())
	for _, id := range resources {
		s, ok := m.Ledger.ResourceState(id)
		put(resourceKey(id), ok, func() proto.Message { return resourceTo(s) })
	}
	for _, k := range counters {
		s, ok := m.Ledger.CounterState(k)
		put(counterKey(k), ok, func() proto.Message { return counterStateTo(s) })
	}
	for _, id := range members {
		s, ok := m.Ledger.MemberState(id)
		put(memberKey(id), ok, func() proto.Message { return memberTo(s) })
	}
	rows, sources := m.Rollup.Touched(room())
	for _, n := range rows {
		r, ok := m.Rollup.Row(n)
		put(usageKey(n), ok, func() proto.Message { return usageTo(r) })
	}
	for _, name := range sources {
		s, ok := m.Rollup.Source(name)
		put(sourceKey(name), ok, func() proto.Message {
			return &raftlogv1.UsageSourceState{Source: s.Source, LastSeq: s.LastSeq, AtMs: s.AtMS}
		})
	}
	objects, versions := m.Registry.Touched(room())
	for _, ref := range objects {
		o, ok := m.Registry.Object(ref.Kind, ref.ID)
		put(objectKey(ref), ok, func() proto.Message {
			return &raftlogv1.ObjectState{Kind: o.Kind, Id: o.ID, SpecJson: o.Spec, Version: o.Version}
		})
	}
	for _, v := range versions {
		h, ok := m.Registry.HistoryAt(v)
		put(historyKey(v), ok, func() proto.Message { return historyTo(h) })
	}
	if room() == 0 {
		return records, true
	}

	// What is few comes at once.
	records = append(records, record(metaKey, m.meta()))
	if m.touchedLevel {
		records = append(records, m.levelRecord())
		m.touchedLevel = false
	}
	for name := range m.touchedSeals {
		put(sealedKey(name), true, func() proto.Message { return m.sealed[name] })
	}
	for id := range m.touchedNodes {
		s, ok := m.nodes[id]
		put(nodeKey(id), ok, func() proto.Message { return s })
	}
	for number := range m.touchedPieces {
		there := int(number) < len(m.staging.pieces)
		put(pieceKey(number), there, func() proto.Message {
			return &raftlogv1.RestoreChunkState{Id: m.staging.id, Number: number, Data: m.staging.pieces[number]}
		})
	}
	clear(m.touchedSeals)
	clear(m.touchedNodes)
	clear(m.touchedPieces)
	return records, false
}

// brought returns the whole state after a restore, once, or nil.
func (m *Machine) brought() []store.Record {
	replaced := m.replaced
	if replaced == nil {
		return nil
	}
	m.replaced = nil
	records, _ := m.collect(math.MaxInt)
	for _, r := range records {
		replaced[r.Key] = r.Value // nil deletes what is not there any more
	}
	whole := make([]store.Record, 0, len(replaced))
	for k, v := range replaced {
		if v != nil {
			whole = append(whole, store.Record{Key: k, Value: v})
		}
	}
	return whole
}

func (m *Machine) meta() *raftlogv1.MetaState {
	fair, restored := m.Ledger.Fairness(), m.Ledger.Restored()
	return &raftlogv1.MetaState{
		ClusterId: m.clusterID, NowMs: m.Ledger.Now(), Epoch: restored.Epoch, ConfigVersion: m.Registry.Version(),
		Periods: periodsTo(m.Ledger.Periods()), Weights: weightsTo(fair.Weights), Reserves: reservesTo(fair.Reserves),
		GroupId: m.group, IndexBase: m.base, HoldUntilMs: restored.HoldUntilMS, LearnUntilMs: restored.LearnUntilMS,
	}
}

func (m *Machine) levelRecord() store.Record {
	return record(levelKey, &raftlogv1.LevelState{Level: m.level})
}

// tellConfig has the watchers look at the configuration.
func (m *Machine) tellConfig() { m.news.ConfigVersion = m.Registry.Version() }

// signal returns what to tell the watchers of what was applied since the last call.
func (m *Machine) signal() Signal {
	s := m.news
	m.news = Signal{}
	for _, e := range m.Ledger.Events() {
		switch e.Kind {
		case ledger.Wake:
			s.Wake = append(s.Wake, e.Incarnation)
		case ledger.AlertRaised:
			s.Alerts = true
		case ledger.PeriodOpened: // it is part of what sidecars are told of a budget
			s.ConfigVersion = m.Registry.Version()
		}
	}
	slices.Sort(s.Wake)
	s.Wake = slices.Compact(s.Wake)
	return s
}

// loader gathers records until they can be put together.
type loader struct {
	meta      raftlogv1.MetaState
	resources []ledger.ResourceState
	counters  []ledger.CounterState
	members   []ledger.MemberState
	objects   []registry.Object
	history   []registry.HistoryEntry
	sealed    map[string]*raftlogv1.SealedState
	nodes     map[string]*raftlogv1.NodeState
	level     uint32
	pieces    []*raftlogv1.RestoreChunkState
	rows      []rollup.Row
	sources   []rollup.Source
}

// loadMachine makes a machine of records. Errors: errBadRecord, or load's own. A kind of record that is not known is
// an error of its own: it is not damage, but the work of a newer version.
func loadMachine(cfg ledger.Config, load func(each func(key string, value []byte) error) error) (*Machine, error) {
	l := newLoader()
	if err := load(l.add); err != nil {
		return nil, err
	}
	return l.machine(cfg)
}

func newLoader() *loader {
	return &loader{sealed: map[string]*raftlogv1.SealedState{}, nodes: map[string]*raftlogv1.NodeState{}}
}

// machine puts the records together.
func (l *loader) machine(cfg ledger.Config) (*Machine, error) {
	m := newMachine(cfg)
	m.obey(l.level)
	m.clusterID, m.group, m.base = l.meta.GetClusterId(), l.meta.GetGroupId(), l.meta.GetIndexBase()
	m.sealed, m.nodes = l.sealed, l.nodes
	slices.SortFunc(l.pieces, func(a, b *raftlogv1.RestoreChunkState) int { return cmp.Compare(a.GetNumber(), b.GetNumber()) })
	for i, p := range l.pieces {
		if int(p.GetNumber()) != i || p.GetId() != l.pieces[0].GetId() {
			return nil, fmt.Errorf("%w: piece %d of restore %q", errBadRecord, p.GetNumber(), p.GetId())
		}
		m.staging.id = p.GetId()
		m.staging.pieces = append(m.staging.pieces, p.GetData())
		m.staging.bytes += len(p.GetData())
	}
	err := m.Ledger.Load(l.meta.GetNowMs(), periodsOf(l.meta.GetPeriods()), fairnessOf(&l.meta), l.resources, l.counters,
		l.members)
	if err == nil {
		err = m.Registry.Load(l.meta.GetConfigVersion(), l.objects, l.history)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRecord, err)
	}
	m.Ledger.Resume(ledger.Restored{
		Epoch: l.meta.GetEpoch(), HoldUntilMS: l.meta.GetHoldUntilMs(), LearnUntilMS: l.meta.GetLearnUntilMs(),
	})
	m.Rollup.Load(l.rows, l.sources)
	m.Rollup.Advance(m.Ledger.Now())
	return m, nil
}

func (l *loader) add(key string, value []byte) error {
	kind, _, _ := strings.Cut(key, "/")
	switch kind {
	case metaKey:
		return decode(key, value, &l.meta)
	case "r":
		return collectInto(&l.resources, key, value, &raftlogv1.ResourceState{}, resourceFrom)
	case "c":
		return collectInto(&l.counters, key, value, &raftlogv1.CounterState{}, counterStateFrom)
	case "m":
		return collectInto(&l.members, key, value, &raftlogv1.MemberState{}, memberFrom)
	case "o":
		return collectInto(&l.objects, key, value, &raftlogv1.ObjectState{}, func(o *raftlogv1.ObjectState) registry.Object {
			return registry.Object{Kind: o.GetKind(), ID: o.GetId(), Spec: o.GetSpecJson(), Version: o.GetVersion()}
		})
	case "h":
		return collectInto(&l.history, key, value, &raftlogv1.HistoryState{}, historyFrom)
	case "s":
		s := &raftlogv1.SealedState{}
		if err := decode(key, value, s); err != nil {
			return err
		}
		l.sealed[s.GetName()] = s
		return nil
	case "n":
		s := &raftlogv1.NodeState{}
		if err := decode(key, value, s); err != nil {
			return err
		}
		l.nodes[s.GetId()] = s
		return nil
	case levelKey:
		s := &raftlogv1.LevelState{}
		if err := decode(key, value, s); err != nil {
			return err
		}
		if s.GetLevel() > levelKnown {
			return fmt.Errorf("replica: the state is of level %d, this version knows %d: %w", s.GetLevel(), levelKnown, store.ErrNewerFormat)
		}
		l.level = s.GetLevel()
		return nil
	case "x":
		s := &raftlogv1.RestoreChunkState{}
		if err := decode(key, value, s); err != nil {
			return err
		}
		l.pieces = append(l.pieces, s)
		return nil
	case "u":
		if strings.HasPrefix(key, sourceKey("")) {
			return collectInto(&l.sources, key, value, &raftlogv1.UsageSourceState{}, func(s *raftlogv1.UsageSourceState) rollup.Source {
				return rollup.Source{Source: s.GetSource(), LastSeq: s.GetLastSeq(), AtMS: s.GetAtMs()}
			})
		}
		return collectInto(&l.rows, key, value, &raftlogv1.UsageRow{}, usageOf)
	default:
		return fmt.Errorf("replica: record %q is of an unknown kind: %w", key, store.ErrNewerFormat)
	}
}

func collectInto[M proto.Message, S any](out *[]S, key string, value []byte, m M, from func(M) S) error {
	if err := decode(key, value, m); err != nil {
		return err
	}
	*out = append(*out, from(m))
	return nil
}

func decode(key string, value []byte, m proto.Message) error {
	if err := proto.Unmarshal(value, m); err != nil {
		return fmt.Errorf("%w: %q: %w", errBadRecord, key, err)
	}
	return nil
}
