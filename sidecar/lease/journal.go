package lease

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// journal is an append-only record of what the process reserves and settles, in two preallocated segments that are
// mapped into memory and used in turn: what is stored there survives kill -9 without a system call. When one is
// full, a checkpoint of the machine goes into the other and writing goes on behind it. No space is needed after the
// start.
//
// A segment is a header and records. Exactly one segment is live, but for the moment of a switch, when both are and
// the larger generation counts. The tail word in the header says how far records were written. Everything before it
// must be whole: a damaged record there means that spending may be missing, so the journal proves nothing. What lies
// behind it was being written when the process died, and nobody acted on it.
type journal struct {
	segments   [2]segment
	at         int // the segment written to
	pos        int // in it
	seed       uint32
	generation uint64
	id         uint64 // random, of all processes on one disk
	boot       [16]byte
	mark       mark
	live       bool // the segment written to is what a successor would read
	begun      uint64
	why        string           // not empty: the journal failed and is no longer written
	discard    func()           // removes the files, so that nobody takes a journal that stops short for the truth
	cold       func(mem []byte) // tells the system that mem will not be read soon
	scratch    []byte
}

type segment struct {
	mem   []byte
	inode uint64
}

const (
	journalMagic   = 0x324c4a4543554c53 // "SLUCEJL2"
	headerBytes    = 128
	headerSummed   = 56 // magic, generation, incarnation, inode, boot id, journal id
	tailAt         = 64
	recordOverhead = 9 // length, sum, kind
	coldStep       = 1 << 20
	uncharged      = uint32(1) << 31 // in a need's period: no counter knows of it
	counterBytes   = 28
	needBytes      = 20
	shareBytes     = 16
	recordTotals   = 1
	recordReserve  = 2
	recordSettle   = 3
	recordRenew    = 4
	recordShares   = 5
	recordStandby  = 6
	recordFinal    = 7
	recordFiled    = 8
	recordForget   = 9
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ok reports whether the journal is written. A nil journal is not.
func (j *journal) ok() bool { return j != nil && j.why == "" }

// guard keeps a fault in mapped memory, such as a file that was cut short under us, from ending the process. It must
// be deferred with the previous setting.
func (j *journal) guard(previous bool) {
	debug.SetPanicOnFault(previous)
	fault := recover()
	if fault == nil {
		return
	}
	if _, memory := fault.(interface {
		runtime.Error
		Addr() uintptr
	}); !memory {
		panic(fault)
	}
	j.fail("memory fault")
}

// fail ends journaling. The files must not be taken for complete by a successor.
func (j *journal) fail(why string) {
	j.why = why
	if j.discard != nil {
		j.discard()
		j.mark.forget()
	}
}

// start begins a segment: the one that is not live. finish makes it live.
func (j *journal) start() {
	defer j.guard(debug.SetPanicOnFault(true))
	j.at = 1 - j.at
	j.generation++
	var g [8]byte
	binary.LittleEndian.PutUint64(g[:], j.generation)
	j.seed = crc32.Update(0, castagnoli, g[:])
	j.pos = headerBytes
	j.begun++
	j.live = false
	clear(j.segments[j.at].mem[:headerBytes])
	j.setTail()
}

// finish makes the started segment live and ends the other.
func (j *journal) finish(incarnation uint64) {
	if !j.ok() {
		return
	}
	defer j.guard(debug.SetPanicOnFault(true))
	s := j.segments[j.at]
	var h [headerSummed]byte
	binary.LittleEndian.PutUint64(h[0:], journalMagic)
	binary.LittleEndian.PutUint64(h[8:], j.generation)
	binary.LittleEndian.PutUint64(h[16:], incarnation)
	binary.LittleEndian.PutUint64(h[24:], s.inode)
	copy(h[32:], j.boot[:])
	binary.LittleEndian.PutUint64(h[48:], j.id)
	binary.LittleEndian.PutUint32(s.mem[headerSummed:], crc32.Checksum(h[:], castagnoli))
	copy(s.mem[8:], h[8:])
	word := tailWord(j.seed, j.pos)
	j.mark.about(word)
	storeWord(s.mem[0:], journalMagic) // last: the header is whole once the magic stands
	other := j.segments[1-j.at].mem
	storeWord(other[0:], 0)
	j.mark.done(word)
	j.live = true
	if j.cold != nil {
		j.cold(other)
	}
}

// append writes one record. False: the segment is full, and nothing was written. A journal that has failed takes
// everything and keeps nothing.
func (j *journal) append(kind byte, payload []byte) (room bool) {
	room = true
	if !j.ok() {
		return
	}
	mem, end := j.segments[j.at].mem, j.pos+recordOverhead+len(payload)
	if end > len(mem) {
		return false
	}
	defer j.guard(debug.SetPanicOnFault(true))
	rec := mem[j.pos:end]
	binary.LittleEndian.PutUint32(rec[0:], uint32(len(payload)))
	rec[8] = kind
	copy(rec[9:], payload)
	binary.LittleEndian.PutUint32(rec[4:], sumRecord(j.seed, rec))
	was := j.pos
	j.pos = end
	j.setTail()
	if j.cold != nil && was/coldStep != end/coldStep {
		j.cold(mem[was/coldStep*coldStep : end/coldStep*coldStep])
	}
	return
}

// setTail publishes the records up to pos. It is one store, so that a reader finds the old word or the new.
func (j *journal) setTail() {
	word := tailWord(j.seed, j.pos)
	if j.live {
		j.mark.about(word)
	}
	storeWord(j.segments[j.at].mem[tailAt:], word)
	if j.live {
		j.mark.done(word)
	}
}

// tailWord is a position and its check: the sum of the position's bytes, without help that would allocate.
func tailWord(seed uint32, pos int) uint64 {
	sum := ^seed
	for p, i := uint32(pos), 0; i < 4; i++ {
		sum = castagnoli[byte(sum)^byte(p)] ^ sum>>8
		p >>= 8
	}
	return uint64(pos)<<32 | uint64(^sum)
}

// sumRecord sums a record but for its sum. It is seeded by the segment's generation, so that records of an earlier use
// are not taken for new ones.
func sumRecord(seed uint32, rec []byte) uint32 {
	return crc32.Update(crc32.Update(seed, castagnoli, rec[0:4]), castagnoli, rec[8:])
}

// storeWord stores eight bytes at once. mem is 8-aligned: segments are page-aligned, or heap memory of that size.
func storeWord(mem []byte, word uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], word)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[0])), *(*uint64)(unsafe.Pointer(&b[0])))
}

// size is the bytes of one segment.
func (j *journal) size() int { return len(j.segments[0].mem) }

func (j *journal) stats() JournalStats {
	return JournalStats{OK: j.why == "", Why: j.why, Segments: j.begun, Used: j.pos, Size: j.size()}
}
