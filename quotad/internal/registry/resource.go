package registry

import (
	"slices"

	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// The scopes of resources, narrowest first: a request draws on all of them.
const (
	ScopeKey          = "key"
	ScopeTeam         = "team"
	ScopeBusinessUnit = "business_unit"
	ScopeOrg          = "org"
)

// Draw names a resource.
type Draw struct {
	Scope string
	Owner string
	Kind  ledger.Kind
}

// holder is who has limits and a budget.
type holder struct {
	scope, owner string
	limits       *Limits
	budget       *Budget
	timezone     string
	weight       int64
}

// specs are the holder's resources: buckets in the order of their kinds, then the budget.
func (h holder) specs() []ledger.Spec {
	var out []ledger.Spec
	if l := h.limits; l != nil {
		for _, b := range []struct {
			kind  ledger.Kind
			limit int64
		}{
			{ledger.Requests, l.RPM},
			{ledger.InputTokens, l.InputTPM},
			{ledger.OutputTokens, l.OutputTPM},
			{ledger.TotalTokens, l.TPM},
		} {
			if b.limit > 0 {
				out = append(out, ledger.Spec{
					Scope: h.scope, Owner: h.owner, Kind: b.kind,
					Limit: b.limit, Burst: b.limit, Weight: h.weight,
				})
			}
		}
	}
	if b := h.budget; b != nil {
		alerts := make([]int64, len(b.AlertAt))
		for i, a := range b.AlertAt {
			alerts[i] = int64(a)
		}
		out = append(out, ledger.Spec{
			Scope: h.scope, Owner: h.owner, Kind: ledger.Money,
			Limit: int64(b.Monthly), Hard: b.Hard, Timezone: h.timezone, AlertPermille: alerts, Weight: h.weight,
		})
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

func teamHolder(t *Team) holder {
	return holder{ScopeTeam, t.ID, t.Limits, t.Budget, t.Timezone, t.Weight}
}

func unitHolder(b *BusinessUnit) holder {
	return holder{ScopeBusinessUnit, b.ID, b.Limits, b.Budget, b.Timezone, 1}
}

func orgHolder(o *Org) holder {
	return holder{ScopeOrg, OrgID, o.Limits, o.Budget, o.Timezone, 1}
}

// Specs lists every resource the configuration asks for, in a fixed order: keys, teams, business units, org; each by
// owner and kind.
func (r *Registry) Specs() []ledger.Spec {
	var out []ledger.Spec
	for _, k := range valuesOf[*Key](r.state, KindKey) {
		out = append(out, r.keyHolder(k).specs()...)
	}
	for _, t := range valuesOf[*Team](r.state, KindTeam) {
		out = append(out, teamHolder(t).specs()...)
	}
	for _, b := range valuesOf[*BusinessUnit](r.state, KindBusinessUnit) {
		out = append(out, unitHolder(b).specs()...)
	}
	for _, o := range valuesOf[*Org](r.state, KindOrg) {
		out = append(out, orgHolder(o).specs()...)
	}
	return out
}

// DrawsOf lists the resources a request under a key draws on: its own, its team's, the business unit's and the org's.
// Nil for an unknown key.
func (r *Registry) DrawsOf(key string) []Draw {
	k, ok := valueOf[*Key](r.state, KindKey, key)
	if !ok {
		return nil
	}
	holders := []holder{r.keyHolder(k)}
	if t, ok := valueOf[*Team](r.state, KindTeam, k.Team); ok {
		holders = append(holders, teamHolder(t))
		if b, ok := valueOf[*BusinessUnit](r.state, KindBusinessUnit, t.BusinessUnit); ok {
			holders = append(holders, unitHolder(b))
		}
	}
	if o, ok := valueOf[*Org](r.state, KindOrg, OrgID); ok {
		holders = append(holders, orgHolder(o))
	}
	var out []Draw
	for _, h := range holders {
		for _, s := range h.specs() {
			out = append(out, Draw{s.Scope, s.Owner, s.Kind})
		}
	}
	return out
}

// Timezones lists the time zones whose months some budget follows, sorted; empty is UTC.
func (r *Registry) Timezones() []string {
	var zones []string
	for _, s := range r.Specs() {
		if s.Kind == ledger.Money {
			zones = append(zones, s.Timezone)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
