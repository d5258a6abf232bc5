package replica

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Backup is what a backup holds, as far as it is looked at before it is restored.
type Backup struct {
	*raftlogv1.BackupHeader
	Records uint64
	SealKey map[string]string // sealing key by credential
}

// RestoreOutcome is what a restore did.
type RestoreOutcome struct {
	Refusal string // not empty: nothing was changed
	Epoch   uint64
	Version uint64 // of the configuration
	HoldMS  int64  // nothing is granted for that long
}

// Refusals to restore. Nothing was changed.
var (
	// ErrBadBackup: what is to be restored is cut short, damaged, or not a backup.
	ErrBadBackup = store.ErrBadBackup
	// ErrBadRecord: its records do not make a state, or not one that this version understands.
	ErrBadRecord = errBadRecord
)

// kept says which records are part of a backup. Where the nodes are is not, nor another backup that is being restored.
func kept(key []byte) bool {
	return !bytes.HasPrefix(key, []byte("n/")) && !bytes.HasPrefix(key, []byte("x/"))
}

func (n *Node) backup(ctx context.Context, w io.Writer, build string) error {
	if err := n.linearizable(ctx); err != nil {
		return err
	}
	n.fsm.mu.RLock()
	applied := n.fsm.applied
	n.fsm.mu.RUnlock()
	return n.store.State().Backup(ctx, w, applied, func(applied uint64, get func(string) []byte) (*raftlogv1.BackupHeader, error) {
		meta := &raftlogv1.MetaState{}
		if err := decode(metaKey, get(metaKey), meta); err != nil {
			return nil, err
		}
		return &raftlogv1.BackupHeader{
			Applied: meta.GetIndexBase() + applied, ClusterId: meta.GetClusterId(), Epoch: meta.GetEpoch(),
			MadeAtMs: time.Now().UnixMilli(), Build: build, ConfigVersion: meta.GetConfigVersion(),
		}, nil
	}, kept)
}

// ReadBackup reads a backup to its end and makes sure that it can be restored.
func ReadBackup(r io.Reader) (*Backup, error) {
	b := &Backup{SealKey: map[string]string{}}
	_, err := loadMachine(ledger.Config{}, func(each func(string, []byte) error) (err error) {
		b.BackupHeader, b.Records, err = store.ReadBackup(r, func(key string, value []byte) error {
			if strings.HasPrefix(key, sealedKey("")) {
				s := &raftlogv1.SealedState{}
				if err := decode(key, value, s); err != nil {
					return err
				}
				b.SealKey[s.GetName()] = s.GetKeyId()
			}
			return each(key, value)
		})
		return err
	})
	return b, err
}

// restore sends a backup, which was read before, through the log, and has it applied.
func (n *Node) restore(ctx context.Context, r io.Reader, keepID bool, actor, note string) (RestoreOutcome, error) {
	random := make([]byte, 8)
	rand.Read(random) // never fails
	id := hex.EncodeToString(random)
	pieces := &pieces{node: n, ctx: ctx, id: id, sum: sha256.New()}
	z := gzip.NewWriter(pieces)
	_, err := io.Copy(z, r)
	if err == nil {
		err = errors.Join(z.Close(), pieces.flush())
	}
	if err != nil {
		return RestoreOutcome{}, err
	}
	now := time.Now()
	res, err := n.propose(ctx, []*raftlogv1.Op{{Op: &raftlogv1.Op_RestoreCommit{RestoreCommit: &raftlogv1.RestoreCommit{
		Id: id, Chunks: pieces.number, Sha256: pieces.sum.Sum(nil), Epoch: uint64(now.Unix()), KeepClusterId: keepID, Actor: actor,
		AtMs: now.UnixMilli(), Note: note,
	}}}})
	if err != nil {
		return RestoreOutcome{}, err
	}
	return res[0].Restore, nil
}

// pieces proposes what is written to it, piece by piece.
type pieces struct {
	node   *Node
	ctx    context.Context
	id     string
	sum    hash.Hash
	buf    []byte
	number uint32
}

func (p *pieces) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	for len(p.buf) >= restoreChunkBytes {
		if err := p.send(p.buf[:restoreChunkBytes]); err != nil {
			return 0, err
		}
		p.buf = bytes.Clone(p.buf[restoreChunkBytes:])
	}
	return len(b), nil
}

func (p *pieces) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	return p.send(p.buf)
}

func (p *pieces) send(b []byte) error {
	res, err := p.node.propose(p.ctx, []*raftlogv1.Op{{Op: &raftlogv1.Op_RestoreChunk{RestoreChunk: &raftlogv1.RestoreChunk{
		Id: p.id, Number: p.number, Data: b,
	}}}})
	if err != nil {
		return err
	}
	if refusal := res[0].Restore.Refusal; refusal != "" {
		return fmt.Errorf("%w: %s", ErrBusy, refusal)
	}
	p.sum.Write(b)
	p.number++
	return nil
}

// staging is a backup that comes in piece by piece.
type staging struct {
	id     string
	pieces [][]byte
	bytes  int
}

// stage takes a piece, and says why not otherwise.
func (m *Machine) stage(c *raftlogv1.RestoreChunk) (refusal string) {
	if c.GetNumber() == 0 {
		m.unstage()
		m.staging.id = c.GetId()
	}
	switch {
	case c.GetId() == "" || c.GetId() != m.staging.id || int(c.GetNumber()) != len(m.staging.pieces):
		return "another restore began meanwhile"
	case len(c.GetData()) > entryBytesMax || m.staging.bytes+len(c.GetData()) > restoreBytesMax:
		return "the backup is too large"
	}
	m.staging.pieces = append(m.staging.pieces, c.GetData())
	m.staging.bytes += len(c.GetData())
	m.touchedPieces[c.GetNumber()] = true
	return ""
}

func (m *Machine) unstage() {
	for i := range m.staging.pieces {
		m.touchedPieces[uint32(i)] = true
	}
	m.staging = staging{}
}

// commit replaces the state by that of the pieces. index is that of the entry, with the base of before.
func (m *Machine) commit(index uint64, c *raftlogv1.RestoreCommit) RestoreOutcome {
	refused := func(format string, args ...any) RestoreOutcome {
		return RestoreOutcome{Refusal: fmt.Sprintf(format, args...)}
	}
	if c.GetId() == "" || c.GetId() != m.staging.id || int(c.GetChunks()) != len(m.staging.pieces) {
		return refused("another restore began meanwhile")
	}
	compressed := bytes.Join(m.staging.pieces, nil)
	m.unstage()
	if sum := sha256.Sum256(compressed); !bytes.Equal(sum[:], c.GetSha256()) {
		return refused("the pieces are not what was sent")
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return refused("%v", err)
	}
	l := newLoader()
	records := map[string][]byte{}
	h, _, err := store.ReadBackup(z, func(key string, value []byte) error {
		if !kept([]byte(key)) {
			return nil
		}
		records[key] = value
		return l.add(key, value)
	})
	if err != nil {
		return refused("%v", err)
	}
	// Names made since the backup are somewhere out there: what is made from now on is called otherwise.
	next := max(index, h.GetApplied()) + restoreSkips
	l.meta.ConfigVersion = next
	history := historyOf(c, next)
	l.history = append(l.history, history)
	fresh, err := l.machine(m.cfg)
	if err != nil {
		return refused("%v", err)
	}
	fresh.group, fresh.base = m.GroupID(), m.base+next-index
	fresh.nodes, fresh.touchedNodes, fresh.touchedPieces = m.nodes, m.touchedNodes, m.touchedPieces
	for id := range m.nodes {
		fresh.touchNode(id)
	}
	// A backup of an older level goes on by the rules that hold now.
	if err := fresh.raise(next, m.level); err != nil {
		return refused("%v", err)
	}
	if c.GetKeepClusterId() {
		fresh.clusterID = m.clusterID
	}
	epoch := max(c.GetEpoch(), m.Epoch()+1, fresh.Epoch()+1)
	for _, row := range fresh.Rollup.Rows() {
		fresh.eachBudget(row.Team, row.Key, func(scope, owner string) { fresh.Ledger.Recall(scope, owner, row.HourMS, row.CostNano) })
	}
	fresh.Ledger.Enter(next)
	fresh.Ledger.Restore(epoch, m.Ledger.Now())
	fresh.Rollup.Advance(fresh.Ledger.Now())
	// Everything is new to whoever watches.
	fresh.tellConfig()
	fresh.news.Credentials = true
	records[historyKey(next)] = record(historyKey(next), historyTo(history)).Value
	fresh.replaced = records
	*m = *fresh
	return RestoreOutcome{
		Epoch: epoch, Version: m.Registry.Version(), HoldMS: m.Ledger.Restored().HoldUntilMS - m.Ledger.Now(),
	}
}

func historyOf(c *raftlogv1.RestoreCommit, version uint64) registry.HistoryEntry {
	return registry.HistoryEntry{Version: version, Actor: c.GetActor(), AtMS: c.GetAtMs(), Note: c.GetNote()}
}

// learn tells the ledger of usage that was counted for the first time.
func (m *Machine) learn(rows []*raftlogv1.UsageRow) {
	for _, r := range rows {
		m.eachBudget(r.GetTeam(), r.GetKey(), func(scope, owner string) {
			m.Ledger.Learn(scope, owner, r.GetHourMs(), r.GetCostNano())
		})
	}
}

// eachBudget names whose budgets a team's request with a key is paid from, whether they have one or not.
func (m *Machine) eachBudget(teamID, key string, visit func(scope, owner string)) {
	visit(registry.ScopeKey, key)
	team, ok := m.Registry.Team(teamID)
	if !ok {
		return // the platform's account
	}
	visit(registry.ScopeTeam, team.ID)
	if team.BusinessUnit != "" {
		visit(registry.ScopeBusinessUnit, team.BusinessUnit)
	}
	visit(registry.ScopeOrg, registry.OrgID)
}
