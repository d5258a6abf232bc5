package sim

import (
	"fmt"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// figure is a promise that is a number. A world in which it is broken fails; a sweep prints the worst of all worlds.
type figure uint8

const (
	budgetOvershoot figure = iota
	windowOvershoot
	settlesWrong
	firstExhausted
	jainIndex
	utilisation
	teamPart
	batchFloor
	modestPart
	leaderRefusals
	numFigures
)

// promised is what a figure must be: at most most, or at least least if that is not 0.
type promised struct {
	name        string
	least, most int64
	perCent     int64 // parts of the number in one per cent; 0: a count
}

var figures = [numFigures]promised{
	budgetOvershoot: {"hard budgets passed, by the witness (contract: 1%)", 0, 20, 100},
	windowOvershoot: {"more than burst + limit x w in any window (contract: 5%)", 0, 30, 10},
	settlesWrong:    {"settles lost or doubled", 0, 0, 0},
	firstExhausted:  {"of the cap spent when first exhausted, with that request's need", 990, 0, 10},
	jainIndex:       {"Jain index of equal demands in saturation", 980, 0, 10},
	utilisation:     {"of a limit used in saturation", 950, 0, 10},
	teamPart:        {"of its part of a pool got by a team, by class and weight", 900, 0, 10},
	batchFloor:      {"of its part of a pool got by batch", 900, 0, 10},
	modestPart:      {"of its wishes got by a team that wants less than its part", 900, 0, 10},
	leaderRefusals:  {"requests refused for want of a leader", 0, 0, 0},
}

// worst is the worst value of a figure, and how often it was measured.
type worst struct {
	times int
	value int64
}

func (f figure) worse(a, b int64) bool {
	if figures[f].least > 0 {
		return a < b
	}
	return a > b
}

func (f figure) kept(value int64) bool {
	if p := figures[f]; p.least > 0 {
		return value >= p.least
	}
	return value <= figures[f].most
}

func (t *Tally) measure(f figure, times int, value int64) {
	if times == 0 {
		return
	}
	if w := &t.figures[f]; w.times == 0 || f.worse(value, w.value) {
		w.value = value
	}
	t.figures[f].times += times
}

// measure takes a figure down, and breaks the world when it is not what is promised.
func (w *world) measure(f figure, value int64, format string, args ...any) {
	w.tally.measure(f, 1, value)
	if !f.kept(value) {
		w.must(fmt.Errorf("%s: %s: %s", figures[f].name, f.say(value), fmt.Sprintf(format, args...)))
	}
}

// say writes a value with its unit.
func (f figure) say(value int64) string {
	p := figures[f]
	if p.perCent == 0 {
		return fmt.Sprint(value)
	}
	whole, part := value/p.perCent, value%p.perCent
	if p.perCent == 100 {
		return fmt.Sprintf("%d.%02d%%", whole, part)
	}
	return fmt.Sprintf("%d.%d%%", whole, part)
}

// bound is what is promised, in words.
func (f figure) bound() string {
	if p := figures[f]; p.least > 0 {
		return "at least " + f.say(p.least)
	}
	return "at most " + f.say(figures[f].most)
}

// measureBudget compares what was truly spent of a hard budget with its cap, where callers reserve as the gateway does:
// it is by that rule that little is in flight when a budget ends. (Whoever reserves too little passes a budget by all that
// is in flight, which judgeSpend allows and no more.) A cap that was changed has no one number.
func (w *world) measureBudget(res *truth, m *month) {
	if !res.spec.Hard || !w.plan.careful || m.capChanged || m.cap <= 0 {
		return
	}
	w.measure(budgetOvershoot, max(0, m.spent-m.cap)*10_000/m.cap, "%s/%s in %d: spent %d of %d",
		res.spec.Scope, res.spec.Owner, m.period, m.spent, m.cap)
}

// measureWindows finds the smallest part by which every window stays within burst + limit x w.
func (w *world) measureWindows(res *truth) {
	low, high := int64(0), int64(50)
	for low < high {
		if mid := (low + high) / 2; res.judgeWindows(mid) == nil {
			high = mid
		} else {
			low = mid + 1
		}
	}
	w.measure(windowOvershoot, low, "%s/%s, kind %d", res.spec.Scope, res.spec.Owner, res.spec.Kind)
}

// measureParts compares what sidecars got of a bucket that all of them wanted equally much of.
func (w *world) measureParts(parts map[string]int64) {
	sum, squares, n := int64(0), int64(0), int64(0)
	for _, s := range w.sidecars {
		if s.p != nil {
			p := parts[s.name]
			sum, squares, n = sum+p, squares+p*p, n+1
		}
	}
	if squares > 0 && n > 1 {
		w.measure(jainIndex, sum*sum/n*1000/squares, "%v", parts)
	}
}

// Failovers.

const (
	failover  = time.Second      // a gap between leaders that requests do not notice
	untouched = 12 * time.Second // nothing else may have gone wrong for so long
)

// judgeFailover looks at a decided request: one that waited through a failover, at a sidecar to which nothing else
// happened, is not refused for want of a leader.
func (p *process) judgeFailover(v lease.Verdict) {
	s, q, now := p.s, p.s.w.quotad, p.s.w.now
	last := q.losses[0]
	since := now - last.at
	calm := func(at time.Duration) bool { return now-at > untouched }
	switch {
	case last.gap == 0, last.gap > failover, since > 4*time.Second, q.losses[1].gap > 0 && !calm(q.losses[1].at+q.losses[1].gap):
		return
	case v.Waited > since+100*time.Millisecond: // something else kept it waiting already
		return
	case !s.link.whole(), !calm(s.link.trouble), !calm(p.pauseEnd), !calm(p.began), !calm(q.edited), p.leaving, p.books.cloned:
		return
	}
	if m, ok := q.l.MemberState(p.books.incarnation); ok && m.Fenced {
		return
	}
	refused := int64(0)
	if v.Reason == lease.Unavailable {
		refused = 1
	}
	s.w.measure(leaderRefusals, refused, "%s, %v after the leader was lost for %v: %+v", s.name, since, last.gap, v)
}

// modest says that a sidecar wants less than its part when the others want more than there is.
func (s *sidecar) modest() bool {
	return s.w.plan.modest && s.w.plan.pool == 0 && s == s.w.sidecars[0]
}

// measureModest looks at what a sidecar got that wanted a third of its part.
func (w *world) measureModest() {
	s := w.sidecars[0]
	if !w.plan.modest || s.p == nil || s.wished == 0 {
		return
	}
	if s.got*10 < s.wished*9 {
		w.must(fmt.Errorf("%s: %s got %d of %d", modestStarved, s.name, s.got, s.wished))
	}
}

// modestStarved is what is broken when max-min does not hold.
const modestStarved = "who wants less than its part does not get it"
