package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// sidecar is a machine with a disk on which one process after another runs.
type sidecar struct {
	w       *world
	name    string
	rate    int64         // of its clock, in millionths
	booted  time.Duration // before the world began
	link    link
	disk    disk
	cache   *snapshot // the newest it has seen
	p, twin *process  // twin has p's incarnation, until quotad finds out; both may be nil
	retired bool
	habit   habit
	wished  int // requests decided since they were counted from, and those of them that were granted
	got     int
}

// clock is the machine's own, in nanoseconds. It goes on whatever becomes of the processes.
func (s *sidecar) clock() int64 {
	return int64(s.booted) + int64(s.w.now)/1_000_000*s.rate + int64(s.w.now)%1_000_000*s.rate/1_000_000
}

// processes are those that live.
func (s *sidecar) processes() []*process {
	var out []*process
	for _, p := range [2]*process{s.p, s.twin} {
		if p != nil && !p.dead {
			out = append(out, p)
		}
	}
	return out
}

// process is one run of the sidecar's program: the real lease machine, and a session to quotad.
type process struct {
	s      *sidecar
	m      *lease.Machine
	books  *account // what it must have spent and hold
	config *snapshot

	connected bool
	session   int // numbers its sessions
	term      int // of the leader that the session is with

	seq        uint64    // of the renew built last
	answered   uint64    // of the newest one answered
	builtFrom  *snapshot // its config when that was built
	waiting    map[*lease.Waiting]*request
	polls      int // numbers the planned polls; only the newest counts
	leaving    bool
	pauseEnd   time.Duration
	lapsed     bool // in quotad's eyes
	dead       bool
	dirty      bool
	began      time.Duration
	shares     []*quotav1.Share // as last seen
	sharesTill int64
}

// start begins a process on what the disk holds.
func (s *sidecar) start() {
	s.w.lastIncarnation++
	p := s.begin(s.w.lastIncarnation)
	s.p = p
	if h := s.disk.heritage; h != nil {
		p.m.Inherit(s.clock(), h.shares, h.until)
		s.disk.heritage = nil
	}
	s.disk.copies = nil
	p.connectSoon()
	p.file()
}

func (s *sidecar) begin(incarnation uint64) *process {
	p := &process{
		s: s, m: lease.NewMachine(lease.Config{AskWait: askWait}, incarnation, s.clock()), waiting: map[*lease.Waiting]*request{},
		books: s.w.witness.open(incarnation, s), began: s.w.now,
	}
	s.w.note(s.name, "starts", int64(incarnation))
	if s.cache != nil {
		p.configure(s.cache)
	}
	return p
}

// after plans something that the process does, if it still lives then. A paused one does it later.
func (p *process) after(d time.Duration, do func()) {
	p.s.w.after(d, func() { p.run(do) })
}

func (p *process) run(do func()) {
	w := p.s.w
	switch {
	case p.dead:
	case w.now < p.pauseEnd:
		w.after(p.pauseEnd-w.now, func() { p.run(do) })
	default:
		p.touch()
		do()
	}
}

func (p *process) touch() {
	if !p.dirty {
		p.dirty = true
		p.s.w.dirty = append(p.s.w.dirty, p)
	}
}

func (p *process) configure(snap *snapshot) {
	if p.config != nil && snap.version <= p.config.version {
		return
	}
	p.config = snap
	if p.s.cache == nil || p.s.cache.version < snap.version {
		p.s.cache = snap
	}
	p.m.Configure(p.s.clock(), snap.resources)
}

// tell brings a snapshot to the process. It is said again until it has come: a stream loses nothing for good.
func (p *process) tell(snap *snapshot) {
	session := p.session
	p.s.w.after(time.Second, func() {
		if !p.dead && p.session == session && (p.config == nil || p.config.version < snap.version) {
			p.tell(snap)
		}
	})
	p.s.w.carry(p.s, down, func() {
		p.run(func() {
			if p.session == session {
				p.configure(snap)
			}
		})
	})
}

// connectSoon tries until there is a session.
func (p *process) connectSoon() {
	w := p.s.w
	p.after(w.between(20*time.Millisecond, 700*time.Millisecond), func() {
		if p.connected {
			return
		}
		if !p.s.link.whole() || !w.quotad.up {
			p.connectSoon()
			return
		}
		p.connected, p.term = true, w.quotad.term
		p.session++
		w.note(p.s.name, "connected", int64(p.session), int64(p.term))
		p.configure(w.quotad.snapshot()) // it comes with the answer to Hello
		p.m.Connected(p.s.clock())
		p.poll()
	})
}

// breakWithin ends the session some time soon: it takes a while to notice.
func (p *process) breakWithin(d time.Duration) {
	session := p.session
	p.after(p.s.w.upTo(d), func() {
		if p.session == session {
			p.disconnect()
		}
	})
}

func (p *process) disconnect() {
	if !p.connected {
		return
	}
	p.connected = false
	p.session++
	p.s.w.note(p.s.name, "disconnected", int64(p.session))
	p.m.Disconnected(p.s.clock())
	p.connectSoon()
}

// poll sends what is due, and plans to look again when the machine says so.
func (p *process) poll() {
	s, w := p.s, p.s.w
	if r := p.m.Poll(s.clock()); r != nil {
		if r.Seq != p.seq {
			p.seq, p.builtFrom = r.Seq, p.config
			p.books.sent(r.Seq)
			if p == s.p {
				s.disk.copy(p)
			}
		}
		w.note(s.name, "renew", int64(r.Seq), int64(len(r.Asks)))
		session, term, books := p.session, p.term, p.books
		w.carry(s, up, func() { w.quotad.renew(p, books, term, session, r) })
	}
	p.collect(p.config, p.s.w.now)
	next := p.m.NextPoll()
	if next == math.MaxInt64 {
		return
	}
	p.polls++
	planned := p.polls
	wait := time.Duration(max(0, next-s.clock())/s.rate*1_000_000) + 10*time.Microsecond
	p.after(wait, func() {
		if p.polls == planned {
			p.poll()
		}
	})
}

// renew is a Renew at the leader of a term.
func (q *quotad) renew(p *process, books *account, term, session int, r *quotav1.Renew) {
	var rep ledger.RenewReply
	in := toLedger(p.s.name, r)
	q.submit(term, entry{
		apply: func() {
			was := q.l.Counters(in.Incarnation)
			rep = q.l.Renew(in)
			q.w.witness.checkWhole(was, &in, &rep)
			q.w.note("quotad", "applied", int64(r.Incarnation), int64(r.Seq), int64(rep.Refusal))
			q.w.witness.renewed(books, &in, &rep)
		},
		reply: func() {
			q.w.carry(p.s, down, func() { p.run(func() { p.receive(session, rep) }) })
		},
	})
}

// receive takes the answer to a renew, if it belongs to the present session.
func (p *process) receive(session int, rep ledger.RenewReply) {
	w := p.s.w
	if session != p.session {
		return
	}
	if rep.Refusal != ledger.RefusedNot {
		w.must(fmt.Errorf("renew %d of %s is refused: %d", rep.Seq, p.s.name, rep.Refusal))
		return
	}
	reserved := w.now
	if a := w.witness.byNumber[p.books.incarnation]; a.applied == rep.Seq {
		reserved = a.appliedAt
	}
	w.lastIncarnation++
	fenced := p.m.Apply(p.s.clock(), fromLedger(rep), w.lastIncarnation)
	p.answered = max(p.answered, rep.Seq)
	if fenced {
		w.note(p.s.name, "fenced", int64(w.lastIncarnation))
		w.mustf(p.books.cloned || p.books.saidDead, checkHonestNotFenced, "%s, incarnation %d at renew %d", p.s.name, p.books.incarnation, rep.Seq)
		p.books.end(fencedOff)
		p.books = w.witness.open(p.m.Incarnation(), p.s)
		p.seq, p.answered = 0, 0
		p.disconnect()
	}
	p.collect(p.builtFrom, reserved)
	p.poll()
}

// collect hears of requests that were decided. from is the snapshot that their needs are of, reserved is when what was
// granted to them was.
func (p *process) collect(from *snapshot, reserved time.Duration) {
	for _, decided := range append([]*lease.Waiting(nil), p.m.Finished()...) {
		r := p.waiting[decided]
		delete(p.waiting, decided)
		p.decide(r, decided.Hold, decided.Verdict, from, reserved)
	}
}

// file reports dead predecessors until quotad has them.
func (p *process) file() {
	s, w := p.s, p.s.w
	if p.connected && p == s.p {
		for _, f := range s.disk.finals {
			term, successor := p.term, p.m.Incarnation()
			w.carry(s, up, func() {
				done := false
				w.quotad.submit(term, entry{
					apply: func() {
						done = w.quotad.l.FileFinal(finalToLedger(s.name, f, successor))
						w.note("quotad", "filed", int64(f.Incarnation), int64(f.Seq))
						w.witness.filed(f.Incarnation, done)
					},
					reply: func() {
						if done {
							w.carry(s, down, func() { p.run(func() { s.disk.filed(f) }) })
						}
					},
				})
			})
		}
	}
	p.after(2*time.Second, p.file)
}

// die ends the process at once. Its requests go on at the provider, and nobody settles them.
func (p *process) die() {
	p.dead, p.connected = true, false
	p.s.w.note(p.s.name, "dies", int64(p.books.incarnation))
	p.books.end(lost)
}

// kill is kill -9. The next process comes after a while.
func (s *sidecar) kill(f fate, away time.Duration) {
	p := s.p
	p.dead, p.connected, s.p = true, false, nil
	s.w.note(s.name, "killed", int64(p.books.incarnation), int64(f))
	p.books.end(s.disk.survive(p, f))
	s.w.after(away, func() {
		if s.p == nil && !s.retired {
			s.start()
		}
	})
}

// leave is SIGTERM: everything idle goes back first, then running requests end, then the totals are filed.
func (s *sidecar) leave(retire bool) {
	p := s.p
	p.leaving, s.retired = true, retire
	s.w.note(s.name, "leaves", int64(p.books.incarnation))
	p.touch()
	p.m.Leave()
	p.collect(p.config, p.s.w.now)
	p.poll()
	deadline, wanted := s.w.now+12*time.Second, uint64(0)
	var look func()
	look = func() {
		switch {
		case p.books.running == 0 && wanted == 0:
			p.m.Leave()
			wanted = p.m.Seq() + 1
			p.poll()
		case wanted > 0 && p.answered >= wanted, s.w.now >= deadline:
			s.kill(killedKept, s.w.between(time.Second, 8*time.Second))
			return
		}
		p.after(200*time.Millisecond, look)
	}
	p.after(200*time.Millisecond, look)
}
