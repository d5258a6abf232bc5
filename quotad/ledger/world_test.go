package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// world plays operations, drawn from numbers, against a ledger. Its sidecars keep books of their own, so that most of
// what they send is plausible; some lie, repeat themselves or send late. It serves the property tests and the fuzzer.
type world struct {
	l       *Ledger
	draw    func(most int64) int64 // 0..most
	now     int64
	index   uint64
	month   uint32
	sides   []*side
	nextInc uint64
	old     []Renew // sent before; some are sent again
	limits  map[uint64]int64
	wild    bool    // liars and absurd numbers
	twin    *Ledger // when set, it is fed the same operations and must answer alike
	fault   error   // it did not
}

// do plays one operation.
func (w *world) do(op func(l *Ledger) any) any {
	out := op(w.l)
	if w.twin != nil {
		if got := op(w.twin); !reflect.DeepEqual(got, out) {
			w.fault = errors.Join(w.fault, fmt.Errorf("the twin answers %+v, want %+v", got, out))
		}
	}
	return out
}

func (w *world) send(r Renew) RenewReply {
	return w.do(func(l *Ledger) any { return l.Renew(r) }).(RenewReply)
}

func (w *world) advance(stamp int64) {
	w.do(func(l *Ledger) any { l.Advance(stamp); return nil })
	if due := w.l.NextDue(); due <= stamp {
		w.fault = errors.Join(w.fault, fmt.Errorf("advanced to %d, still due at %d", stamp, due))
	}
}

// side is a fake sidecar.
type side struct {
	inc, seq uint64
	name     string
	books    []*book
	ack      uint64 // share version it will acknowledge
	shares   []Share
	askID    uint64
}

// book is a sidecar's counter.
type book struct {
	res     uint64
	period  uint32
	child   bool
	g, f    int64
	s, r, h int64
}

func (b *book) balance() int64 { return b.g - b.s - b.r - b.f - b.h }

func newWorld(cfg Config, draw func(int64) int64) *world {
	w := &world{l: New(cfg), draw: draw, month: 202601, limits: map[uint64]int64{}}
	w.define()
	w.l.OpenPeriods([]Period{{Period: w.month, EndsMS: 1}}) // before there can be a twin
	return w
}

var worldSpecs = []Spec{
	{Scope: "key", Owner: "k", Kind: Requests, Limit: 600},
	{Scope: "org", Owner: "o", Kind: TotalTokens, Limit: 90_000, Burst: 20_000},
	{Scope: "team", Owner: "a", Kind: Money, Limit: 1_000_000, Hard: true, AlertPermille: []int64{500, 1000}},
	{Scope: "team", Owner: "a", Kind: Requests, Limit: 100, Burst: 7},
	{Scope: "team", Owner: "b", Kind: Money, Limit: 5000, AlertPermille: []int64{900}},
	{Scope: "team", Owner: "c", Kind: Money, Limit: 777, Hard: true, Timezone: "Asia/Kolkata"},
	{Scope: "team", Owner: "d", Kind: Money, Limit: 60_000, Hard: true, Currency: "INR", Rates: []Rate{
		{Period: 202601, PerUSDNano: 87e9}, {Period: 202603, PerUSDNano: 91_500_000_000},
	}},
	{Scope: "end_user", Owner: "a", Kind: Requests, Limit: 30, Each: EachName},
	{Scope: "run", Owner: "a", Kind: Money, Limit: 3000, Hard: true, Each: EachName, KeepMS: 100_000},
	{Scope: "run", Owner: "a", Kind: Calls, Limit: 20, Hard: true, Each: EachName, KeepMS: 50_000},
	{Scope: "deployment", Owner: "m", Kind: TotalTokens, Limit: 6000, Burst: 500, Each: EachClaimant},
}

// worldNames are what asks call children: users, runs, and claimants of pools, some of them not well named.
var worldNames = []string{"interactive/a", "interactive/b", "standard/a", "batch/a", "batch/b", "u1", "r1", "", "a/b/c"}

// define changes limits up and down, and deletes and makes resources again.
func (w *world) define() {
	w.index++
	specs := slices.Clone(worldSpecs)
	if w.index > 1 {
		i := int(w.draw(int64(len(specs) - 1)))
		switch w.draw(4) {
		case 0:
			specs = slices.Delete(specs, i, i+1)
		case 1:
			specs[i].Limit = specs[i].Limit * w.draw(4) / 2
		case 2:
			specs[i].Hard = !specs[i].Hard || specs[i].Each != Whole // runs are hard
			if specs[i].KeepMS > 0 {
				specs[i].KeepMS = 1000 + w.draw(50_000)
			}
		case 3:
			specs[i].Timezone = ""
		}
	}
	var fair Fairness
	if w.draw(1) == 0 {
		fair.Weights = []TeamWeight{{Team: "b", Weight: 1 + w.draw(3)}}
		fair.Reserves = []ClassReserve{{Class: "batch", Permille: w.draw(150)}, {Class: "standard", Permille: 0}}
	}
	if err := w.do(func(l *Ledger) any { return l.Define(w.index, specs, fair) }); err != nil {
		panic(err)
	}
	for _, r := range w.l.Resources() {
		w.limits[r.ID] = max(w.limits[r.ID], r.Spec.Limit)
	}
}

// step plays one operation.
func (w *world) step() {
	w.index++
	w.do(func(l *Ledger) any { l.Enter(w.index); return nil })
	op := w.draw(99)
	switch {
	case op < 12:
		w.now += w.draw(3000)
		w.advance(w.now)
	case op < 14:
		w.now += w.draw(40_000)
		w.advance(w.now - w.draw(5)) // never back, whatever the stamp
	case op < 15:
		w.now += w.draw(4_000_000)
		w.advance(w.now)
	case op < 17:
		w.define()
	case op < 18:
		w.open()
	case op < 20:
		w.credit()
	case op < 22 && len(w.sides) > 0:
		inc := w.sides[w.draw(int64(len(w.sides)-1))].inc
		w.do(func(l *Ledger) any { l.Fence(inc); return nil })
	case op < 26 && len(w.sides) > 0:
		w.restart()
	case op < 30 && len(w.old) > 0:
		w.send(w.old[w.draw(int64(len(w.old)-1))])
	case op < 38 || len(w.sides) == 0:
		w.start()
	default:
		w.renew(w.sides[w.draw(int64(len(w.sides)-1))])
	}
}

func (w *world) start() *side {
	w.nextInc++
	s := &side{inc: 1 + (w.nextInc*7919)%1000, name: fmt.Sprintf("pod-%d", w.nextInc)}
	if len(w.sides) < 6 {
		w.sides = append(w.sides, s)
	} else {
		w.sides[w.draw(5)] = s
	}
	return s
}

// restart replaces a process by its successor on the same disk, which files its totals.
func (w *world) restart() {
	i := w.draw(int64(len(w.sides) - 1))
	dead := w.sides[i]
	w.nextInc++
	next := &side{inc: 1 + (w.nextInc*7919)%1000, name: dead.name}
	f := FileFinal{
		Identity: dead.name, Incarnation: dead.inc, Seq: dead.seq, Proven: w.draw(3) > 0, Successor: next.inc,
	}
	if w.wild {
		f.Seq -= uint64(w.draw(1))
	}
	for _, b := range dead.books {
		f.Counters = append(f.Counters, Counter{Resource: b.res, Period: b.period, Spent: b.s + b.h, Returned: b.r})
	}
	if w.do(func(l *Ledger) any { return l.FileFinal(f) }).(bool) {
		w.sides[i] = next
	}
}

func (w *world) open() {
	if w.month++; w.month%100 == 13 {
		w.month += 88
	}
	ps := []Period{{Period: w.month, EndsMS: w.draw(9)}}
	if w.draw(1) == 1 {
		ps = append(ps, Period{Timezone: "Asia/Kolkata", Period: w.month - uint32(w.draw(1))})
	}
	w.do(func(l *Ledger) any { l.OpenPeriods(ps); return nil })
}

func (w *world) credit() {
	rs := w.l.Resources()
	if len(rs) == 0 {
		return
	}
	r := rs[w.draw(int64(len(rs)-1))]
	amount := w.draw(2000) - 700
	if w.wild && w.draw(5) == 0 {
		amount = w.absurd()
	}
	id := fmt.Sprint("c", w.draw(20))
	w.do(func(l *Ledger) any {
		return l.Credit(r.ID, w.month, Credit{ID: id, Amount: amount, Actor: "a", Reason: "r"})
	})
}

func (w *world) absurd() int64 {
	return [...]int64{-1, 1 << 62, -1 << 63, 1<<63 - 1, totalMax, totalMax + 1, 1 << 45}[w.draw(6)]
}

// renew has s use what it holds, return, ask, and take the answer in, unless that gets lost.
func (w *world) renew(s *side) {
	s.seq++
	r := Renew{Identity: s.name, Incarnation: s.inc, Seq: s.seq, ShareVersion: s.ack, Leaving: w.draw(60) == 0}
	w.meet(s)
	for _, b := range s.books {
		w.use(b)
		c := Counter{
			Resource: b.res, Period: b.period, Spent: b.s, Returned: b.r, Held: b.h, Demand: w.draw(200), Granted: b.g,
		}
		if b.child && b.h == 0 && w.draw(3) == 0 {
			b.r += max(0, b.balance())
			c.Returned, c.Demand, c.Close = b.r, 0, true
		}
		if b.child && w.draw(5) == 0 {
			left := w.draw(700)
			c.ProviderLeft = &left
		}
		r.Counters = append(r.Counters, c)
	}
	for range w.draw(2) {
		if len(s.books) > 0 {
			r.Asks = append(r.Asks, w.ask(s))
		}
	}
	if w.wild {
		w.lie(s, &r)
	}
	w.old = append(w.old, r)
	if len(w.old) > 20 {
		w.old = w.old[1:]
	}
	reply := w.send(r)
	if w.draw(9) == 0 {
		reply = w.send(r) // the answer got lost; it is sent again
	}
	w.hear(s, reply)
}

// meet opens books on resources that s does not know yet.
func (w *world) meet(s *side) {
	for _, r := range w.l.Resources() {
		if w.draw(2) > 0 || r.Spec.Each != Whole {
			continue
		}
		period := uint32(0)
		if p, ok := r.Open(); ok {
			period = p.Period
		} else if r.Spec.Kind == Money {
			continue
		}
		if !slices.ContainsFunc(s.books, func(b *book) bool { return b.res == r.ID && b.period == period }) {
			s.books = append(s.books, &book{res: r.ID, period: period})
		}
	}
}

// use settles, reserves and returns at random, within the balance but for a small overrun.
func (w *world) use(b *book) {
	if b.h > 0 {
		settled := w.draw(b.h)
		b.h -= settled
		b.s += settled
		if w.wild {
			b.s += w.draw(settled)
		}
	}
	if bal := b.balance(); bal > 0 {
		b.h += w.draw(bal)
	}
	if bal := b.balance(); bal > 0 && w.draw(2) == 0 {
		b.r += w.draw(bal)
	}
}

func (w *world) ask(s *side) Ask {
	s.askID++
	a := Ask{ID: s.askID}
	for _, b := range s.books {
		if w.draw(2) == 0 && !b.child {
			a.Needs = append(a.Needs, Need{Resource: b.res, Period: b.period, Amount: 1 + w.draw(300)})
		}
	}
	for _, r := range w.l.Resources() {
		if r.Spec.Each != Whole && w.draw(2) == 0 {
			n := Need{Resource: r.ID, Amount: 1 + w.draw(40), Name: worldNames[w.draw(int64(len(worldNames)-1))]}
			if w.draw(9) == 0 {
				n.Name = fmt.Sprint("flood", w.draw(5000))
			}
			a.Needs = append(a.Needs, n)
		}
	}
	if len(a.Needs) == 0 {
		a.Needs = []Need{{Resource: s.books[0].res, Amount: 1}}
	}
	return a
}

// lie spoils some messages.
func (w *world) lie(s *side, r *Renew) {
	if w.draw(9) > 0 {
		return
	}
	if len(r.Counters) > 0 {
		c := &r.Counters[w.draw(int64(len(r.Counters)-1))]
		switch w.draw(6) {
		case 0:
			c.Spent = w.absurd()
		case 1:
			c.Returned = w.absurd()
		case 2:
			c.Held = w.absurd()
		case 3:
			c.Demand = w.absurd()
		case 4:
			c.Resource = uint64(w.draw(1 << 14))
		case 5:
			c.Returned += w.draw(5000)
		}
	}
	switch w.draw(9) {
	case 0:
		r.Seq = uint64(w.draw(9))
	case 1:
		r.Identity = "mallory"
	case 2:
		r.ShareVersion += 1000
	case 3:
		r.Incarnation = uint64(w.draw(1000))
	case 4:
		if len(r.Asks) > 0 {
			r.Asks[0].Needs[0].Amount = w.absurd()
		}
	}
}

// hear takes an answer in, as a sidecar does.
func (w *world) hear(s *side, reply RenewReply) {
	if reply.Fenced || reply.Refusal != RefusedNot || reply.Seq != s.seq {
		return
	}
	if w.draw(1) == 0 {
		s.ack = reply.ShareVersion
	}
	s.shares = reply.Shares
	for _, g := range reply.Grants {
		known := slices.ContainsFunc(s.books, func(b *book) bool { return b.res == g.Resource && b.period == g.Period })
		if g.Of != 0 && !known && !g.Gone {
			s.books = append(s.books, &book{res: g.Resource, child: true})
		}
		s.books = slices.DeleteFunc(s.books, func(b *book) bool {
			return g.Gone && b.res == g.Resource && b.period == g.Period
		})
		for _, b := range s.books {
			if b.res == g.Resource && b.period == g.Period {
				b.g, b.f = max(b.g, g.Granted), max(b.f, g.Forfeited)
			}
		}
	}
}

// check verifies what must hold after every operation.
func (w *world) check() error {
	if w.fault != nil {
		return w.fault
	}
	if err := w.l.CheckTouched(); err != nil {
		return err
	}
	if err := w.l.Check(); err != nil {
		return err
	}
	if w.l.Now() < w.now-5 {
		return errors.New("time went back")
	}
	for _, r := range w.l.Resources() {
		if r.Spec.Kind != Money && r.Shares > w.limits[r.ID] {
			return fmt.Errorf("resource %d: shares %d, limit was never above %d", r.ID, r.Shares, w.limits[r.ID])
		}
	}
	return nil
}
