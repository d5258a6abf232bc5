package sim

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

const (
	batchFor  = time.Millisecond
	batchMost = 512
	plenty    = int64(1) << 50
)

// quotad is the model of quotad's leader around the real ledger: batches that are proposed, then committed; leaders
// that are lost with or without what they proposed; time that is ticked. Nothing is answered before it is committed.
type quotad struct {
	w *world
	l *ledger.Ledger

	term     int
	up       bool
	began    time.Duration // of the term
	base     int64         // ledger time when it began
	rate     int64         // of the leader's monotonic clock, in millionths
	heard    time.Duration // when the newest entry was committed
	wallOff  time.Duration // how far the leader's wall clock is off
	batch    []entry
	proposed []proposal
	lastEnd  time.Duration // when the newest proposal commits
	// atPropose is called once when something is proposed next: a leader that is lost then loses it.
	atPropose func()

	index   uint64 // Raft index
	specs   []ledger.Spec
	version int           // of the snapshots
	losses  [2]loss       // the newest first
	edited  time.Duration // when resources or the month changed last
	open    uint32        // month
	turn    time.Duration // when the next one begins; never if it is 0
}

// entry is one operation of a batch.
type entry struct {
	apply func()
	reply func() // nil: none; once it is committed, if the leader still leads
}

type proposal struct {
	stamp   int64
	entries []entry
}

// snapshot is what sidecars are told of the resources.
type snapshot struct {
	version   int
	resources []*quotav1.Resource
	byName    map[string]*quotav1.Resource // looked up, never walked
}

func name(scope, owner string, kind ledger.Kind) string {
	return fmt.Sprintf("%s/%s/%d", scope, owner, kind)
}

func newQuotad(w *world) *quotad {
	q := &quotad{w: w, l: ledger.New(w.plan.ledger), open: 202601, specs: slices.Clone(w.plan.specs)}
	q.l.OpenPeriods([]ledger.Period{{Period: q.open, EndsMS: int64(q.open)}})
	q.lead(false)
	q.index++
	w.must(q.l.Define(q.index, q.specs, w.plan.fairness))
	q.version++
	w.witness.learn(q.l)
	q.tickLoop()
	return q
}

// lead begins a term: ledger time goes on from where it stood, and counts what has passed since by the new leader's
// clock. A node that has just loaded its records knows of nothing that has passed, and one that applied the last entries
// late knows of less.
func (q *quotad) lead(loaded bool) {
	q.rate = 1_000_000 + q.w.rng.Int64N(2*leaderDrift+1) - leaderDrift
	passed := q.w.now - q.heard
	switch {
	case loaded:
		passed = 0
	case q.w.faulty && q.w.chance(200) && passed > 0:
		q.w.tally.faults[timeBehind]++
		passed = q.w.upTo(passed)
	}
	q.up, q.began, q.wallOff = true, q.w.now, 0
	q.base = q.l.Now() + passed.Milliseconds()*q.rate/1_000_000
	q.w.note("quotad", "leads", int64(q.term), q.base)
}

// leaderDrift is how fast or slow a leader's clock may run, in millionths.
const leaderDrift = 2000

// stamp is the ledger time that the leader would give an entry now.
func (q *quotad) stamp() int64 {
	return q.base + (q.w.now-q.began).Milliseconds()*q.rate/1_000_000
}

// submit gives an operation to the leader of a term. Without it, it is lost.
func (q *quotad) submit(term int, e entry) {
	if !q.up || term != q.term {
		return
	}
	q.batch = append(q.batch, e)
	switch len(q.batch) {
	case 1:
		q.w.after(batchFor, func() {
			if term == q.term {
				q.propose()
			}
		})
	case batchMost:
		q.propose()
	}
}

func (q *quotad) propose() {
	if len(q.batch) == 0 || !q.up {
		return
	}
	stamp := q.stamp()
	if q.w.faulty && q.w.chance(20) {
		// It was stamped before another that is ahead of it in the log.
		q.w.tally.faults[disordered]++
		stamp -= q.w.rng.Int64N(50)
	}
	q.proposed = append(q.proposed, proposal{stamp, q.batch})
	q.batch = nil
	q.lastEnd = max(q.lastEnd, q.w.now+500*time.Microsecond+q.w.upTo(4*time.Millisecond))
	term := q.term
	q.w.after(q.lastEnd-q.w.now, func() {
		if term == q.term {
			p := q.proposed[0]
			q.proposed = q.proposed[1:]
			q.commit(p, true)
		}
	})
	if f := q.atPropose; f != nil {
		q.atPropose = nil
		f()
	}
}

// commit applies a batch. Replies are sent by a leader that still leads.
func (q *quotad) commit(p proposal, answer bool) {
	before := q.l.Now()
	q.index++
	q.l.Enter(q.index)
	q.l.Advance(p.stamp)
	now := q.l.Now()
	q.w.mustf(now >= before && now <= max(before, p.stamp), checkTime, "%d after %d by the stamp %d", now, before, p.stamp)
	q.heard = q.w.now
	for _, e := range p.entries {
		e.apply()
	}
	q.inspect()
	var woken []uint64
	for _, e := range q.l.Events() {
		if e.Kind != ledger.Wake {
			continue
		}
		woken = append(woken, e.Incarnation)
		if answer {
			q.wake(e.Incarnation)
		}
	}
	q.w.witness.checkWoken(woken)
	if !answer {
		return
	}
	for _, e := range p.entries {
		if e.reply != nil {
			e.reply()
		}
	}
}

func (q *quotad) wake(incarnation uint64) {
	for _, s := range q.w.sidecars {
		for _, p := range s.processes() {
			if p.m.Incarnation() != incarnation {
				continue
			}
			session := p.session
			q.w.carry(s, down, func() {
				p.run(func() {
					if p.session == session && p.connected {
						p.m.Wake()
						p.poll()
					}
				})
			})
		}
	}
}

// lose ends the leader's term. What it had proposed is lost, or committed by its successor without an answer. loaded
// says that the successor starts from the records on its disk.
func (q *quotad) lose(gap time.Duration, keep, loaded bool) {
	proposed := q.proposed
	q.term, q.up, q.batch, q.proposed, q.lastEnd = q.term+1, false, nil, nil, 0
	q.losses = [2]loss{{q.w.now, gap}, q.losses[0]}
	q.w.note("quotad", "leader lost", int64(q.term), int64(len(proposed)), int64(gap))
	if len(proposed) > 0 {
		if keep {
			q.w.tally.faults[repliesLost]++
		} else {
			q.w.tally.faults[entriesLost]++
		}
	}
	for _, s := range q.w.sidecars {
		for _, p := range s.processes() {
			p.breakWithin(1500 * time.Millisecond)
		}
	}
	term := q.term
	q.w.after(gap, func() {
		if term != q.term {
			return
		}
		if keep {
			for _, p := range proposed {
				q.commit(p, false)
			}
		}
		if loaded {
			q.reload()
		}
		q.lead(loaded)
	})
}

// loss is when a leader was lost, and for how long there was none.
type loss struct{ at, gap time.Duration }

// reload makes the ledger anew from its records, as a restarted node does.
func (q *quotad) reload() {
	q.w.tally.faults[leaderLoaded]++
	var rs []ledger.ResourceState
	var cs []ledger.CounterState
	var ms []ledger.MemberState
	for _, r := range q.l.Resources() {
		s, _ := q.l.ResourceState(r.ID)
		rs = append(rs, s)
		for _, kid := range q.l.Children(r.ID) {
			s, _ := q.l.ResourceState(kid.ID)
			rs = append(rs, s)
		}
	}
	for _, m := range q.l.Members() {
		s, _ := q.l.MemberState(m.Incarnation)
		ms = append(ms, s)
		cs = append(cs, q.l.Counters(m.Incarnation)...)
	}
	fresh := ledger.New(q.w.plan.ledger)
	q.w.must(fresh.Load(q.l.Now(), q.l.Periods(), q.l.Fairness(), rs, cs, ms))
	if !reflect.DeepEqual(fresh.Resources(), q.l.Resources()) || !reflect.DeepEqual(fresh.Members(), q.l.Members()) {
		q.w.must(fmt.Errorf("a ledger loaded from records is not the one they are of"))
	}
	for _, r := range q.l.Resources() {
		if !reflect.DeepEqual(fresh.Children(r.ID), q.l.Children(r.ID)) {
			q.w.must(fmt.Errorf("the children of a ledger loaded from records are not those they are of"))
		}
	}
	q.l = fresh
	q.w.witness.forgetWaits() // they are a hint, and not in the records
}

// tickLoop lets time pass when nothing else is proposed, and looks at the calendar. A month is opened when the leader
// and a follower agree that it has begun; followers' clocks are right.
func (q *quotad) tickLoop() {
	q.w.after(500*time.Millisecond, func() {
		if q.up {
			if q.l.NextDue() <= q.stamp() {
				q.submit(q.term, entry{apply: func() {}})
			}
			if q.turn > 0 && q.w.now+q.wallOff >= q.turn && q.w.now >= q.turn {
				q.submit(q.term, entry{apply: q.openMonth})
			}
		}
		q.tickLoop()
	})
}

func (q *quotad) openMonth() {
	if q.turn == 0 {
		return
	}
	q.w.mustf(q.w.now >= q.turn, checkMonth, "%d opened %v early", q.open+1, q.turn-q.w.now)
	q.turn = 0
	q.open++
	q.w.tally.faults[monthTurn]++
	q.w.note("quotad", "month", int64(q.open))
	q.l.OpenPeriods([]ledger.Period{{Period: q.open, EndsMS: int64(q.open)}})
	q.changed()
}

// change defines the resources anew. f changes the specs; false leaves all as it is.
func (q *quotad) change(f func(specs []ledger.Spec) ([]ledger.Spec, bool)) {
	q.submit(q.term, entry{apply: func() {
		specs, ok := f(slices.Clone(q.specs))
		if !ok {
			return
		}
		q.specs = specs
		q.w.must(q.l.Define(q.index, specs, q.w.plan.fairness))
		q.checkDefined()
		q.changed()
	}})
}

// changed tells the witness, and everybody who is connected.
func (q *quotad) changed() {
	q.version++
	q.edited = q.w.now
	q.w.witness.learn(q.l)
	snap := q.snapshot()
	for _, s := range q.w.sidecars {
		for _, p := range s.processes() {
			if p.connected {
				p.tell(snap)
			}
		}
	}
}

func (q *quotad) snapshot() *snapshot {
	snap := &snapshot{version: q.version, byName: map[string]*quotav1.Resource{}}
	for _, r := range q.l.Resources() {
		out := &quotav1.Resource{
			Id: r.ID, Kind: quotav1.Kind(r.Spec.Kind), Limit: r.Spec.Limit, Burst: r.Spec.Burst, Hard: r.Spec.Hard,
			Scope: r.Spec.Scope, Owner: r.Spec.Owner, Each: quotav1.Each(r.Spec.Each),
		}
		if open, ok := r.Open(); ok {
			out.Period, out.PeriodEndsMs = open.Period, open.EndsMS
		}
		snap.resources = append(snap.resources, out)
		snap.byName[name(r.Spec.Scope, r.Spec.Owner, r.Spec.Kind)] = out
	}
	return snap
}

// enrich gives everybody money without end. Where a pool is to be the scarce thing, all limits are again as they were.
func (q *quotad) enrich() {
	q.change(func(specs []ledger.Spec) ([]ledger.Spec, bool) {
		for i := range specs {
			s := &specs[i]
			if capped(s.Kind) {
				s.Limit = plenty
			}
			for k := range q.w.plan.specs {
				if was := &q.w.plan.specs[k]; q.w.plan.pool > 0 && !capped(s.Kind) &&
					was.Scope == s.Scope && was.Owner == s.Owner && was.Kind == s.Kind {
					s.Limit = was.Limit
				}
			}
		}
		return specs, true
	})
}

// capped says that a kind never refills.
func capped(k ledger.Kind) bool { return k == ledger.Money || k == ledger.Calls }

// requestLimit is the pool's, or the first team's.
func (q *quotad) requestLimit() int64 {
	if q.w.plan.pool > 0 {
		return q.w.plan.pool
	}
	for _, s := range q.specs {
		if s.Scope == "team" && s.Owner == q.w.plan.teams[0].name && s.Kind == ledger.Requests {
			return s.Limit
		}
	}
	return 60 // it is deleted at this moment
}
