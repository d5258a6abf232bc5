package sim

import (
	"fmt"
	"io"
)

// fault is a kind of thing that goes wrong, or at least changes.
type fault uint8

const (
	dropped fault = iota
	repeated
	late
	reordered
	callerLeft
	overrun
	hugeRequest
	disordered
	timeBehind
	messageFaults // those above happen by themselves; those below are injected

	cutUp fault = iota - 1
	cutDown
	cutBoth
	pause
	killKept
	killLost
	killRolledBack
	powerCut
	clone
	cleanLeave
	newcomer
	saidDead
	leaderChange
	entriesLost
	repliesLost
	leaderLoaded
	outage
	clockStep
	monthTurn
	limitChange
	capChange
	credit
	debit
	teamRecreated
	outsider
	lateAnswer
	numFaults
)

var faultNames = [numFaults]string{
	dropped: "message dropped", repeated: "message repeated", late: "message late", reordered: "message overtaken",
	callerLeft: "caller left while it waited", overrun: "request cost more than reserved", hugeRequest: "huge request",
	disordered: "entry stamped out of order", timeBehind: "new leader's time is behind",
	cutUp: "cut towards quotad", cutDown: "cut towards the sidecar", cutBoth: "cut both ways", pause: "process paused",
	killKept: "kill, journal kept", killLost: "kill, journal lost", killRolledBack: "kill, disk rolled back", powerCut: "machine loses power",
	clone: "process cloned", cleanLeave: "clean leave", newcomer: "sidecar joins", saidDead: "operator says dead",
	leaderChange: "leader change", entriesLost: "leader lost, entries with it", repliesLost: "leader lost, only replies with it",
	leaderLoaded: "new leader loaded from records", outage: "quotad away", clockStep: "leader's clock steps",
	monthTurn: "month turns", limitChange: "limit changed", capChange: "cap changed", credit: "credit", debit: "debit",
	teamRecreated: "team deleted and created again", outsider: "others use the provider's limit",
	lateAnswer: "answer comes when its caller has gone",
}

// check is a kind of invariant or promise.
type check uint8

const (
	checkConserved check = iota
	checkLedger
	checkBalance
	checkBooks
	checkCovered
	checkShares
	checkLease
	checkLapsed
	checkNotDoubled
	checkHonestNotFenced
	checkExhausted
	checkExhaustedHere
	checkMonth
	checkSpend
	checkSpendFull
	checkWindow
	checkSettledExact
	checkSettledByJournal
	checkSuspense
	checkQuiet
	checkStarved
	checkTime
	checkWhole
	checkWoken
	checkDefined
	numChecks
)

var checkNames = [numChecks]string{
	checkConserved:        "settled + outstanding + suspense + free = cap + credits",
	checkLedger:           "the ledger's own check",
	checkBalance:          "nothing admitted from a balance below zero",
	checkBooks:            "the sidecar's totals are the witness's",
	checkCovered:          "true spend is on lease or settled",
	checkShares:           "shares usable anywhere sum to the limit at most",
	checkLease:            "no lease used after quotad forfeited it",
	checkLapsed:           "the sidecar stops first when its leases lapse",
	checkNotDoubled:       "never more settled than was",
	checkHonestNotFenced:  "fenced only with reason",
	checkExhausted:        "quotad says exhausted at 99% and not before",
	checkExhaustedHere:    "the sidecar says exhausted at 99% and not before",
	checkMonth:            "no month opened before its time",
	checkSpend:            "hard budgets passed by overruns in flight at most",
	checkSpendFull:        "the same, of a budget that was used up",
	checkWindow:           "every window: burst + limit x w + 5%",
	checkSettledExact:     "settled is what was spent, to the unit",
	checkSettledByJournal: "the same after a kill, by its journal",
	checkSuspense:         "what no journal proved is in suspense",
	checkQuiet:            "an idle sidecar keeps nothing",
	checkStarved:          "every sidecar gets its part",
	checkTime:             "ledger time never goes back, and no further than the stamp",
	checkWhole:            "asks are granted whole or not at all",
	checkWoken:            "who was refused hears when more becomes free",
	checkDefined:          "resources are what they were defined to be",
}

// Tally counts how often everything happened and was checked.
type Tally struct {
	faults [numFaults]int
	checks [numChecks]int

	figures [numFigures]worst
}

// Add adds the counts of another.
func (t *Tally) Add(o Tally) {
	for i, n := range o.faults {
		t.faults[i] += n
	}
	for i, n := range o.checks {
		t.checks[i] += n
	}
	for i, w := range o.figures {
		t.measure(figure(i), w.times, w.value)
	}
}

func (t *Tally) injected() int {
	n := 0
	for _, k := range t.faults[messageFaults:] {
		n += k
	}
	return n
}

// Missing are the faults that never happened and the checks that were never made.
func (t *Tally) Missing() []string {
	var out []string
	for i, n := range t.faults {
		if n == 0 {
			out = append(out, faultNames[i])
		}
	}
	for i, n := range t.checks {
		if n == 0 {
			out = append(out, checkNames[i])
		}
	}
	for i, w := range t.figures {
		if w.times == 0 {
			out = append(out, figures[i].name)
		}
	}
	return out
}

// Write prints the counts.
func (t *Tally) Write(out io.Writer) error {
	text := "faults\n"
	for i, n := range t.faults {
		text += fmt.Sprintf("  %10d  %s\n", n, faultNames[i])
	}
	text += "checks\n"
	for i, n := range t.checks {
		text += fmt.Sprintf("  %10d  %s\n", n, checkNames[i])
	}
	text += "figures, the worst of all\n"
	for i, w := range t.figures {
		f := figure(i)
		said := "-"
		if w.times > 0 {
			said = f.say(w.value)
		}
		text += fmt.Sprintf("  %10d  %8s  %s: %s\n", w.times, said, f.bound(), figures[i].name)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("write the counts: %w", err)
	}
	return nil
}
