package replica

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Renews are nearly all that goes through the log, thousands a second on every node. They are written and read here
// without the generated code, straight from and into the ledger's own type, in memory that is used again. What they look
// like is said by proto/raftlog/v1; FuzzRenewCodec holds this file to the code that is generated from it.

// entry is a decoded raftlog.v1.Entry.
type entry struct {
	stampMS int64
	ops     []op
}

// op is one operation: a renew, or any other one.
type op struct {
	renew *ledger.Renew
	other *raftlogv1.Op
}

// decoder decodes entries, one at a time: the next one takes the memory of the last.
type decoder struct {
	knows  uint32 // the highest level; see Node.knows
	format uint32 // of the entry
	entry  entry

	renews   []ledger.Renew
	counters []ledger.Counter
	asks     []ledger.Ask
	needs    []ledger.Need
}

// Tags of the fields, as they stand on the wire.
const (
	varint   = uint64(protowire.VarintType)
	embedded = uint64(protowire.BytesType)

	entryStamp, entryOps, entryFormatTag = 1<<3 | varint, 2<<3 | embedded, 3<<3 | varint

	opRenew = 1<<3 | embedded

	renewIdentity, renewIncarnation, renewSeq = 1<<3 | embedded, 2<<3 | varint, 3<<3 | varint
	renewCounters, renewAsks                  = 4<<3 | embedded, 5<<3 | embedded
	renewShares, renewLeaving, renewEpoch     = 6<<3 | varint, 7<<3 | varint, 8<<3 | varint

	counterResource, counterPeriod                 = 1<<3 | varint, 2<<3 | varint
	counterSpent, counterReturned                  = 3<<3 | varint, 4<<3 | varint
	counterHeld, counterDemand, counterClose       = 5<<3 | varint, 6<<3 | varint, 7<<3 | varint
	counterProviderLeft, counterGranted            = 8<<3 | varint, 9<<3 | varint
	askID, askNeeds                                = 1<<3 | varint, 2<<3 | embedded
	needResource, needPeriod, needAmount, needName = 1<<3 | varint, 2<<3 | varint, 3<<3 | varint, 4<<3 | embedded
)

var (
	errUTF8  = errors.New("a string is not UTF-8")
	errField = errors.New("the number of a field is out of range")
)

// decode returns the entry, or an error when this version does not understand all of it. It is good until the next call.
func (d *decoder) decode(data []byte) (*entry, error) {
	d.entry = entry{ops: d.entry.ops[:0]}
	d.format = 0
	d.renews, d.counters, d.asks, d.needs = d.renews[:0], d.counters[:0], d.asks[:0], d.needs[:0]
	if err := fields(data, d.entryField); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if d.format > entryFormat {
		return nil, fmt.Errorf("it is of format %d, this version knows %d: %w", d.format, entryFormat, store.ErrNewerFormat)
	}
	next := 0
	for i := range d.entry.ops {
		o := &d.entry.ops[i]
		if o.other == nil {
			o.renew = &d.renews[next]
			next++
			continue
		}
		switch o.other.GetOp().(type) {
		case nil:
			return nil, fmt.Errorf("operation %d is unknown: %w", i, store.ErrNewerFormat)
		case *raftlogv1.Op_Renew:
			return nil, fmt.Errorf("operation %d is a renew and more: %w", i, store.ErrNewerFormat)
		}
		if level := o.other.GetUpgrade().GetLevel(); level > d.knows {
			return nil, fmt.Errorf("it begins level %d, this version knows %d: %w", level, d.knows, store.ErrNewerFormat)
		}
	}
	return &d.entry, nil
}

func (d *decoder) entryField(tag, number uint64, bytes []byte) error {
	switch tag {
	case entryStamp:
		d.entry.stampMS = int64(number)
	case entryFormatTag:
		d.format = uint32(number)
	case entryOps:
		if renew, ok := onlyRenew(bytes); ok {
			d.entry.ops = append(d.entry.ops, op{})
			return d.renew(renew)
		}
		other := &raftlogv1.Op{}
		if err := proto.Unmarshal(bytes, other); err != nil {
			return err
		}
		d.entry.ops = append(d.entry.ops, op{other: other})
	}
	return nil
}

// onlyRenew reports whether an operation is a renew and nothing else.
func onlyRenew(b []byte) (renew []byte, ok bool) {
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 || tag != opRenew {
		return nil, false
	}
	renew, m := protowire.ConsumeBytes(b[n:])
	return renew, m > 0 && n+m == len(b)
}

func (d *decoder) renew(b []byte) error {
	var r ledger.Renew
	counters, asks := len(d.counters), len(d.asks)
	err := fields(b, func(tag, number uint64, bytes []byte) error {
		switch tag {
		case renewIdentity:
			r.Identity = string(bytes)
			return valid(bytes)
		case renewIncarnation:
			r.Incarnation = number
		case renewSeq:
			r.Seq = number
		case renewCounters:
			return d.counter(bytes)
		case renewAsks:
			return d.ask(bytes)
		case renewShares:
			r.ShareVersion = number
		case renewLeaving:
			r.Leaving = protowire.DecodeBool(number)
		case renewEpoch:
			r.Epoch = number
		}
		return nil
	})
	// The lists may have moved to larger memory while they grew: they are cut when they are whole.
	r.Counters, r.Asks = cut(d.counters, counters), cut(d.asks, asks)
	d.renews = append(d.renews, r)
	return err
}

func (d *decoder) counter(b []byte) error {
	d.counters = append(d.counters, ledger.Counter{})
	c := &d.counters[len(d.counters)-1]
	return fields(b, func(tag, number uint64, _ []byte) error {
		switch tag {
		case counterResource:
			c.Resource = number
		case counterPeriod:
			c.Period = uint32(number)
		case counterSpent:
			c.Spent = int64(number)
		case counterReturned:
			c.Returned = int64(number)
		case counterHeld:
			c.Held = int64(number)
		case counterDemand:
			c.Demand = int64(number)
		case counterClose:
			c.Close = protowire.DecodeBool(number)
		case counterProviderLeft:
			left := int64(number)
			c.ProviderLeft = &left
		case counterGranted:
			c.Granted = int64(number)
		}
		return nil
	})
}

func (d *decoder) ask(b []byte) error {
	var a ledger.Ask
	needs := len(d.needs)
	err := fields(b, func(tag, number uint64, bytes []byte) error {
		switch tag {
		case askID:
			a.ID = number
		case askNeeds:
			return d.need(bytes)
		}
		return nil
	})
	a.Needs = cut(d.needs, needs)
	d.asks = append(d.asks, a)
	return err
}

func (d *decoder) need(b []byte) error {
	d.needs = append(d.needs, ledger.Need{})
	n := &d.needs[len(d.needs)-1]
	return fields(b, func(tag, number uint64, bytes []byte) error {
		switch tag {
		case needResource:
			n.Resource = number
		case needPeriod:
			n.Period = uint32(number)
		case needAmount:
			n.Amount = int64(number)
		case needName:
			n.Name = string(bytes)
			return valid(bytes)
		}
		return nil
	})
}

// cut returns what a list got since it had n elements.
func cut[T any](list []T, n int) []T { return list[n:len(list):len(list)] }

func valid(text []byte) error {
	if !utf8.Valid(text) {
		return errUTF8
	}
	return nil
}

// fields visits the fields of a message in order: a number for those that are varints, bytes for what is embedded.
// Others are passed over, as are tags that visit does not know.
func fields(b []byte, visit func(tag, number uint64, bytes []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number > protowire.MaxValidNumber {
			return errField
		}
		b = b[n:]
		var v uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := visit(protowire.EncodeTag(number, kind), v, bytes); err != nil {
			return err
		}
	}
	return nil
}

// appendStamp begins an entry.
func appendStamp(b []byte, stampMS int64) []byte { return appendNumber(b, entryStamp, uint64(stampMS)) }

// encodeOps encodes operations as an entry without a stamp.
func encodeOps(ops []*raftlogv1.Op) ([]byte, error) {
	b, err := proto.Marshal(&raftlogv1.Entry{Ops: ops})
	if err != nil {
		return nil, fmt.Errorf("encode operations: %w", err)
	}
	return b, nil
}

// encodeRenew is encodeOps for one renew.
func encodeRenew(r *ledger.Renew) ([]byte, error) {
	if !utf8.ValidString(r.Identity) {
		return nil, fmt.Errorf("encode renew: identity: %w", errUTF8)
	}
	for i := range r.Asks {
		for k := range r.Asks[i].Needs {
			if !utf8.ValidString(r.Asks[i].Needs[k].Name) {
				return nil, fmt.Errorf("encode renew: asks[%d].needs[%d].name: %w", i, k, errUTF8)
			}
		}
	}
	const renewBytes = 64 // beside its lists, about
	size := renewBytes + len(r.Identity) + 40*len(r.Counters)
	for i := range r.Asks {
		size += 12 + 16*len(r.Asks[i].Needs)
	}
	b := make([]byte, 0, size)
	b = appendEmbedded(b, entryOps, func(b []byte) []byte {
		return appendEmbedded(b, opRenew, func(b []byte) []byte { return appendRenew(b, r) })
	})
	return b, nil
}

func appendRenew(b []byte, r *ledger.Renew) []byte {
	b = appendText(b, renewIdentity, r.Identity)
	b = appendNumber(b, renewIncarnation, r.Incarnation)
	b = appendNumber(b, renewSeq, r.Seq)
	for i := range r.Counters {
		b = appendEmbedded(b, renewCounters, func(b []byte) []byte { return appendCounter(b, &r.Counters[i]) })
	}
	for i := range r.Asks {
		b = appendEmbedded(b, renewAsks, func(b []byte) []byte { return appendAsk(b, &r.Asks[i]) })
	}
	b = appendNumber(b, renewShares, r.ShareVersion)
	b = appendNumber(b, renewLeaving, protowire.EncodeBool(r.Leaving))
	return appendNumber(b, renewEpoch, r.Epoch)
}

func appendCounter(b []byte, c *ledger.Counter) []byte {
	b = appendNumber(b, counterResource, c.Resource)
	b = appendNumber(b, counterPeriod, uint64(c.Period))
	b = appendNumber(b, counterSpent, uint64(c.Spent))
	b = appendNumber(b, counterReturned, uint64(c.Returned))
	b = appendNumber(b, counterHeld, uint64(c.Held))
	b = appendNumber(b, counterDemand, uint64(c.Demand))
	b = appendNumber(b, counterClose, protowire.EncodeBool(c.Close))
	if c.ProviderLeft != nil {
		b = protowire.AppendVarint(protowire.AppendVarint(b, counterProviderLeft), uint64(*c.ProviderLeft))
	}
	return appendNumber(b, counterGranted, uint64(c.Granted))
}

func appendAsk(b []byte, a *ledger.Ask) []byte {
	b = appendNumber(b, askID, a.ID)
	for i := range a.Needs {
		n := &a.Needs[i]
		b = appendEmbedded(b, askNeeds, func(b []byte) []byte {
			b = appendNumber(b, needResource, n.Resource)
			b = appendNumber(b, needPeriod, uint64(n.Period))
			b = appendNumber(b, needAmount, uint64(n.Amount))
			return appendText(b, needName, n.Name)
		})
	}
	return b
}

// appendNumber appends a varint; 0 is left out, as it is what is read where there is none.
func appendNumber(b []byte, tag, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendVarint(b, tag), v)
}

func appendText(b []byte, tag uint64, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendVarint(b, tag), s)
}

// appendEmbedded appends a message after its length, which is known when the message stands: it moves back for it.
func appendEmbedded(b []byte, tag uint64, message func([]byte) []byte) []byte {
	b = protowire.AppendVarint(b, tag)
	at := len(b)
	b = message(b)
	n := len(b) - at
	var room [10]byte
	size := protowire.SizeVarint(uint64(n))
	b = append(b, room[:size]...)
	copy(b[at+size:], b[at:at+n])
	protowire.AppendVarint(b[:at], uint64(n))
	return b
}
