package sim

import (
	"fmt"
	"time"

	"github.com/sluice-gateway/sluice/quotad/ledger"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

const nanoPerToken = 1000

// load says what the callers do.
type load struct {
	on        bool
	saturated bool // everybody wants more of the first team's buckets than there is
}

// habit is how the callers of one sidecar behave for a while.
type habit uint8

const (
	steady habit = iota
	bursts
	idle
	huge
	greedy
	numHabits
)

// demandLoop lets callers come for as long as there is a sidecar.
func (s *sidecar) demandLoop() {
	s.changeHabit()
	s.arrive()
}

func (s *sidecar) changeHabit() {
	s.habit = habit(s.w.rng.IntN(int(numHabits)))
	s.w.after(s.w.between(10*time.Second, 40*time.Second), s.changeHabit)
}

func (s *sidecar) arrive() {
	gap, callers := s.next()
	s.w.after(s.w.mean(gap), func() {
		if s.w.load.on {
			for range callers {
				s.call()
			}
		}
		s.arrive()
	})
}

// next is when callers come next, in the mean, and how many.
func (s *sidecar) next() (gap time.Duration, callers int) {
	w := s.w
	if w.load.saturated {
		if s.modest() {
			return time.Minute / time.Duration(w.quotad.requestLimit()) * time.Duration(3*w.living()), 1
		}
		// All of them together want three times what there is.
		return time.Minute / time.Duration(3*w.quotad.requestLimit()) * time.Duration(w.living()), 1
	}
	switch s.habit {
	case bursts:
		if w.chance(100) {
			return time.Second, 20
		}
		return time.Second, 0
	case idle:
		if w.chance(60) {
			return time.Second, 1
		}
		return time.Second, 0
	case huge:
		return 3 * time.Second, 1
	case greedy:
		return time.Second / 8, 1
	}
	return time.Second / 3, 1
}

// pulse lets all callers rest for a moment, again and again: their leases lie idle, and buckets fill.
func (w *world) pulse() {
	w.after(w.between(3*time.Second, 12*time.Second), func() {
		if !w.faulty {
			return
		}
		w.load.on = false
		w.after(w.between(time.Second, 6*time.Second), func() {
			if w.faulty {
				w.load.on = true
				w.pulse()
			}
		})
	})
}

func (w *world) living() int {
	n := 0
	for _, s := range w.sidecars {
		if !s.retired {
			n++
		}
	}
	return max(n, 1)
}

// call is one caller, at one of the processes.
func (s *sidecar) call() {
	ps := s.processes()
	if len(ps) == 0 {
		return
	}
	p := ps[s.w.rng.IntN(len(ps))]
	team := s.w.rng.IntN(len(s.w.plan.teams))
	if s.w.load.saturated && !s.w.wants(&team) {
		return
	}
	p.run(func() { p.request(team, s.w.now) })
}

// request is one caller's request, from its arrival until the provider has billed it.
type request struct {
	p       *process
	team    int
	since   time.Duration
	books   *account
	needs   []lease.Need
	uses    []lease.Need // what it will truly use of them
	over    int64        // money it will cost beyond what it reserves
	entries []*balance   // beside needs; nil is what a standing share paid
	flows   []int        // beside needs: indexes of what they use of buckets

	// Of a scenario's caller:
	lasts   time.Duration // 0: by chance
	refused func(lease.Verdict)
	ended   func()
}

// request makes a request of a team and tries to have it admitted. since is when its caller came first.
func (p *process) request(team int, since time.Duration) {
	if p.config == nil {
		return
	}
	r := p.newRequest(team)
	if len(r.needs) == 0 {
		return
	}
	r.since = since
	p.submit(r)
}

// submit tries to have a request admitted.
func (p *process) submit(r *request) {
	s, w := p.s, p.s.w
	mode := w.plan.teams[r.team].outage
	h, v, ask := p.m.Reserve(s.clock(), mode, r.needs, nil)
	if !ask {
		p.decide(r, h, v, p.config, w.now)
		p.poll()
		return
	}
	waiting, v := p.m.Ask(s.clock(), mode, r.needs, nil)
	if waiting == nil {
		p.decide(r, lease.Hold{}, v, p.config, w.now)
		return
	}
	p.waiting[waiting] = r
	patience, gone := askWait, w.faulty && w.chance(w.plan.goneMille)
	if gone {
		patience = w.upTo(60 * time.Millisecond)
	}
	p.after(patience, func() {
		if waiting.Done() {
			return
		}
		if gone {
			w.tally.faults[callerLeft]++
		}
		p.m.Withdraw(s.clock(), waiting, gone)
		delete(p.waiting, waiting)
		p.decide(r, waiting.Hold, waiting.Verdict, p.config, w.now)
		p.poll()
	})
	p.poll()
}

func (p *process) newRequest(team int) *request {
	w := p.s.w
	r := &request{p: p, books: p.books, team: team}
	t := &w.plan.teams[team]
	tokens := 50 + w.rng.Int64N(400)
	if p.s.habit == huge && !w.load.saturated && w.chance(300) {
		w.tally.faults[hugeRequest]++
		tokens = t.burst/2 + w.rng.Int64N(t.burst/2+t.burst/10)
	}
	money := tokens * nanoPerToken
	used, cost := 1+w.rng.Int64N(tokens), 1+w.rng.Int64N(money)
	if w.chance(w.plan.overrunMille) {
		w.tally.faults[overrun]++
		cost = money + w.rng.Int64N(money/2)
		used = tokens + w.rng.Int64N(tokens/2)
		r.over = cost - money
	}
	one := ""
	add := func(scope, owner string, kind ledger.Kind, need, use int64) {
		if res := p.config.byName[name(scope, owner, kind)]; res != nil {
			r.needs = append(r.needs, lease.Need{Resource: res.Id, Amount: need, Name: one})
			r.uses = append(r.uses, lease.Need{Resource: res.Id, Amount: use})
		}
	}
	add("team", t.name, ledger.Requests, 1, 1)
	add("team", t.name, ledger.TotalTokens, tokens, used)
	add("team", t.name, ledger.Money, money, cost)
	if len(r.needs) > 0 {
		add("key", t.name, ledger.Money, money, cost)
		add("org", "o", ledger.Money, money, cost)
		if one = w.userName(); one != "anonymous" {
			add("end_user", t.name, ledger.Requests, 1, 1)
		}
		if one = w.runName(); one != "" {
			add("run", t.name, ledger.Money, money, cost)
			add("run", t.name, ledger.Calls, 1, 1)
		}
		one = w.claimant(t)
		add("deployment", "d", ledger.Requests, 1, 1)
		add("deployment", "d", ledger.TotalTokens, tokens, used)
	}
	if w.plan.careful && p.exposed(r, money/2) {
		p.reserveAll(r, money+money/2)
	}
	return r
}

// large is a request that takes so much of its team's burst of tokens, in thousandths.
func (p *process) large(team int, permille int64) *request {
	r := p.newRequest(team)
	r.since = p.s.w.now
	for i, n := range r.needs {
		if p.s.w.witness.byID[n.Resource].spec.Kind == ledger.TotalTokens {
			r.needs[i].Amount = p.s.w.plan.teams[team].burst * permille / 1000
			r.uses[i].Amount = r.needs[i].Amount
		}
	}
	return r
}

// exposedPart is the gateway's exposureShare: a request reserves less than it may cost only while what could come on top
// is at most so small a part of what is free in each hard budget.
const exposedPart = 400

// exposed is the gateway's rule for that.
func (p *process) exposed(r *request, overrun int64) bool {
	for _, n := range r.needs {
		if spec := &p.s.w.witness.byID[n.Resource].spec; spec.Kind != ledger.Money || !spec.Hard {
			continue
		}
		if left, _, _, _, ok := p.m.Remaining(n.Resource, n.Name); !ok || overrun > left/exposedPart {
			return true
		}
	}
	return false
}

// reserveAll makes a request reserve the most it may cost.
func (p *process) reserveAll(r *request, most int64) {
	r.over = 0
	for i, n := range r.needs {
		if p.s.w.witness.byID[n.Resource].spec.Kind == ledger.Money {
			r.needs[i].Amount = most
		}
	}
}

// userName is whom a request is for. One user wants more than it may have; some users have no room of their own at the
// sidecar.
func (w *world) userName() string {
	if !w.load.saturated && w.chance(300) {
		return "user-0"
	}
	all := max(users, w.plan.users)
	switch n := w.rng.IntN(all + 4); {
	case n < all:
		return fmt.Sprint("user-", n)
	case n == all:
		return ""
	}
	return "anonymous"
}

// runName is one of the runs of the moment; most requests are of none.
func (w *world) runName() string {
	if w.chance(500) {
		return ""
	}
	return fmt.Sprint("run-", int(w.now/(20*time.Second))+w.rng.IntN(3))
}

// claimant names a team's requests at a pool. A request may lower its class.
func (w *world) claimant(t *team) string {
	class := t.class
	if !w.load.saturated && w.chance(100) {
		class = "batch"
	}
	return class + "/" + t.name
}

// wants picks the team of a caller in saturation: the first, or with a pool any. False: it is one who wants little and
// has that already.
func (w *world) wants(team *int) bool {
	if w.plan.pool == 0 {
		*team = 0
		return true
	}
	if *team > 0 || !w.plan.modest {
		return true
	}
	// All teams together want three times the pool, so that each wants as much as there is or more.
	few := w.parts()[0] / 3 * int64(len(w.plan.teams)) * 1000 / (3 * w.plan.pool)
	return w.chance(int(few))
}

// patience is how long callers come again in saturation who want less than their part: two renews.
const patience = 4 * time.Second

// comesAgain has such a caller come again when it was told to. It has one wish, however often it comes.
func (p *process) comesAgain(r *request, v lease.Verdict) bool {
	w := p.s.w
	modest := p.s.modest() || w.plan.modest && w.plan.pool > 0 && r.team == 0
	if !w.load.saturated || !modest || v.Reason != lease.Throttled || w.now+v.RetryAfter-r.since > patience {
		return false
	}
	p.after(v.RetryAfter, func() {
		if w.load.on {
			p.request(r.team, r.since)
		}
	})
	return true
}

// decide is the end of a request's admission. A granted one runs at the provider for a while.
func (p *process) decide(r *request, h lease.Hold, v lease.Verdict, from *snapshot, reserved time.Duration) {
	w := p.s.w
	w.note(p.s.name, "verdict "+v.Reason.String(), int64(v.Resource), v.Needed, v.Left)
	r.books = p.books
	p.judgeFailover(v)
	if p.comesAgain(r, v) {
		return
	}
	p.s.wished++
	w.plan.teams[r.team].wished++
	if !v.OK {
		w.witness.refused(r, v)
		if r.refused != nil {
			r.refused(v)
		}
		return
	}
	p.s.got++
	w.plan.teams[r.team].got++
	w.witness.admitted(r, from, reserved)
	p.checkAdmission(r)
	lasts := r.lasts
	if lasts == 0 {
		lasts = w.between(w.plan.lasts[0], w.plan.lasts[1])
	}
	w.after(lasts, func() {
		w.witness.billed(r)
		if w.plan.pool > 0 {
			p.hearProvider()
		}
		if r.ended != nil {
			r.ended()
		}
		p.run(func() {
			w.witness.settled(r)
			p.m.Settle(h, r.uses)
			p.poll()
		})
	})
}
