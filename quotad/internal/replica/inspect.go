package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Inspection is what a data directory holds, read without a running node.
type Inspection struct {
	*store.Image
	State *Machine // nil when the state file cannot be read; read only
	// Hash is of all records of the state file: nodes whose state files stand at the same index have the same.
	Hash    string
	Records int
	// Kinds counts the records, by what their keys begin with.
	Kinds map[string]int
}

// ErrNoNode is returned for a directory in which no node ever ran.
var ErrNoNode = errors.New("no quotad's directory: it has neither meta.json nor raft.db nor state.db")

// Inspect reads a data directory as far as it goes. It never writes. Close lets the directory go. ErrNoNode when it is
// another directory.
func Inspect(dir string) (*Inspection, error) {
	image, err := store.OpenImage(dir)
	if err != nil {
		return nil, err
	}
	ours := func(f store.FileSize) bool {
		return f.Name == "meta.json" || f.Name == "raft.db" || f.Name == "state.db"
	}
	if !slices.ContainsFunc(image.Files, ours) {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, ErrNoNode), image.Close())
	}
	x := &Inspection{Image: image, Kinds: map[string]int{}}
	sum := sha256.New()
	l := newLoader()
	var bad error // the first record that does not decode
	err = image.Records(func(key string, value []byte) error {
		x.Records++
		x.Kinds[key[:min(1, len(key))]]++
		for _, b := range [][]byte{[]byte(key), value} {
			sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
			sum.Write(b)
		}
		if err := l.add(key, value); err != nil && bad == nil {
			bad = err
		}
		return nil
	})
	for _, err := range []error{err, bad} {
		if err != nil {
			image.Damage = append(image.Damage, fmt.Sprintf("state.db: %v", err))
		}
	}
	if x.Records == 0 {
		return x, nil
	}
	x.Hash = hex.EncodeToString(sum.Sum(nil))
	m, err := l.machine(ledger.Config{})
	if err != nil {
		image.Damage = append(image.Damage, fmt.Sprintf("state.db: %v", err))
		return x, nil
	}
	x.State = m
	if m.GroupID() != "" && image.ClusterID != "" && m.GroupID() != image.ClusterID {
		image.Damage = append(image.Damage, fmt.Sprintf("state.db: it is of cluster %s, meta.json of %s", m.GroupID(), image.ClusterID))
	}
	return x, nil
}

// LogLine is one entry of the log in words.
type LogLine struct {
	Index uint64   `json:"index"`
	Term  uint64   `json:"term"`
	Type  string   `json:"type"`
	AtMS  int64    `json:"at_ms,omitempty"` // ledger time
	Ops   []string `json:"ops"`
}

// Tail reads the newest n entries, oldest first. Secrets are sealed, and not shown all the same.
func (x *Inspection) Tail(n int) []LogLine {
	var out []LogLine
	for i := x.LastIndex; i >= max(1, x.FirstIndex) && len(out) < n; i-- {
		e, err := x.Entry(i)
		if err != nil {
			out = append(out, LogLine{Index: i, Type: "damaged", Ops: []string{err.Error()}})
			continue
		}
		out = append(out, lineOf(e))
	}
	slices.Reverse(out)
	return out
}

func lineOf(e *raft.Log) LogLine {
	line := LogLine{Index: e.Index, Term: e.Term, Ops: []string{}}
	switch e.Type {
	case raft.LogCommand:
		line.Type = "entry"
		m := &raftlogv1.Entry{}
		if _, err := (&decoder{knows: levelKnown}).decode(e.Data); err != nil {
			line.Ops = append(line.Ops, err.Error())
			return line
		}
		if err := proto.Unmarshal(e.Data, m); err != nil {
			line.Ops = append(line.Ops, err.Error())
			return line
		}
		line.AtMS = m.GetStampMs()
		for _, op := range m.GetOps() {
			line.Ops = append(line.Ops, opText(op))
		}
	case raft.LogConfiguration:
		line.Type = "configuration"
		for _, s := range raft.DecodeConfiguration(e.Data).Servers {
			line.Ops = append(line.Ops, fmt.Sprintf("%s %s at %s", s.ID, s.Suffrage, s.Address))
		}
	case raft.LogNoop:
		line.Type = "term begins"
	case raft.LogBarrier:
		line.Type = "barrier"
	default:
		line.Type = fmt.Sprintf("type %d", e.Type)
	}
	return line
}

// opText writes an operation as its name and its fields, without what is long or secret.
func opText(op *raftlogv1.Op) string {
	m := op.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("op"))
	switch o := op.GetOp().(type) {
	case *raftlogv1.Op_Seal:
		return fmt.Sprintf("seal %s with key %s by %s", o.Seal.GetName(), o.Seal.GetKeyId(), o.Seal.GetActor())
	case *raftlogv1.Op_RestoreChunk:
		return fmt.Sprintf("restore_chunk %d of %s, %d bytes", o.RestoreChunk.GetNumber(), o.RestoreChunk.GetId(), len(o.RestoreChunk.GetData()))
	case *raftlogv1.Op_Change:
		text := fmt.Sprintf("change by %s: %s", o.Change.GetActor(), o.Change.GetNote())
		for _, obj := range o.Change.GetObjects() {
			what := "set"
			if len(obj.GetSpecJson()) == 0 {
				what = "delete"
			}
			text += fmt.Sprintf("; %s %s %s", what, obj.GetKind(), obj.GetId())
		}
		return text
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.Get(field).Message().Interface())
	if err != nil {
		return string(field.Name()) + " " + err.Error()
	}
	return clipText(field, b)
}

func clipText(field protoreflect.FieldDescriptor, b []byte) string {
	if len(b) > opTextMax {
		b = append(b[:opTextMax:opTextMax], "…"...)
	}
	return string(field.Name()) + " " + string(b)
}
