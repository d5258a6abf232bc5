package session

import (
	"encoding/hex"
	"maps"
	"slices"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// compile makes the snapshot of one identity out of the whole configuration: the teams it may serve, their keys, the
// aliases those may use, the deployments these name, and the resources a request may draw on. Nothing else leaves.
// Credentials are named in it and sent apart. It looks at what the identity may see and at little more: thousands of
// sidecars are told anew when a node begins to lead.
func compile(m *replica.Machine, reach *reach, identity string) *quotav1.Snapshot {
	r := m.Registry
	teams, all := r.TeamsOf(identity)
	s := &quotav1.Snapshot{Version: r.Version(), ClusterId: m.ClusterID()}

	months := monthsOf(m.Ledger)
	drawn := map[uint64]bool{}
	// draw names resources, and puts them into the snapshot the first time.
	draw := func(draws []registry.Draw) (ids []uint64) {
		for _, d := range draws {
			res, ok := m.Ledger.Named(d.Scope, d.Owner, d.Kind)
			if !ok {
				continue
			}
			ids = append(ids, res.ID)
			if !drawn[res.ID] {
				drawn[res.ID] = true
				s.Resources = append(s.Resources, compileResource(res, months))
			}
		}
		return ids
	}
	aliases := map[string]bool{}
	anyAlias := false
	if all {
		teams = reach.teams
	}
	for _, k := range reach.keysOf(teams) {
		p := compileKey(r, k, months)
		if p == nil {
			continue
		}
		p.Draws = draw(r.DrawsOf(k.ID))
		s.Keys = append(s.Keys, p)
		anyAlias = anyAlias || len(k.Aliases) == 0
		for _, a := range k.Aliases {
			aliases[a] = true
		}
	}
	compileRoutes(s, r, func(alias string) bool { return anyAlias || aliases[alias] })
	for _, d := range s.GetDeployments() {
		d.Pools = draw(r.PoolsOf(d.GetId()))
	}
	for _, v := range r.Prices() {
		s.Prices = append(s.Prices, compilePrices(v))
	}
	return s
}

// compileKey is nil for a key that no secret has been made for: nobody can use it yet.
func compileKey(r *registry.Registry, k registry.Key, months months) *quotav1.Key {
	sum, err := hex.DecodeString(k.SecretSHA256)
	if err != nil || len(sum) == 0 {
		return nil
	}
	team, _ := r.Team(k.Team)
	return &quotav1.Key{
		Id: k.ID, SecretSha256: sum, Team: k.Team, App: k.App, Aliases: k.Aliases, ExpiresMs: int64(k.Expires),
		Revoked: k.Revoked, MaxDataClass: k.MaxDataClass, DefaultDataClass: k.DefaultDataClass,
		Account: team.Account, RequestCapNano: int64(r.RequestCap(team, months[team.Timezone])), Priority: team.Priority,
		PaysFailedAttempts: team.FailedAttempts == "team",
		Outage: map[string]quotav1.Outage{
			"share": quotav1.Outage_OUTAGE_SHARE, "open": quotav1.Outage_OUTAGE_OPEN, "closed": quotav1.Outage_OUTAGE_CLOSED,
		}[k.Outage],
	}
}

// months are the open months of time zones, yyyymm.
type months map[string]uint32

func monthsOf(l *ledger.Ledger) months {
	out := months{}
	for _, p := range l.Periods() {
		out[p.Timezone] = p.Period
	}
	return out
}

// compileResource tells of money in dollars, whatever currency its limit is written in.
func compileResource(res ledger.Resource, months months) *quotav1.Resource {
	p := &quotav1.Resource{
		Id: res.ID, Scope: res.Spec.Scope, Owner: res.Spec.Owner, Kind: quotav1.Kind(res.Spec.Kind),
		Limit: res.Spec.CapIn(months[res.Spec.Timezone]), Burst: res.Spec.Burst, Hard: res.Spec.Hard,
		Each: quotav1.Each(res.Spec.Each),
	}
	if open, ok := res.Open(); ok {
		p.Period, p.PeriodEndsMs, p.Limit = open.Period, open.EndsMS, open.Cap
	}
	return p
}

// compileRoutes adds the aliases that are used and the deployments they name.
func compileRoutes(s *quotav1.Snapshot, r *registry.Registry, used func(alias string) bool) {
	needed := map[string]bool{}
	for _, a := range r.Aliases() {
		if !used(a.ID) {
			continue
		}
		p := &quotav1.Alias{
			Name: a.ID, MaxAttempts: int32(a.MaxAttempts), DefaultMaxOutput: a.DefaultMaxOutput,
			ReserveCap: a.Reserve == "cap", Needs: a.Needs, AllowDropped: a.AllowDropped,
			Timeouts: &quotav1.Timeouts{
				ConnectMs: int64(a.Timeouts.Connect), FirstTokenMs: int64(a.Timeouts.FirstToken),
				IdleMs: int64(a.Timeouts.Idle), TotalMs: int64(a.Timeouts.Total),
			},
		}
		for _, t := range a.Targets {
			needed[t.Deployment] = true
			p.Targets = append(p.Targets, &quotav1.Target{
				Deployment: t.Deployment, Priority: int32(t.Priority), Weight: int32(t.Weight),
			})
		}
		s.Aliases = append(s.Aliases, p)
	}
	for _, d := range r.Deployments() {
		if !needed[d.ID] {
			continue
		}
		s.Deployments = append(s.Deployments, &quotav1.Deployment{
			Id: d.ID, Provider: d.Provider, BaseUrl: d.BaseURL, Model: d.Model, Credential: d.Credential,
			Vendor: d.Vendor, Project: d.Project, ApiVersion: d.APIVersion, BaseModel: d.BaseModel,
			Region: d.Region, Account: d.Account, ContextTokens: d.ContextTokens, Capabilities: d.Capabilities,
			DataClasses: d.DataClasses, Price: d.Price, UnpricedAllow: d.Unpriced == "allow",
		})
	}
}

func compilePrices(v registry.PriceVersion) *quotav1.PriceVersion {
	p := &quotav1.PriceVersion{Id: v.ID, ValidFromMs: int64(v.ValidFrom)}
	for _, name := range slices.Sorted(maps.Keys(v.PerMillionUSD)) {
		p.Prices = append(p.Prices, compilePrice(name, v.PerMillionUSD[name]))
	}
	return p
}

func compilePrice(name string, x registry.Price) *quotav1.Price {
	p := compileRates(x.Rates)
	p.Name = name
	if x.PerCallUSD != nil {
		p.WebSearch = int64(x.PerCallUSD.WebSearch)
	}
	for _, s := range x.Above {
		p.Above = append(p.Above, &quotav1.PriceStep{Tokens: s.Tokens, Price: compileRates(s.Rates)})
	}
	p.ServiceTiers = compileTimes(x.ServiceTiers)
	p.Speeds, p.InferenceGeos = compileTimes(x.Speeds), compileTimes(x.InferenceGeo)
	return p
}

func compileTimes(times map[string]registry.Nano) (out []*quotav1.ServiceTier) {
	for _, name := range slices.Sorted(maps.Keys(times)) {
		out = append(out, &quotav1.ServiceTier{Name: name, TimesNano: int64(times[name])})
	}
	return out
}

func compileRates(r registry.Rates) *quotav1.Price {
	return &quotav1.Price{
		Input: int64(r.Input), CacheRead: int64(r.CacheRead), CacheWrite_5M: int64(r.CacheWrite5m),
		CacheWrite_1H: int64(r.CacheWrite1h), Output: int64(r.Output), InputAudio: (*int64)(r.AudioInput),
		OutputAudio: (*int64)(r.AudioOutput), InputImage: (*int64)(r.ImageInput),
		OutputImage: (*int64)(r.ImageOutput),
	}
}
