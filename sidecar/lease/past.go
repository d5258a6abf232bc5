package lease

import (
	"hash/crc32"
	"slices"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// past is what a segment says of the process that wrote it.
type past struct {
	generation  uint64
	id          uint64 // of the journal
	tail        uint64 // word
	incarnation uint64
	seq         uint64
	proven      bool // complete, of this boot, in the file it was written to
	totals      map[counterKey]*quotav1.Counter
	holds       map[uint64]*pastHold
	shares      []*quotav1.Share
	until       int64 // end of the shares, on the boot-time clock
	finals      []*final
}

type pastHold struct {
	note  []byte
	needs []pastNeed
}

type pastNeed struct {
	resource uint64
	period   uint32 // with uncharged
	amount   int64
}

// readPast reads one segment; nil when it is not live. inode is the file's own, boot the present boot.
//
// A damaged record, or a file cut short, ends the reading. What was read up to there is a lower bound of what was
// spent, and nothing is proven.
func readPast(mem []byte, inode uint64, boot [16]byte) *past {
	if len(mem) < headerBytes || le.Uint64(mem) != journalMagic ||
		crc32.Checksum(mem[:headerSummed], castagnoli) != le.Uint32(mem[headerSummed:]) {
		return nil
	}
	p := &past{
		generation: le.Uint64(mem[8:]), incarnation: le.Uint64(mem[16:]), id: le.Uint64(mem[48:]), tail: le.Uint64(mem[tailAt:]),
		totals: make(map[counterKey]*quotav1.Counter), holds: make(map[uint64]*pastHold),
	}
	seed := crc32.Update(0, castagnoli, mem[8:16])
	tail := int(le.Uint64(mem[tailAt:]) >> 32)
	intact := tail >= headerBytes && tail <= len(mem) && tailWord(seed, tail) == le.Uint64(mem[tailAt:])
	if !intact {
		tail = len(mem)
	}
	pos := headerBytes
	for pos+recordOverhead <= tail {
		length := int(le.Uint32(mem[pos:]))
		if length > tail-pos-recordOverhead {
			break
		}
		rec := mem[pos : pos+recordOverhead+length]
		if sumRecord(seed, rec) != le.Uint32(rec[4:]) || !p.apply(rec[8], rec[recordOverhead:]) {
			break
		}
		pos += len(rec)
	}
	p.proven = intact && pos == tail && le.Uint64(mem[24:]) == inode && inode != 0 &&
		[16]byte(mem[32:48]) == boot && boot != [16]byte{}
	return p
}

// apply takes one record; false when it is malformed.
func (p *past) apply(kind byte, b []byte) bool {
	d := decoder{b: b}
	switch kind {
	case recordTotals:
		c := d.counter()
		if d.bad || len(d.b) > 0 {
			return false
		}
		p.totals[counterKey{c.Resource, c.Period}] = c
	case recordReserve:
		id, h := d.u64(), &pastHold{}
		h.note = slices.Clone(d.bytes(int(d.u16())))
		for n := d.u8(); n > 0 && !d.bad; n-- {
			h.needs = append(h.needs, pastNeed{d.u64(), d.u32(), int64(d.u64())})
		}
		if d.bad || len(d.b) > 0 {
			return false
		}
		p.holds[id] = h
	case recordSettle:
		delete(p.holds, d.u64())
		for len(d.b) > 0 && !d.bad {
			p.spend(d.u64(), d.u32(), int64(d.u64()))
		}
	case recordForget:
		p.forget(counterKey{d.u64(), d.u32()})
	case recordRenew:
		p.seq = d.u64()
	case recordShares:
		_, p.until, p.shares = d.u64(), int64(d.u64()), nil
		for len(d.b) > 0 && !d.bad {
			p.shares = append(p.shares, &quotav1.Share{Resource: d.u64(), PerMinute: int64(d.u64())})
		}
	case recordStandby:
		p.until = int64(d.u64())
	case recordFinal:
		f := &quotav1.FileFinal{Incarnation: d.u64(), Seq: d.u64(), Proven: d.u8() == 1}
		for len(d.b) > 0 && !d.bad {
			f.Counters = append(f.Counters, d.counter())
		}
		p.finals = append(p.finals, &final{f})
	case recordFiled:
		done := d.u64()
		p.finals = slices.DeleteFunc(p.finals, func(f *final) bool { return f.msg.Incarnation == done })
	default:
		return false
	}
	return !d.bad
}

func (p *past) spend(resource uint64, period uint32, amount int64) {
	key := counterKey{resource, period}
	c := p.totals[key]
	if c == nil {
		c = &quotav1.Counter{Resource: resource, Period: period}
		p.totals[key] = c
	}
	c.Spent += amount
}

// forget ends a counter. What runs on it settles to nobody.
func (p *past) forget(key counterKey) {
	delete(p.totals, key)
	for _, h := range p.holds {
		for i := range h.needs {
			if n := &h.needs[i]; n.resource == key.resource && n.period == key.period {
				n.period = uncharged
			}
		}
	}
}

// lost are the reservations without a settle, oldest first.
func (p *past) lost() []LostHold {
	out := make([]LostHold, 0, len(p.holds))
	for _, id := range p.holdIDs() {
		h := p.holds[id]
		l := LostHold{Note: h.note}
		for _, n := range h.needs {
			l.Needs = append(l.Needs, Need{Resource: n.resource, Amount: n.amount})
		}
		out = append(out, l)
	}
	return out
}

func (p *past) holdIDs() []uint64 {
	ids := make([]uint64, 0, len(p.holds))
	for id := range p.holds {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// final is the totals with every reservation spent in full; nil when there is nothing to tell. Also a process that never
// sent a renew may have spent, past a soft budget, under its predecessor's shares.
func (p *past) final() *final {
	if p.seq == 0 && len(p.totals) == 0 && len(p.holds) == 0 {
		return nil
	}
	for _, h := range p.holds {
		for _, n := range h.needs {
			if n.period&uncharged == 0 {
				p.spend(n.resource, n.period, n.amount)
			}
		}
	}
	f := &quotav1.FileFinal{Incarnation: p.incarnation, Seq: p.seq, Proven: p.proven}
	keys := make([]counterKey, 0, len(p.totals))
	for k := range p.totals {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, counterKey.compare)
	for _, k := range keys {
		f.Counters = append(f.Counters, p.totals[k])
	}
	return &final{f}
}

// decoder reads little-endian numbers; bad is set once there is too little.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.b, d.bad = nil, true
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.bytes(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (d *decoder) counter() *quotav1.Counter {
	return &quotav1.Counter{
		Resource: d.u64(), Period: d.u32(), Spent: int64(d.u64()), Returned: int64(d.u64()),
	}
}
