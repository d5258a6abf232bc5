package lease

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

var testBoot = [16]byte{1, 2, 3}

// memoryJournal is a journal in plain memory, with files 10 and 11.
func memoryJournal(size int) *journal {
	j := &journal{at: 1, boot: testBoot}
	for i := range j.segments {
		j.segments[i] = segment{mem: make([]byte, size), inode: uint64(10 + i)}
	}
	return j
}

// readBoth is what a successor finds.
func readBoth(segs [2][]byte) *past {
	var best *past
	for i, mem := range segs {
		if p := readPast(mem, uint64(10+i), testBoot); p != nil && (best == nil || p.generation > best.generation) {
			best = p
		}
	}
	return best
}

func contents(j *journal) [2][]byte {
	return [2][]byte{slices.Clone(j.segments[0].mem), slices.Clone(j.segments[1].mem)}
}

// journaled is a machine with a journal and as much balance as anyone wants.
func journaled(size int) *Machine {
	now := int64(1e9)
	m := NewMachine(Config{}, 42, now)
	m.Configure(now, []*quotav1.Resource{bucketOf(1, 600, 100), budgetOf(3, 1_000_000_000, jan, true)})
	m.journal = memoryJournal(size)
	m.standbyUntil = 1 << 62
	m.checkpoint()
	m.Connected(now)
	enrich(m)
	return m
}

// enrich lets nobody be refused for want of balance.
func enrich(m *Machine) {
	for _, r := range m.resources {
		c := m.counterOf(r)
		c.granted += max(0, 1<<40-c.balance())
	}
	m.usableUntil = 1 << 62
}

// rich gives a client balances as if quotad had.
func rich(c *Client) {
	c.Configure([]*quotav1.Resource{bucketOf(1, 600, 100), budgetOf(3, 1_000_000_000, jan, true)})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.standbyUntil = c.cfg.Now() + int64(1e12)
	c.m.setShares([]*quotav1.Share{{Resource: 1, PerMinute: 600}})
	c.m.journalShares()
	c.m.seq++
	c.m.journalRenew(&quotav1.Renew{Seq: c.m.seq})
	enrich(c.m)
}

// compareFinal is the promise of the journal: a successor knows exactly what the machine knows.
func compareFinal(m *Machine, p *past) error {
	if p == nil {
		return fmt.Errorf("nothing to read")
	}
	if !p.proven || p.incarnation != m.incarnation || p.seq != m.seq {
		return fmt.Errorf("proven %v, incarnation %d, seq %d; want true, %d, %d", p.proven, p.incarnation, p.seq,
			m.incarnation, m.seq)
	}
	notes := map[string]bool{}
	for _, l := range p.lost() {
		notes[string(l.Note)] = true
	}
	for _, h := range m.open {
		if !notes[string(h.note)] {
			return fmt.Errorf("hold %q is missing among %d", h.note, len(notes))
		}
	}
	if len(notes) != len(m.open) {
		return fmt.Errorf("%d lost holds, want %d", len(notes), len(m.open))
	}
	got := map[counterKey]int64{}
	if f := p.final(); f != nil {
		for _, c := range f.msg.Counters {
			got[counterKey{c.Resource, c.Period}] = c.Spent
		}
		for _, c := range m.Final(true).Counters {
			k := counterKey{c.Resource, c.Period}
			if got[k] != c.Spent {
				return fmt.Errorf("%v: spent %d in the journal, %d in truth", k, got[k], c.Spent)
			}
			delete(got, k)
		}
		for k := range got {
			return fmt.Errorf("%v: in the journal and not in truth", k)
		}
	}
	if p.until != m.standbyUntil || len(p.shares) != len(m.shares) {
		return fmt.Errorf("%d shares until %d, want %d until %d", len(p.shares), p.until, len(m.shares), m.standbyUntil)
	}
	return nil
}

func TestJournalMirrorsTheMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := journaled(segmentBytesMin)
		now := int64(2e9)
		n := 0
		var open []Hold
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				n++
				enrich(m)
				note := fmt.Appendf(nil, "request %d %s", n, bytes.Repeat([]byte{'x'}, rapid.IntRange(0, MaxNoteBytes-20).Draw(t, "pad")))
				h, v, ask := m.Reserve(now, Share, []Need{need(1, 1), need(3, rapid.Int64Range(0, 1e6).Draw(t, "money"))}, note)
				if v.OK {
					open = append(open, h)
				} else if ask || m.openBytes < segmentBytesMin/4 {
					t.Fatalf("refused: %+v, ask %v", v, ask)
				}
			},
			"settle": func(t *rapid.T) {
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					m.Settle(open[i], []Need{need(1, 1), need(3, rapid.Int64Range(0, 1e6).Draw(t, "used")), need(77, 5)})
					open = append(open[:i], open[i+1:]...)
				}
			},
			"renew": func(t *rapid.T) {
				now = max(now, m.NextPoll())
				if m.Poll(now) == nil {
					t.Fatal("no renew")
				}
				m.Apply(now, &quotav1.RenewReply{
					Seq: m.seq, UsableForMs: 1e6, StandbyForMs: rapid.Int64Range(1, 1e9).Draw(t, "standby"),
					ShareVersion: 3, Shares: []*quotav1.Share{{Resource: 1, PerMinute: rapid.Int64Range(0, 9).Draw(t, "share")}},
				}, 0)
			},
			"fence": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") != 0 {
					return
				}
				now = max(now, m.NextPoll())
				m.Poll(now)
				m.Apply(now, &quotav1.RenewReply{Seq: m.seq, Fenced: true}, m.incarnation+1)
				m.Connected(now)
			},
			"": func(t *rapid.T) {
				if err := compareFinal(m, readBoth(contents(m.journal))); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func TestJournalSwitchesWhenFull(t *testing.T) {
	m := journaled(segmentBytesMin)
	long := must(t, m, []Need{need(3, 777)}, []byte("long"))
	for range 2000 {
		m.Settle(must(t, m, []Need{need(1, 1), need(3, 5)}, []byte("short")), []Need{need(1, 1), need(3, 4)})
	}
	if m.journal.begun < 10 {
		t.Fatalf("%d segments begun, want many", m.journal.begun)
	}
	m.seq = 9
	m.journalRenew(&quotav1.Renew{Seq: 9})
	if err := compareFinal(m, readBoth(contents(m.journal))); err != nil {
		t.Fatal(err)
	}
	m.Settle(long, nil)
}

func must(t *testing.T, m *Machine, needs []Need, note []byte) Hold {
	t.Helper()
	h, v, ask := m.Reserve(2e9, Share, needs, note)
	if ask || !v.OK {
		t.Fatalf("refused: %+v", v)
	}
	return h
}

// TestJournalKilledInASwitch: at every step of a switch one of the segments is whole.
func TestJournalKilledInASwitch(t *testing.T) {
	m := journaled(segmentBytesMin)
	for i := range 20 {
		must(t, m, []Need{need(3, 100)}, fmt.Appendf(nil, "%d", i))
	}
	m.seq = 1
	m.journalRenew(&quotav1.Renew{Seq: 1})
	check := func(step string) {
		t.Helper()
		if err := compareFinal(m, readBoth(contents(m.journal))); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	check("before")
	j := m.journal
	j.start()
	check("started")
	for _, h := range m.open[:10] {
		j.append(recordReserve, h.appendTo(nil))
		check("half a checkpoint")
	}
	old := slices.Clone(j.segments[1-j.at].mem[:8])
	j.at = 1 - j.at // take it back and do the whole
	m.checkpoint()
	check("done")
	copy(j.segments[1-j.at].mem, old)
	check("both live: the newer counts")
}

func TestJournalBoundsOpenHolds(t *testing.T) {
	m := journaled(segmentBytesMin)
	n := 0
	for ; ; n++ {
		_, v, _ := m.Reserve(2e9, Share, []Need{need(3, 1)}, fmt.Appendf(nil, "%0200d", n))
		if !v.OK {
			if v.Reason != Unavailable {
				t.Fatalf("got %+v", v)
			}
			break
		}
	}
	if n < 20 || m.counterOf(m.resources[3]).held != int64(n) {
		t.Fatalf("%d open, %d held", n, m.counterOf(m.resources[3]).held)
	}
	if err := compareFinal(m, readBoth(contents(m.journal))); err != nil {
		t.Fatal(err)
	}
}

// spentIn is money spent by a journal, holds included.
func spentIn(p *past) int64 {
	p.seq = max(p.seq, 1)
	for _, c := range p.final().msg.Counters {
		if c.Resource == 3 {
			return c.Spent
		}
	}
	return 0
}

// TestJournalDamage damages every record in turn, and cuts the file at every byte. Whatever is lost, a journal that
// does not know all that was spent proves nothing.
func TestJournalDamage(t *testing.T) {
	m := journaled(segmentBytesMin)
	var last Hold
	for i := range 30 {
		last = must(t, m, []Need{need(1, 1), need(3, 100)}, []byte("note"))
		if i%2 == 0 {
			m.Settle(last, []Need{need(1, 1), need(3, 150)})
		}
	}
	mem := m.journal.segments[m.journal.at].mem
	inode := m.journal.segments[m.journal.at].inode
	pos := m.journal.pos
	want := spentIn(readPast(mem, inode, testBoot))
	judge := func(what string, at int, p *past) {
		t.Helper()
		if p == nil {
			return
		}
		if got := p.proven; got {
			t.Fatalf("%s at %d of %d: proven", what, at, pos)
		}
		if got := spentIn(p); got > want+1500 { // reservations whose settle is lost count in full
			t.Fatalf("%s at %d: spent %d, want at most about %d", what, at, got, want)
		}
	}
	for at := 0; at < pos; at++ {
		if at >= headerSummed+4 && at < tailAt || at >= tailAt+8 && at < headerBytes {
			continue // unused
		}
		for _, bit := range []byte{1, 0x80} {
			bad := slices.Clone(mem)
			bad[at] ^= bit
			judge("bit flip", at, readPast(bad, inode, testBoot))
		}
		judge("cut", at, readPast(mem[:at:at], inode, testBoot))
	}
	torn := slices.Clone(mem)
	copy(torn[pos:], bytes.Repeat([]byte{0xa5}, 50)) // a record that was being written
	if p := readPast(torn, inode, testBoot); !p.proven || spentIn(p) != want {
		t.Fatalf("torn tail: proven %v, spent %d, want true, %d", p.proven, spentIn(p), want)
	}
}

func TestJournalProof(t *testing.T) {
	m := journaled(segmentBytesMin)
	mem, inode := m.journal.segments[m.journal.at].mem, m.journal.segments[m.journal.at].inode
	for name, tc := range map[string]struct {
		inode uint64
		boot  [16]byte
		want  bool
	}{
		"same file, same boot": {inode, testBoot, true},
		"copied file":          {inode + 1, testBoot, false},
		"another boot":         {inode, [16]byte{9}, false},
		"unknown boot":         {inode, [16]byte{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readPast(mem, tc.inode, tc.boot).proven; got != tc.want {
				t.Fatalf("proven %v, want %v", got, tc.want)
			}
		})
	}
}

func TestFinalsAreCarriedAndBounded(t *testing.T) {
	m := journaled(segmentBytesMin)
	var finals []*final
	for i := range uint64(maxFinals + 6) {
		finals = append(finals, &final{&quotav1.FileFinal{
			Incarnation: 1000 + i, Seq: i, Proven: i%2 == 0,
			Counters: []*quotav1.Counter{{Resource: 3, Period: jan, Spent: int64(i), Returned: 1}},
		}})
	}
	if dropped := m.addFinals(slices.Clone(finals)); dropped < 6 || len(m.finals) < 20 {
		t.Fatalf("dropped %d, kept %d", dropped, len(m.finals))
	}
	m.checkpoint()
	m.Filed(1000 + maxFinals + 5)
	m.Filed(5) // unknown
	p := readBoth(contents(m.journal))
	if len(p.finals) != len(m.finals) {
		t.Fatalf("%d in the journal, want %d", len(p.finals), len(m.finals))
	}
	for i, f := range p.finals {
		if !proto.Equal(f.msg, m.finals[i].msg) {
			t.Fatalf("got %v, want %v", f.msg, m.finals[i].msg)
		}
	}
}

func FuzzReadPast(f *testing.F) {
	m := journaled(segmentBytesMin)
	h, _, _ := m.Reserve(2e9, Share, []Need{need(1, 1), need(3, 100)}, []byte("note"))
	m.Settle(h, []Need{need(3, 7)})
	f.Add(m.journal.segments[m.journal.at].mem[:m.journal.pos], byte(recordReserve))
	f.Add([]byte{}, byte(recordFinal))
	f.Fuzz(func(t *testing.T, mem []byte, kind byte) {
		if p := readPast(mem, 10, testBoot); p != nil {
			p.lost()
			p.final()
		}
		p := &past{totals: map[counterKey]*quotav1.Counter{}, holds: map[uint64]*pastHold{}, seq: 1}
		p.apply(kind, mem)
		p.lost()
		p.final()
	})
}
