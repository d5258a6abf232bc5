package lease

import "encoding/binary"

// mark says how far the journal was written, in memory off the journal's disk that outlives the process and not the
// boot. A disk that was put back to an older state has the same file, of the same boot, whole: only by the mark can it
// be told from the newest. Without a mark it cannot, and the journal is taken at its word.
//
// It is two tail words: the one the journal is about to have, and the one it has. A process may be killed between any
// two stores, so that either may be what is found. A word is of one position in one segment of one journal.
type mark struct {
	mem    []byte // nil: there is none
	remove func()
}

// forget removes it.
func (k *mark) forget() {
	if k.remove != nil {
		k.remove()
	}
}

const markBytes = 16

func (k *mark) about(word uint64) {
	if k.mem != nil {
		storeWord(k.mem[8:], word)
	}
}

func (k *mark) done(word uint64) {
	if k.mem != nil {
		storeWord(k.mem, word)
	}
}

// denies reports that a journal whose tail is word is not the newest.
func (k *mark) denies(word uint64) bool {
	if k.mem == nil {
		return false
	}
	done, about := binary.LittleEndian.Uint64(k.mem), binary.LittleEndian.Uint64(k.mem[8:])
	return done != 0 && word != done && word != about
}
