package sim

import (
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// disk holds the journal of the running process and what dead ones left.
//
// The journal is the machine's own word on what a perfect one would say (lease.Machine.Final): that the bytes say
// exactly this after every step, and after damage, is proved beside the journal.
type disk struct {
	finals   []*quotav1.FileFinal // of dead processes, not filed yet
	heritage *journal             // of the process that died last, if all of it is proven
	copies   []journal            // older states of the running process's journal
}

type journal struct {
	at     time.Duration
	final  *quotav1.FileFinal
	shares []*quotav1.Share
	until  int64
}

const copiesMost = 64

func (p *process) journal() journal {
	j := journal{at: p.s.w.now, final: p.m.Final(true)}
	j.shares, j.until = p.m.Shares(p.s.clock())
	return j
}

// copy keeps the journal as it is now, for a disk that is rolled back later.
func (d *disk) copy(p *process) {
	d.copies = append(d.copies, p.journal())
	if len(d.copies) > copiesMost {
		d.copies = d.copies[1:]
	}
}

// survive leaves what the next process finds, and returns what became of the journal in the end.
func (d *disk) survive(p *process, f fate) fate {
	now := p.journal()
	switch f {
	case killedKept:
		d.heritage = &now
	case poweredOff:
		// What was written last may not have reached the disk, and the boot id is another: nothing is proven, and no
		// share is inherited.
		if n := len(d.copies); n > 0 && p.s.w.chance(800) {
			now = d.copies[n-1-p.s.w.rng.IntN(min(n, 3))]
		}
		now.final.Proven = false
		p.s.booted -= time.Duration(p.s.clock()) - p.s.w.upTo(time.Minute) // the clock counts from the boot
	case rolledBack:
		old, ok := d.older(p)
		if !ok {
			d.heritage = &now
			f = killedKept
			break
		}
		// Beside the disk there is a mark of the newest state, so that the old one proves nothing. Where the mark is gone
		// with the process, quotad tells it by its seq. No share is inherited: a file that was put back is another file,
		// by its inode, or the mark tells.
		now = old
		if p.s.w.plan.marked || p.s.w.chance(500) {
			now.final.Proven = false
		}
	default:
		for _, unfiled := range d.finals {
			p.s.w.witness.byNumber[unfiled.Incarnation].journalLost()
		}
		d.finals, d.heritage = nil, nil
		return lost
	}
	p.books.recorded(now.final, f)
	if now.final.Seq > 0 || len(now.final.Counters) > 0 {
		d.finals = append(d.finals, now.final)
	}
	return f
}

// older finds a copy that quotad can tell from the newest journal: it has applied a later renew.
func (d *disk) older(p *process) (journal, bool) {
	m, ok := p.s.w.quotad.l.MemberState(p.m.Incarnation())
	if !ok {
		return journal{}, false
	}
	if p.s.w.plan.marked {
		for _, c := range d.copies {
			if c.final.Seq >= m.Seq && c.at <= p.s.w.now-6*time.Second {
				return c, true
			}
		}
		return journal{}, false
	}
	n := 0
	for n < len(d.copies) && d.copies[n].final.Seq < m.Seq {
		n++
	}
	if n == 0 {
		return journal{}, false
	}
	return d.copies[p.s.w.rng.IntN(n)], true
}

func (d *disk) filed(f *quotav1.FileFinal) {
	for i, o := range d.finals {
		if o == f {
			d.finals = append(d.finals[:i:i], d.finals[i+1:]...)
			return
		}
	}
}
