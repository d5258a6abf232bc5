package registry

import (
	"maps"
	"slices"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// The scopes of resources, narrowest first: a request draws on all of them, but on a run's and an end user's only when
// it names one, and on a deployment's with each attempt there.
const (
	ScopeKey          = "key"
	ScopeRun          = "run"
	ScopeEndUser      = "end_user"
	ScopeTeam         = "team"
	ScopeBusinessUnit = "business_unit"
	ScopeOrg          = "org"
	ScopeDeployment   = "deployment"
)

// poolPercent is the part of a provider's limit that is given out: the rest is room for what was counted differently
// there.
const poolPercent = 90

// Draw names a resource.
type Draw struct {
	Scope string
	Owner string
	Kind  ledger.Kind
}

func drawOf(s ledger.Spec) Draw { return Draw{s.Scope, s.Owner, s.Kind} }

// holder is who has limits and budgets.
type holder struct {
	scope, owner string
	each         ledger.Each
	limits       *Limits
	budget       *Budget
	run          *RunBudget
	timezone     string
	weight       int64
}

// specs are the holder's resources: buckets in the order of their kinds, then the budgets.
func (r *Registry) specs(h holder) []ledger.Spec {
	var out []ledger.Spec
	add := func(s ledger.Spec) {
		s.Scope, s.Owner, s.Each, s.Weight = h.scope, h.owner, h.each, h.weight
		out = append(out, s)
	}
	if l := h.limits; l != nil {
		for _, b := range [...]struct {
			kind  ledger.Kind
			limit int64
		}{
			{ledger.Requests, l.RPM},
			{ledger.InputTokens, l.InputTPM},
			{ledger.OutputTokens, l.OutputTPM},
			{ledger.TotalTokens, l.TPM},
		} {
			if b.limit > 0 {
				add(ledger.Spec{Kind: b.kind, Limit: b.limit, Burst: b.limit})
			}
		}
	}
	if b := h.budget; b != nil {
		alerts := make([]int64, len(b.AlertAt))
		for i, a := range b.AlertAt {
			alerts[i] = int64(a)
		}
		currency, rates := r.state.foreign(b.Currency)
		add(ledger.Spec{
			Kind: ledger.Money, Limit: int64(b.Monthly), Hard: b.Hard, Timezone: h.timezone, AlertPermille: alerts,
			Currency: currency, Rates: rates,
		})
	}
	if b := h.run; b != nil {
		if b.Max > 0 {
			currency, rates := r.state.foreign("")
			add(ledger.Spec{
				Kind: ledger.Money, Limit: int64(b.Max), Hard: true, Timezone: h.timezone, KeepMS: int64(b.Lifetime),
				Currency: currency, Rates: rates,
			})
		}
		if b.MaxCalls > 0 {
			add(ledger.Spec{Kind: ledger.Calls, Limit: b.MaxCalls, Hard: true, KeepMS: int64(b.Lifetime)})
		}
	}
	return out
}

// keyHolder takes weight and time zone from the key's team.
func (r *Registry) keyHolder(k *Key) holder {
	h := holder{scope: ScopeKey, owner: k.ID, limits: k.Limits, budget: k.Budget, weight: 1}
	if t, ok := valueOf[*Team](r.state, KindTeam, k.Team); ok {
		h.timezone, h.weight = t.Timezone, t.Weight
	}
	return h
}

// teamHolders are the team's runs, its end users and the team itself.
func teamHolders(t *Team) []holder {
	return []holder{
		{scope: ScopeRun, owner: t.ID, each: ledger.EachName, run: t.RunBudget, timezone: t.Timezone, weight: t.Weight},
		{scope: ScopeEndUser, owner: t.ID, each: ledger.EachName, limits: t.EndUserLimits, weight: t.Weight},
		{scope: ScopeTeam, owner: t.ID, limits: t.Limits, budget: t.Budget, timezone: t.Timezone, weight: t.Weight},
	}
}

func unitHolder(b *BusinessUnit) holder {
	return holder{scope: ScopeBusinessUnit, owner: b.ID, limits: b.Limits, budget: b.Budget, timezone: b.Timezone, weight: 1}
}

func orgHolder(o *Org) holder {
	return holder{scope: ScopeOrg, owner: OrgID, limits: o.Limits, budget: o.Budget, timezone: o.Timezone, weight: 1}
}

// deploymentHolder has the part of the provider's limits that is given out.
func deploymentHolder(d *Deployment) holder {
	h := holder{scope: ScopeDeployment, owner: d.ID, each: ledger.EachClaimant, weight: 1}
	if l := d.Limits; l != nil {
		h.limits = &Limits{RPM: pooled(l.RPM), TPM: pooled(l.TPM), InputTPM: pooled(l.InputTPM), OutputTPM: pooled(l.OutputTPM)}
	}
	return h
}

// pooled is the part of a limit that is given out: something of everything, and nothing of nothing.
func pooled(limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return max(1, limit/100*poolPercent+limit%100*poolPercent/100)
}

// Specs lists every resource the configuration asks for, in a fixed order: those of keys, teams, business units, the
// org and deployments; each by owner and kind.
func (r *Registry) Specs() []ledger.Spec {
	var out []ledger.Spec
	for _, k := range valuesOf[*Key](r.state, KindKey) {
		out = append(out, r.specs(r.keyHolder(k))...)
	}
	for _, t := range valuesOf[*Team](r.state, KindTeam) {
		for _, h := range teamHolders(t) {
			out = append(out, r.specs(h)...)
		}
	}
	for _, b := range valuesOf[*BusinessUnit](r.state, KindBusinessUnit) {
		out = append(out, r.specs(unitHolder(b))...)
	}
	for _, o := range valuesOf[*Org](r.state, KindOrg) {
		out = append(out, r.specs(orgHolder(o))...)
	}
	for _, d := range valuesOf[*Deployment](r.state, KindDeployment) {
		out = append(out, r.specs(deploymentHolder(d))...)
	}
	return out
}

// Fairness is how pools are divided among those who want of them: the teams that do not weigh 1, by name, and the
// classes' reserved shares, by name.
func (r *Registry) Fairness() ledger.Fairness {
	var f ledger.Fairness
	for _, t := range valuesOf[*Team](r.state, KindTeam) {
		if t.Weight > 1 {
			f.Weights = append(f.Weights, ledger.TeamWeight{Team: t.ID, Weight: t.Weight})
		}
	}
	reserves := defaultReserves()
	if o, ok := valueOf[*Org](r.state, KindOrg, OrgID); ok {
		maps.Copy(reserves, o.Classes)
	}
	for _, class := range sortedKeys(reserves) {
		f.Reserves = append(f.Reserves, ledger.ClassReserve{Class: class, Permille: int64(reserves[class])})
	}
	return f
}

// DrawsOf lists the resources a request under a key draws on: its own, its run's and its end user's, its team's, the
// business unit's and the org's. Nil for an unknown key.
func (r *Registry) DrawsOf(key string) []Draw {
	k, ok := valueOf[*Key](r.state, KindKey, key)
	if !ok {
		return nil
	}
	holders := []holder{r.keyHolder(k)}
	if t, ok := valueOf[*Team](r.state, KindTeam, k.Team); ok {
		holders = append(holders, teamHolders(t)...)
		if b, ok := valueOf[*BusinessUnit](r.state, KindBusinessUnit, t.BusinessUnit); ok {
			holders = append(holders, unitHolder(b))
		}
	}
	if o, ok := valueOf[*Org](r.state, KindOrg, OrgID); ok {
		holders = append(holders, orgHolder(o))
	}
	var out []Draw
	for _, h := range holders {
		for _, s := range r.specs(h) {
			out = append(out, drawOf(s))
		}
	}
	return out
}

// PoolsOf lists the resources an attempt on a deployment draws on besides. Nil for an unknown one.
func (r *Registry) PoolsOf(deployment string) []Draw {
	d, ok := valueOf[*Deployment](r.state, KindDeployment, deployment)
	if !ok {
		return nil
	}
	var out []Draw
	for _, s := range r.specs(deploymentHolder(d)) {
		out = append(out, drawOf(s))
	}
	return out
}

// Timezones lists the time zones whose months something follows, sorted; empty is UTC.
func (r *Registry) Timezones() []string {
	var zones []string
	for _, s := range r.Specs() {
		if s.Kind == ledger.Money {
			zones = append(zones, s.Timezone)
		}
	}
	if r.Currency() != usd { // a request cap is converted at the month's rate
		for _, t := range valuesOf[*Team](r.state, KindTeam) {
			if t.RequestCap > 0 {
				zones = append(zones, t.Timezone)
			}
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
