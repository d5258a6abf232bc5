package ledger

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata/*.txt")

// TestTranscripts plays the scenarios in testdata. Each file says why it exists, then has commands, and under each
// command its answer on lines that start with ">". The invariants are checked after every command.
//
//	at MS                                   time advances
//	spec OWNER KIND LIMIT [k=v …]           notes a resource: burst, soft, tz, alerts=500,1000, each=name|claimant, keep,
//	                                        INR=yyyymm:RATE,…
//	fair [TEAM=WEIGHT …] [CLASS=PERMILLE …] notes how pools are divided
//	drop OWNER KIND                         notes that it is missing
//	define INDEX                            defines what is noted
//	open yyyymm [TZ]                        opens a period
//	renew INC SEQ [k=v …] [| RES k=v …]     a renew: id, ack, leaving; counters: s, r, held, demand, left, close
//	  [| ask ID RES=AMOUNT …]
//	final INC SEQ by=INC [proven] [| RES s=…]
//	enter INDEX · fence INC · credit RES AMOUNT ID · events · untold · told RES PERMILLE · members · counters INC · show RES
//	failover                                the state is written to records and loaded again
//
// RES is owner.kind, for budgets with @yyyymm, of a child with [NAME]; the name stays bound to the id it had last, also
// when that is deleted. In asks, RES with [NAME] stands for the template and the name.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playTranscript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s plays differently; got:\n%s", file, got)
			}
		})
	}
}

type player struct {
	t     *testing.T
	l     *Ledger
	specs []Spec
	fair  Fairness
	ids   map[string]uint64 // by owner.kind
	names map[uint64]string
	out   strings.Builder
}

func playTranscript(t *testing.T, text string) string {
	p := &player{t: t, l: New(Config{}), ids: map[string]uint64{}, names: map[uint64]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		p.out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p.command(line)
		p.meet()
		if err := p.l.CheckTouched(); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if err := p.l.Check(); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
	}
	return p.out.String()
}

func (p *player) say(format string, args ...any) { fmt.Fprintf(&p.out, "> "+format+"\n", args...) }

func (p *player) number(s string) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil {
		p.t.Fatalf("%q is no number", s)
	}
	return n
}

var kinds = map[string]Kind{
	"requests": Requests, "input": InputTokens, "output": OutputTokens, "total": TotalTokens, "money": Money,
	"calls": Calls,
}

var shortages = map[Shortage]string{
	ShortageNone: "none", Throttled: "throttled", Reserved: "reserved", Exhausted: "exhausted", TooLarge: "too large",
	Gone: "gone",
}

func (p *player) command(line string) {
	parts := strings.Split(line, "|")
	words := strings.Fields(parts[0])
	switch words[0] {
	case "at":
		p.l.Advance(p.number(words[1]))
	case "spec", "drop":
		p.spec(words)
	case "define":
		p.define(uint64(p.number(words[1])))
	case "open":
		tz := ""
		if len(words) > 2 {
			tz = words[2]
		}
		p.l.OpenPeriods([]Period{{Timezone: tz, Period: uint32(p.number(words[1])), EndsMS: 1}})
	case "renew":
		p.renew(words, parts[1:])
	case "final":
		p.final(words, parts[1:])
	case "enter":
		p.l.Enter(uint64(p.number(words[1])))
	case "fair":
		p.setFair(words[1:])
	case "fence":
		p.l.Fence(uint64(p.number(words[1])))
	case "credit":
		id, period := p.resource(words[1])
		p.say("%s", [...]string{"applied", "repeated", "gone", "invalid", "full", "other"}[p.l.Credit(id, period, Credit{ID: words[3], Amount: p.number(words[2])})])
	case "events":
		for _, e := range p.l.Events() {
			switch e.Kind {
			case Wake:
				p.say("wake %d", e.Incarnation)
			case AlertRaised:
				p.say("alert")
			case PeriodOpened: // as the transcript says itself
			}
		}
	case "untold":
		for _, a := range p.l.Untold() {
			p.say("%s %d: %d of %d", p.name(a.Resource, a.Period), a.Permille, a.Spent, a.Cap)
		}
	case "told":
		id, period := p.resource(words[1])
		p.l.Told(id, period, p.number(words[2]))
	case "members":
		for _, m := range p.l.Members() {
			p.say("%d %s lapse=%d standby=%d%s%s%s shares=%d/%d counters=%d", m.Incarnation, m.Identity, m.LapseAtMS,
				m.StandbyAtMS, flagged(m.Lapsed, " lapsed"), flagged(m.Fenced, " fenced"), flagged(m.Left, " left"),
				m.ShareAcked, m.ShareVersion, m.Counters)
		}
	case "counters":
		for _, c := range p.l.Counters(uint64(p.number(words[1]))) {
			p.say("%s G=%d S=%d R=%d F=%d held=%d demand=%d suspense=%d shares=%v", p.name(c.Resource, c.Period), c.Granted,
				c.Spent, c.Returned, c.Forfeited, c.Held, c.Demand, c.Suspense, c.Shares)
		}
	case "show":
		p.show(words[1])
	case "failover":
		p.l = reload(p.t, p.l)
	default:
		p.t.Fatalf("unknown command %q", line)
	}
}

func flagged(is bool, word string) string {
	if is {
		return word
	}
	return ""
}

func (p *player) spec(words []string) {
	s := Spec{Scope: "team", Owner: words[1], Kind: kinds[words[2]], Hard: true}
	p.specs = slices.DeleteFunc(p.specs, func(o Spec) bool { return o.Owner == s.Owner && o.Kind == s.Kind })
	if words[0] == "drop" {
		return
	}
	s.Limit = p.number(words[3])
	for _, w := range words[4:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "burst":
			s.Burst = p.number(v)
		case "soft":
			s.Hard = false
		case "tz":
			s.Timezone = v
		case "each":
			s.Each = map[string]Each{"name": EachName, "claimant": EachClaimant}[v]
		case "keep":
			s.KeepMS = p.number(v)
		case "INR":
			s.Currency = k
			for r := range strings.SplitSeq(v, ",") {
				month, rate, _ := strings.Cut(r, ":")
				s.Rates = append(s.Rates, Rate{Period: uint32(p.number(month)), PerUSDNano: p.number(rate)})
			}
		case "alerts":
			for a := range strings.SplitSeq(v, ",") {
				s.AlertPermille = append(s.AlertPermille, p.number(a))
			}
		default:
			p.t.Fatalf("unknown word %q", w)
		}
	}
	p.specs = append(p.specs, s)
}

func (p *player) define(index uint64) {
	if err := p.l.Define(index, p.specs, p.fair); err != nil {
		p.say("%v", err)
	}
	for _, r := range p.l.Resources() {
		name := r.Spec.Owner
		for k, v := range kinds {
			if v == r.Spec.Kind {
				name += "." + k
			}
		}
		if p.ids[name] != r.ID {
			p.say("%s is %d<<12|%d", name, r.ID>>12, r.ID&(1<<12-1))
		}
		p.ids[name], p.names[r.ID] = r.ID, name
	}
}

func (p *player) setFair(words []string) {
	p.fair = Fairness{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		if _, isClass := classOf(k); isClass {
			p.fair.Reserves = append(p.fair.Reserves, ClassReserve{Class: k, Permille: p.number(v)})
		} else {
			p.fair.Weights = append(p.fair.Weights, TeamWeight{Team: k, Weight: p.number(v)})
		}
	}
}

// meet learns the ids of new children.
func (p *player) meet() {
	for _, t := range p.l.Resources() {
		for _, kid := range p.l.Children(t.ID) {
			name := fmt.Sprintf("%s[%s]", p.names[t.ID], kid.Name)
			if p.ids[name] != kid.ID {
				p.say("%s is %d<<12|%d", name, kid.ID>>12, kid.ID&(1<<12-1))
			}
			p.ids[name], p.names[kid.ID] = kid.ID, name
		}
	}
}

func (p *player) resource(name string) (uint64, uint32) {
	name, period, _ := strings.Cut(name, "@")
	id, ok := p.ids[name]
	if !ok && strings.HasPrefix(name, "#") {
		return uint64(p.number(name[1:])), 0
	}
	if !ok {
		p.t.Fatalf("unknown resource %q", name)
	}
	if period == "" {
		return id, 0
	}
	return id, uint32(p.number(period))
}

func (p *player) name(id uint64, period uint32) string {
	p.meet()
	name, ok := p.names[id]
	if !ok {
		name = fmt.Sprintf("#%d", id)
	}
	if period != 0 {
		name += fmt.Sprintf("@%d", period)
	}
	return name
}

func (p *player) counter(words []string) Counter {
	var c Counter
	c.Resource, c.Period = p.resource(words[0])
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		if k == "close" {
			c.Close = true
			continue
		}
		switch n := p.number(v); k {
		case "left":
			c.ProviderLeft = &n
		case "s":
			c.Spent = n
		case "r":
			c.Returned = n
		case "held":
			c.Held = n
		case "demand":
			c.Demand = n
		default:
			p.t.Fatalf("unknown word %q", w)
		}
	}
	return c
}

func (p *player) renew(words, parts []string) {
	r := Renew{Incarnation: uint64(p.number(words[1])), Seq: uint64(p.number(words[2])), Identity: "side-" + words[1]}
	for _, w := range words[3:] {
		switch k, v, _ := strings.Cut(w, "="); k {
		case "id":
			r.Identity = v
		case "ack":
			r.ShareVersion = uint64(p.number(v))
		case "leaving":
			r.Leaving = true
		default:
			p.t.Fatalf("unknown word %q", w)
		}
	}
	for _, part := range parts {
		words := strings.Fields(part)
		if words[0] != "ask" {
			r.Counters = append(r.Counters, p.counter(words))
			continue
		}
		a := Ask{ID: uint64(p.number(words[1]))}
		for _, w := range words[2:] {
			name, amount, _ := strings.Cut(w, "=")
			n := Need{Amount: p.number(amount)}
			template, child, _ := strings.Cut(name, "[")
			n.Name = strings.TrimSuffix(child, "]")
			n.Resource, n.Period = p.resource(template)
			a.Needs = append(a.Needs, n)
		}
		r.Asks = append(r.Asks, a)
	}
	p.sayReply(p.l.Renew(r))
}

func (p *player) sayReply(r RenewReply) {
	if r.Fenced || r.Refusal != RefusedNot {
		p.say("seq %d%s%s", r.Seq, flagged(r.Fenced, " fenced"),
			[...]string{"", " malformed", " full"}[r.Refusal])
		return
	}
	for _, a := range r.Asks {
		if a.Granted {
			p.say("ask %d granted", a.ID)
		} else {
			p.say("ask %d: %s %s, left %d%s", a.ID, p.name(a.Resource, 0), shortages[a.Shortage], a.Left, retry(a.RetryAfterMS))
		}
	}
	for _, g := range r.Grants {
		if g.Gone {
			p.say("%s gone", p.name(g.Resource, g.Period))
			continue
		}
		short := ""
		if g.Shortage != ShortageNone {
			short = " " + shortages[g.Shortage] + retry(g.RetryAfterMS)
		}
		if name := p.name(g.Resource, g.Period); g.IdleMax > 0 && !strings.Contains(name, ".money") {
			short += fmt.Sprintf(", keep %d", g.IdleMax)
		}
		p.say("%s G=%d F=%d free=%d%s", p.name(g.Resource, g.Period), g.Granted, g.Forfeited, g.Free, short)
	}
	if len(r.Shares) > 0 {
		fmt.Fprintf(&p.out, "> shares v%d", r.ShareVersion)
		for _, s := range r.Shares {
			fmt.Fprintf(&p.out, " %s=%d", p.name(s.Resource, 0), s.PerMinute)
		}
		p.out.WriteString("\n")
	}
}

func retry(ms int64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf(", retry in %d", ms)
}

func (p *player) final(words, parts []string) {
	f := FileFinal{Incarnation: uint64(p.number(words[1])), Seq: uint64(p.number(words[2])), Identity: "side-" + words[1]}
	for _, w := range words[3:] {
		switch k, v, _ := strings.Cut(w, "="); k {
		case "by":
			f.Successor = uint64(p.number(v))
		case "id":
			f.Identity = v
		case "proven":
			f.Proven = true
		default:
			p.t.Fatalf("unknown word %q", w)
		}
	}
	for _, part := range parts {
		f.Counters = append(f.Counters, p.counter(strings.Fields(part)))
	}
	if p.l.FileFinal(f) {
		p.say("done")
	} else {
		p.say("not done")
	}
}

func (p *player) show(name string) {
	id, _ := p.resource(name)
	r, ok := p.l.Resource(id)
	if !ok {
		p.say("gone")
		return
	}
	if r.Spec.Kind < Money {
		p.say("level=%d out=%d idle=%d sharers=%d shares=%d lapsed=%d", r.Level, r.Outstanding, r.Idle, r.Sharers, r.Shares,
			r.LapsedShares)
		return
	}
	for _, b := range r.Periods {
		p.say("%d cap=%d credits=%d settled=%d out=%d suspense=%d free=%d alerted=%v%s", b.Period, b.Cap, b.Credits,
			b.Settled, b.Outstanding, b.Suspense, b.Free, b.AlertedPermille, flagged(b.Closed, " closed"))
	}
}
