package lease

import (
	"encoding/binary"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// This file is what the machine writes to its journal, and when. Every method does nothing without one.

var le = binary.LittleEndian

// recordBytes is what h takes as a record. It does not change while h is open.
func (h *hold) recordBytes() int { return recordOverhead + 8 + 2 + len(h.note) + 1 + h.n*needBytes }

func (h *hold) appendTo(b []byte) []byte {
	b = le.AppendUint64(b, h.id)
	b = le.AppendUint16(b, uint16(len(h.note)))
	b = append(b, h.note...)
	b = append(b, byte(h.n))
	for i := range h.n {
		n := &h.needs[i]
		key := counterKey{n.res.id, uncharged}
		if n.counter != nil && !n.counter.gone {
			key = n.counter.key
		}
		b = le.AppendUint64(b, key.resource)
		b = le.AppendUint32(b, key.period)
		b = le.AppendUint64(b, uint64(n.amount))
	}
	return b
}

func appendCounter(b []byte, resource uint64, period uint32, spent, returned int64) []byte {
	b = le.AppendUint64(b, resource)
	b = le.AppendUint32(b, period)
	b = le.AppendUint64(b, uint64(spent))
	return le.AppendUint64(b, uint64(returned))
}

// journalFits reports whether a checkpoint that includes h stays below half a segment.
func (m *Machine) journalFits(h *hold) bool {
	base := len(m.counters)*(recordOverhead+counterBytes) + len(m.shares)*shareBytes + m.finalsBytes()
	return base+m.openBytes+h.recordBytes() <= m.journal.size()/2
}

// write appends the record in the scratch buffer, into the next segment if this one is full. The machine's state must
// be that before the record: the checkpoint does not include it.
func (m *Machine) write(kind byte, payload []byte) {
	m.journal.scratch = payload
	if m.journal.append(kind, payload) {
		return
	}
	record := append([]byte(nil), payload...) // the checkpoint uses the buffer too
	m.checkpoint()
	if !m.journal.append(kind, record) {
		m.journal.fail("a record does not fit")
	}
}

// checkpoint begins the next segment with everything a successor needs.
func (m *Machine) checkpoint() {
	j := m.journal
	j.start()
	put := func(kind byte, payload []byte) {
		j.scratch = payload
		if !j.append(kind, payload) {
			j.fail("a checkpoint does not fit")
		}
	}
	for _, c := range m.counters {
		if !c.gone && !c.closing && (c.spent != 0 || c.returned != 0) {
			put(recordTotals, appendCounter(j.scratch[:0], c.key.resource, c.key.period, c.spent, c.returned))
		}
	}
	for _, h := range m.open {
		put(recordReserve, h.appendTo(j.scratch[:0]))
	}
	for _, f := range m.finals {
		put(recordFinal, f.appendTo(j.scratch[:0]))
	}
	put(recordShares, m.appendShares(j.scratch[:0]))
	put(recordRenew, le.AppendUint64(j.scratch[:0], m.seq))
	j.finish(m.incarnation)
}

// journalReserve records h before it is among the open ones.
func (m *Machine) journalReserve(h *hold) {
	if m.journal.ok() {
		m.write(recordReserve, h.appendTo(m.journal.scratch[:0]))
	}
}

// journalSettle records what h used, before the totals change.
func (m *Machine) journalSettle(h *hold, used []Need) {
	if !m.journal.ok() {
		return
	}
	b := le.AppendUint64(m.journal.scratch[:0], h.id)
	for i := range used {
		n := h.find(used[i].Resource)
		if n == nil || n.counter == nil || n.counter.gone {
			continue
		}
		b = le.AppendUint64(b, n.counter.key.resource)
		b = le.AppendUint32(b, n.counter.key.period)
		b = le.AppendUint64(b, uint64(used[i].Amount))
	}
	m.write(recordSettle, b)
}

// journalForget records that c ends here: one that begins again under its key starts at 0. A counter that is closed
// ends before quotad is told. If the process dies then, quotad knows its totals or has dropped it, and either way
// nothing must be said of it.
func (m *Machine) journalForget(c *counter) {
	if m.journal.ok() {
		b := le.AppendUint64(m.journal.scratch[:0], c.key.resource)
		m.write(recordForget, le.AppendUint32(b, c.key.period))
	}
}

// journalTotals records a counter that goes on after all.
func (m *Machine) journalTotals(c *counter) {
	if m.journal.ok() {
		b := m.journal.scratch[:0]
		m.write(recordTotals, appendCounter(b, c.key.resource, c.key.period, c.spent, c.returned))
	}
}

// journalRenew records a renew's seq before it is sent: a journal with an older one was rolled back.
func (m *Machine) journalRenew(msg *quotav1.Renew) {
	if m.journal.ok() {
		m.write(recordRenew, le.AppendUint64(m.journal.scratch[:0], msg.Seq))
	}
}

func (m *Machine) appendShares(b []byte) []byte {
	b = le.AppendUint64(b, m.shareVersion)
	b = le.AppendUint64(b, uint64(m.standbyUntil))
	for _, s := range m.sortedShares() {
		b = le.AppendUint64(b, s.Resource)
		b = le.AppendUint64(b, uint64(s.PerMinute))
	}
	return b
}

// journalShares records the shares before they are acknowledged.
func (m *Machine) journalShares() {
	if m.journal.ok() {
		m.write(recordShares, m.appendShares(m.journal.scratch[:0]))
	}
}

// journalStandby records only their new end.
func (m *Machine) journalStandby() {
	if m.journal.ok() {
		m.write(recordStandby, le.AppendUint64(m.journal.scratch[:0], uint64(m.standbyUntil)))
	}
}

// journalRestart begins the record of another incarnation.
func (m *Machine) journalRestart() {
	if m.journal.ok() {
		m.checkpoint()
	}
}

// final is what quotad must be told of a dead predecessor.
type final struct {
	msg *quotav1.FileFinal
}

func (f *final) recordBytes() int {
	return recordOverhead + 8 + 8 + 1 + len(f.msg.Counters)*counterBytes
}

func (f *final) appendTo(b []byte) []byte {
	b = le.AppendUint64(b, f.msg.Incarnation)
	b = le.AppendUint64(b, f.msg.Seq)
	proven := byte(0)
	if f.msg.Proven {
		proven = 1
	}
	b = append(b, proven)
	for _, c := range f.msg.Counters {
		b = appendCounter(b, c.Resource, c.Period, c.Spent, c.Returned)
	}
	return b
}

func (m *Machine) finalsBytes() int {
	sum := 0
	for _, f := range m.finals {
		sum += f.recordBytes()
	}
	return sum
}

// addFinals takes over what is still to be filed, oldest first, within bounds: beyond them the oldest are dropped.
func (m *Machine) addFinals(finals []*final) (dropped int) {
	m.finals = finals
	most := segmentBytesDefault / 8
	if m.journal.ok() {
		most = m.journal.size() / 8
	}
	for len(m.finals) > 0 && (len(m.finals) > maxFinals || m.finalsBytes() > most) {
		m.finals = m.finals[1:]
		dropped++
	}
	return dropped
}

// Filed takes quotad's word that a predecessor's totals need not be sent again.
func (m *Machine) Filed(incarnation uint64) {
	for i, f := range m.finals {
		if f.msg.Incarnation != incarnation {
			continue
		}
		if m.journal.ok() {
			m.write(recordFiled, le.AppendUint64(m.journal.scratch[:0], incarnation))
		}
		m.finals = append(m.finals[:i:i], m.finals[i+1:]...)
		return
	}
}
