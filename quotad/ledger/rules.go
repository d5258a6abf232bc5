package ledger

// Rules are what the same operations do. Nodes of one cluster follow the same ones, or their states drift apart: while
// some of them are of an older version, its rules hold for all. What is not listed here is the same by all rules.
type Rules uint8

const (
	// RulesFirst: standby ends a fixed time after the sidecar's; the share that a silent sidecar may have used before it
	// lapsed is not charged; what comes back to a bucket after a lapse is given back; a bucket refills beside what asks
	// were granted as soon as they are; what a journal says of a process or a counter that is not known is not booked; a
	// successor that has lapsed takes no shares over; of a credit nothing is kept but its id.
	// There is nothing that is one for each name, no pool and no currency: nobody defines any.
	RulesFirst Rules = 0
	// RulesNow: what the rest of this package says.
	RulesNow Rules = 1
)

// Follow sets the rules for what is applied from now on. A new ledger follows RulesNow; loading changes nothing.
func (l *Ledger) Follow(r Rules) { l.rules = r }
