package registry

import (
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// This file reads what is counted: limits, budgets, and what they are written in.

// usd is the currency of prices and of everything that was converted.
const usd = "USD"

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

var errNotCurrency = errors.New("is not a currency code of three capital letters")

func parseCurrency(to *string) func(string) error {
	return func(text string) error {
		if !currencyCode.MatchString(text) {
			return fmt.Errorf("%s %w", clip(text), errNotCurrency)
		}
		*to = text
		return nil
	}
}

func (m *mapping) readCurrency() *Currency {
	c := &Currency{}
	m.with(m.need("code"), "code", parseCurrency(&c.Code))
	return c
}

func (m *mapping) readFX() *FX {
	f := &FX{Rates: map[string]Nano{}}
	for _, c := range m.keys {
		switch {
		case !currencyCode.MatchString(c):
			m.rd.fault(m.from[c], m.sub(c), "%s", errNotCurrency)
			continue
		case c == usd:
			m.rd.fault(m.from[c], m.sub(c), "has no rate: rates are units per USD")
			continue
		}
		var rate Nano
		m.with(m.take(c), c, parseNano(&rate, rateMin, rateMax))
		f.Rates[c] = rate
	}
	return f
}

func (m *mapping) readOrg() *Org {
	o := &Org{Budget: m.budget(), Limits: m.limits()}
	m.timezone(&o.Timezone)
	n := m.take("classes")
	c := m.rd.mapping(n, m.sub("classes"))
	if c == nil || n == nil {
		return o
	}
	o.Classes = defaultReserves()
	var sum Permille
	for _, class := range Classes() {
		share := o.Classes[class]
		c.with(c.take(class), class, parseShare(&share, 0, 1000))
		o.Classes[class] = share
		sum += share
	}
	c.close()
	if sum > 1000 {
		m.rd.fault(n.Line, c.path, "the shares add up to %s, more than 1 (%s where nothing is said)",
			formatDecimal(int64(sum), permilleDigits), defaultReservesText())
	}
	return o
}

func (m *mapping) budget() *Budget {
	n := m.take("budget")
	if n == nil {
		return nil
	}
	return m.rd.budgetAt(n, m.sub("budget"))
}

func (rd *reader) budgetAt(n *yaml.Node, path string) *Budget {
	m := rd.mapping(n, path)
	if m == nil {
		return nil
	}
	b := &Budget{AlertAt: []Permille{500, 800, 1000}}
	m.with(m.need("monthly"), "monthly", parseNano(&b.Monthly, 0, moneyMax))
	m.with(m.take("currency"), "currency", parseCurrency(&b.Currency))
	m.boolean("hard", &b.Hard, true)
	if a := m.take("alert_at"); a != nil {
		at := m.sub("alert_at")
		b.AlertAt = []Permille{}
		for i, c := range rd.items(a, at, alertsMax) {
			var share Permille
			place := fmt.Sprintf("%s[%d]", at, i)
			if text, ok := rd.scalar(c, place); ok {
				if err := parseShare(&share, 1, 10_000)(text); err != nil {
					rd.fault(c.Line, place, "%s", err)
				} else if i > 0 && len(b.AlertAt) > 0 && share <= b.AlertAt[len(b.AlertAt)-1] {
					rd.fault(c.Line, place, "must be above the one before it")
				}
			}
			b.AlertAt = append(b.AlertAt, share)
		}
	}
	m.close()
	return b
}

// runBudget reads a cap of runs, of their money, their calls or both.
func (m *mapping) runBudget() *RunBudget {
	n := m.take("run_budget")
	rm := m.rd.mapping(n, m.sub("run_budget"))
	if rm == nil || n == nil {
		return nil
	}
	b := &RunBudget{}
	rm.with(rm.take("max"), "max", parseNano(&b.Max, 1, moneyMax))
	rm.integer("max_calls", &b.MaxCalls, 0, 1, limitMax)
	rm.duration("lifetime", &b.Lifetime, defaultLifetime, lifetimeMin, lifetimeMax)
	rm.close()
	if rm.at["max"] == nil && rm.at["max_calls"] == nil {
		m.rd.fault(n.Line, rm.path, "caps nothing: give max, max_calls or both")
	}
	return b
}

func (m *mapping) limits() *Limits {
	return m.limitsAt("limits", func(lm *mapping, l *Limits) {
		lm.integer("rpm", &l.RPM, 0, 1, limitMax)
		lm.integer("tpm", &l.TPM, 0, 1, limitMax)
		lm.integer("input_tpm", &l.InputTPM, 0, 1, limitMax)
		lm.integer("output_tpm", &l.OutputTPM, 0, 1, limitMax)
	})
}

func (m *mapping) endUserLimits() *Limits {
	return m.limitsAt("end_user_limits", func(lm *mapping, l *Limits) {
		lm.integer("rpm", &l.RPM, 0, 1, limitMax)
		lm.integer("tpm", &l.TPM, 0, 1, limitMax)
	})
}

// limitsAt reads limits; nil when there are none.
func (m *mapping) limitsAt(key string, read func(*mapping, *Limits)) *Limits {
	n := m.take(key)
	if n == nil {
		return nil
	}
	lm := m.rd.mapping(n, m.sub(key))
	if lm == nil {
		return nil
	}
	l := &Limits{}
	read(lm, l)
	lm.close()
	if *l == (Limits{}) {
		return nil
	}
	return l
}
