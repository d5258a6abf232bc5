package registry

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// Amounts stand in the currency they were written in and are converted where they are used: a budget's by the ledger,
// once, when its month opens.

// currency is what amounts are in that do not say.
func (s *state) currency() string {
	if c, ok := valueOf[*Currency](s, KindCurrency, OrgID); ok && c.Code != "" {
		return c.Code
	}
	return usd
}

// rate keeps the rates of currencies: what after says takes the place of what before said; nil says nothing.
func (s *state) rate(before, after *entry) {
	for code, r := range ratesIn(before) {
		s.rates[code] = slices.DeleteFunc(slices.Clone(s.rates[code]), func(o ledger.Rate) bool { return o.Period == r.Period })
	}
	for code, r := range ratesIn(after) {
		s.rates[code] = append(slices.Clone(s.rates[code]), r)
		slices.SortFunc(s.rates[code], func(a, b ledger.Rate) int { return cmp.Compare(a.Period, b.Period) })
	}
}

// ratesIn are the rates of a month by currency, if e is one.
func ratesIn(e *entry) map[string]ledger.Rate {
	if e == nil || e.Kind != KindFX || !isMonth(e.ID) {
		return nil
	}
	out := map[string]ledger.Rate{}
	for code, perUSD := range e.value.(*FX).Rates {
		if perUSD > 0 { // while a file is read, one with a fault is 0
			out[code] = ledger.Rate{Period: monthOf(e.ID), PerUSDNano: int64(perUSD)}
		}
	}
	return out
}

// monthOf is yyyymm for a text that isMonth.
func monthOf(id string) uint32 {
	var y, m uint32
	_, _ = fmt.Sscanf(id, "%4d-%2d", &y, &m) // isMonth has looked at it
	return y*100 + m
}

// foreign is the currency of an amount and its rates; empty for USD, which needs none.
func (s *state) foreign(code string) (currency string, rates []ledger.Rate) {
	if currency = cmp.Or(code, s.currency()); currency == usd {
		return "", nil
	}
	return currency, s.rates[currency]
}

// amount is money in a spec, with the path of what states its currency, if anything does.
type amount struct {
	path, currency string
	currencyPath   string
	nano           Nano
}

func budgetAmount(b *Budget) []amount {
	if b == nil {
		return nil
	}
	return []amount{{path: "budget.monthly", currency: b.Currency, currencyPath: "budget.currency", nano: b.Monthly}}
}

// amounts lists the money in a spec that is converted.
func amounts(v value) []amount {
	switch v := v.(type) {
	case *Org:
		return budgetAmount(v.Budget)
	case *BusinessUnit:
		return budgetAmount(v.Budget)
	case *Key:
		return budgetAmount(v.Budget)
	case *Team:
		out := append(budgetAmount(v.Budget), amount{path: "request_cap", nano: v.RequestCap})
		if v.RunBudget != nil {
			out = append(out, amount{path: "run_budget.max", nano: v.RunBudget.Max})
		}
		return out
	}
	return nil
}

// checkAmounts sees to it that everything can be converted. A currency that nothing converts is reported where it is
// stated: once for the org's.
func (c *checker) checkAmounts(v value, add func(path, format string, args ...any)) {
	const cure = "add one to fx, as in `\"2026-11\": { %s: <units for one US dollar> }`"
	if v, ok := v.(*Currency); ok && v.Code != "" && v.Code != usd && !c.rated(v.Code) {
		add("", "there is no rate of %s: "+cure, v.Code, v.Code)
	}
	for _, a := range amounts(v) {
		code := cmp.Or(a.currency, c.s.currency())
		if a.nano == 0 || code == usd {
			continue
		}
		if a.currency != "" && !c.rated(code) {
			add(a.currencyPath, "there is no rate of %s: "+cure, code, code)
		}
		for _, r := range c.s.rates[code] {
			spec := ledger.Spec{Limit: int64(a.nano), Currency: code, Rates: []ledger.Rate{r}}
			if spec.CapIn(r.Period) > moneyMax {
				add(a.path, "is more than %s dollars at the rate of %d", formatDecimal(moneyMax, nanoDigits), r.Period)
				break
			}
		}
	}
}

// rated says whether a currency has a rate. A rate with a fault counts while a file is read: it was reported.
func (c *checker) rated(code string) bool {
	if len(c.s.rates[code]) > 0 {
		return true
	}
	return !c.whole && slices.ContainsFunc(valuesOf[*FX](c.s, KindFX), func(f *FX) bool {
		_, ok := f.Rates[code]
		return ok
	})
}

// Unrated lists, by path in an org.yaml, the currencies in use that have no rate for a month and none before it: what
// is written in them cannot be converted yet. month is yyyymm.
func (r *Registry) Unrated(month uint32) []Problem {
	var out []Problem
	missing := func(code string) bool {
		currency, rates := r.state.foreign(code)
		return currency != "" && (len(rates) == 0 || rates[0].Period > month)
	}
	add := func(ref Ref, path, code string) {
		out = append(out, Problem{Ref: ref, Path: path, What: fmt.Sprintf(
			"there is no rate of %s for %d-%02d, nor an earlier one", code, month/100, month%100)})
	}
	if missing("") {
		add(Ref{KindCurrency, OrgID}, "", r.Currency())
	}
	r.state.each(func(e *entry) {
		for _, a := range amounts(e.value) {
			if a.currency != "" && missing(a.currency) {
				add(e.ref(), a.currencyPath, a.currency)
			}
		}
	})
	return out[:min(len(out), faultsMax)]
}

// RequestCap is a team's cap on a single request in nano-dollars, at the rate of a month (yyyymm); 0 is none.
func (r *Registry) RequestCap(t Team, month uint32) Nano {
	currency, rates := r.state.foreign("")
	if currency == "" || t.RequestCap == 0 {
		return t.RequestCap
	}
	spec := ledger.Spec{Limit: int64(t.RequestCap), Currency: currency, Rates: rates}
	return max(1, Nano(spec.CapIn(month))) // 0 would be none
}
