// Package policy holds the rules in force: one immutable snapshot behind one atomic pointer, and the last good one
// on disk for a start without quotad.
package policy

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Rules is a compiled snapshot. It is never changed after Compile.
type Rules struct {
	Version   uint64
	ClusterID string
	keys      map[[sha256.Size]byte]*exchange.Principal
	aliases   map[string]*exchange.Alias
	prices    []priceVersion // newest first
	resources map[uint64]*exchange.Resource
}

type priceVersion struct {
	id     string
	from   time.Time
	byName map[string]exchange.Price
}

// Compile turns a snapshot into rules. It fails, naming what is wrong, on a reference that leads nowhere: quotad
// never sends one, so the snapshot is damaged or from a version this sidecar does not understand.
func Compile(s *quotav1.Snapshot) (*Rules, error) {
	r := &Rules{
		Version:   s.GetVersion(),
		ClusterID: s.GetClusterId(),
		keys:      make(map[[sha256.Size]byte]*exchange.Principal, len(s.GetKeys())),
		aliases:   make(map[string]*exchange.Alias, len(s.GetAliases())),
		resources: make(map[uint64]*exchange.Resource, len(s.GetResources())),
	}
	for _, p := range s.GetResources() {
		res := &exchange.Resource{
			ID: p.GetId(), Scope: p.GetScope(), Owner: p.GetOwner(), Kind: exchange.Kind(p.GetKind()),
			Each: exchange.Each(p.GetEach()), Limit: p.GetLimit(), Burst: p.GetBurst(), Hard: p.GetHard(),
		}
		if p.GetPeriodEndsMs() > 0 {
			res.PeriodEndsAt = time.UnixMilli(p.GetPeriodEndsMs()).UTC()
		}
		r.resources[res.ID] = res
	}
	deployments := make(map[string]*exchange.Deployment, len(s.GetDeployments()))
	for _, p := range s.GetDeployments() {
		d := &exchange.Deployment{
			ID: p.GetId(), Provider: p.GetProvider(), BaseURL: p.GetBaseUrl(), Model: p.GetModel(),
			Vendor: p.GetVendor(), Project: p.GetProject(), APIVersion: p.GetApiVersion(),
			BaseModel:  p.GetBaseModel(),
			Credential: p.GetCredential(), Region: p.GetRegion(), Account: p.GetAccount(),
			ContextTokens: p.GetContextTokens(), Capabilities: p.GetCapabilities(),
			DataClasses: p.GetDataClasses(), PriceName: p.GetPrice(), Unpriced: p.GetUnpricedAllow(),
		}
		for _, id := range p.GetPools() {
			pool := r.resources[id]
			if pool == nil || pool.Each != exchange.EachClaimant {
				return nil, fmt.Errorf("deployment %q: resource %d is no pool", d.ID, id)
			}
			d.Pools = append(d.Pools, pool)
		}
		deployments[d.ID] = d
	}
	for _, p := range s.GetAliases() {
		a, err := compileAlias(p, deployments)
		if err != nil {
			return nil, err
		}
		r.aliases[a.Name] = a
	}
	for _, p := range s.GetKeys() {
		if err := r.addKey(p); err != nil {
			return nil, err
		}
	}
	for _, p := range s.GetPrices() {
		r.prices = append(r.prices, compilePrices(p))
	}
	slices.SortStableFunc(r.prices, func(a, b priceVersion) int { return b.from.Compare(a.from) })
	return r, nil
}

func compileAlias(p *quotav1.Alias, deployments map[string]*exchange.Deployment) (*exchange.Alias, error) {
	a := &exchange.Alias{
		Name:             p.GetName(),
		MaxAttempts:      max(1, int(p.GetMaxAttempts())),
		DefaultMaxOutput: p.GetDefaultMaxOutput(),
		ReserveCap:       p.GetReserveCap(),
		Needs:            p.GetNeeds(),
		AllowDropped:     p.GetAllowDropped(),
		Timeouts: exchange.Timeouts{
			Connect:    time.Duration(p.GetTimeouts().GetConnectMs()) * time.Millisecond,
			FirstToken: time.Duration(p.GetTimeouts().GetFirstTokenMs()) * time.Millisecond,
			Idle:       time.Duration(p.GetTimeouts().GetIdleMs()) * time.Millisecond,
			Total:      time.Duration(p.GetTimeouts().GetTotalMs()) * time.Millisecond,
		},
	}
	if a.Timeouts.Connect <= 0 || a.Timeouts.FirstToken <= 0 || a.Timeouts.Idle <= 0 || a.Timeouts.Total <= 0 {
		return nil, fmt.Errorf("alias %q: a timeout is missing", a.Name)
	}
	for _, t := range p.GetTargets() {
		d := deployments[t.GetDeployment()]
		if d == nil {
			return nil, fmt.Errorf("alias %q: unknown deployment %q", a.Name, t.GetDeployment())
		}
		a.Targets = append(a.Targets, exchange.Target{
			Deployment: d, Priority: int(t.GetPriority()), Weight: int(t.GetWeight()),
		})
	}
	slices.SortStableFunc(a.Targets, func(x, y exchange.Target) int { return cmp.Compare(x.Priority, y.Priority) })
	return a, nil
}

func (r *Rules) addKey(p *quotav1.Key) error {
	if len(p.GetSecretSha256()) != sha256.Size {
		return fmt.Errorf("key %q: secret hash of %d bytes", p.GetId(), len(p.GetSecretSha256()))
	}
	k := &exchange.Principal{
		Key: p.GetId(), Team: p.GetTeam(), App: p.GetApp(), Revoked: p.GetRevoked(),
		Outage: exchange.Outage(p.GetOutage()), Account: p.GetAccount(), Priority: cmp.Or(p.GetPriority(), "standard"),
		MaxDataClass: p.GetMaxDataClass(), DefaultDataClass: p.GetDefaultDataClass(),
		RequestCap: exchange.NanoUSD(p.GetRequestCapNano()), PaysFailed: p.GetPaysFailedAttempts(),
	}
	if !slices.Contains(exchange.Priorities[:], k.Priority) {
		return fmt.Errorf("key %q: unknown priority %q", k.Key, k.Priority)
	}
	if len(p.GetAliases()) > 0 {
		k.Aliases = make(map[string]bool, len(p.GetAliases()))
		for _, a := range p.GetAliases() {
			k.Aliases[a] = true
		}
	}
	for _, id := range p.GetDraws() {
		res := r.resources[id]
		switch {
		case res == nil:
			return fmt.Errorf("key %q: unknown resource %d", k.Key, id)
		case res.Each == exchange.EachClaimant,
			res.Each == exchange.EachName && res.Scope != exchange.ScopeEndUser && res.Scope != exchange.ScopeRun:
			return fmt.Errorf("key %q: resource %d is one for each name of a scope that requests do not state", k.Key, id)
		}
		k.Draws = append(k.Draws, res)
	}
	if p.GetExpiresMs() > 0 {
		k.ExpiresAt = time.UnixMilli(p.GetExpiresMs())
	}
	r.keys[[sha256.Size]byte(p.GetSecretSha256())] = k
	return nil
}

func compilePrices(p *quotav1.PriceVersion) priceVersion {
	v := priceVersion{
		id:     p.GetId(),
		from:   time.UnixMilli(p.GetValidFromMs()),
		byName: make(map[string]exchange.Price, len(p.GetPrices())),
	}
	for _, e := range p.GetPrices() {
		v.byName[e.GetName()] = compilePrice(e)
	}
	return v
}

func compilePrice(p *quotav1.Price) exchange.Price {
	out := exchange.Price{Rates: compileRates(p), WebSearch: exchange.NanoUSD(p.GetWebSearch())}
	for _, s := range p.GetAbove() {
		out.Above = append(out.Above, exchange.Step{Tokens: s.GetTokens(), Rates: compileRates(s.GetPrice())})
	}
	slices.SortStableFunc(out.Above, func(a, b exchange.Step) int { return cmp.Compare(a.Tokens, b.Tokens) })
	out.Tiers, out.Speeds, out.Geos = compileTimes(p.GetServiceTiers()), compileTimes(p.GetSpeeds()), compileTimes(p.GetInferenceGeos())
	return out
}

func compileTimes(list []*quotav1.ServiceTier) (out []exchange.Times) {
	for _, t := range list {
		out = append(out, exchange.Times{Name: t.GetName(), Times: t.GetTimesNano()})
	}
	return out
}

// compileRates: what is not priced apart costs what it is a kind of, as it did before there was a price for it.
func compileRates(p *quotav1.Price) exchange.Rates {
	or := func(apart *int64, otherwise int64) exchange.NanoUSD {
		if apart != nil {
			return exchange.NanoUSD(*apart)
		}
		return exchange.NanoUSD(otherwise)
	}
	return exchange.Rates{
		Input:        exchange.NanoUSD(p.GetInput()),
		CacheRead:    exchange.NanoUSD(p.GetCacheRead()),
		CacheWrite5m: exchange.NanoUSD(p.GetCacheWrite_5M()),
		CacheWrite1h: exchange.NanoUSD(p.GetCacheWrite_1H()),
		Output:       exchange.NanoUSD(p.GetOutput()),
		InputAudio:   or(p.InputAudio, p.GetInput()),
		OutputAudio:  or(p.OutputAudio, p.GetOutput()),
		InputImage:   or(p.InputImage, p.GetInput()),
		OutputImage:  or(p.OutputImage, p.GetOutput()),
	}
}

// Principal finds the key with this SHA-256 of its secret, nil when there is none. Revoked and expired keys are
// found: the refusal says so.
func (r *Rules) Principal(sum [sha256.Size]byte) *exchange.Principal { return r.keys[sum] }

// Alias finds an alias, nil when there is none.
func (r *Rules) Alias(name string) *exchange.Alias { return r.aliases[name] }

// AliasesOf lists the aliases a key may use, by name.
func (r *Rules) AliasesOf(p *exchange.Principal) []*exchange.Alias {
	var out []*exchange.Alias
	for name, a := range r.aliases {
		if p.Aliases == nil || p.Aliases[name] {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(x, y *exchange.Alias) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// Price finds the price of a deployment in the version in force at now. ok is false when there is none: only an
// Unpriced deployment may then be used.
func (r *Rules) Price(now time.Time, d *exchange.Deployment) (p exchange.Price, version string, ok bool) {
	for _, v := range r.prices {
		if v.from.After(now) {
			continue
		}
		p, ok = v.byName[d.PriceName]
		return p, v.id, ok
	}
	return exchange.Price{}, "", false
}

// Keys counts the keys, for /status.
func (r *Rules) Keys() int { return len(r.keys) }

// Resource finds a resource, nil when there is none.
func (r *Rules) Resource(id uint64) *exchange.Resource { return r.resources[id] }

// Deployment finds a deployment of some alias by its id, nil when there is none. It is slow: for /status. Before the first
// snapshot there is none.
func (r *Rules) Deployment(id string) *exchange.Deployment {
	if r == nil {
		return nil
	}
	for _, a := range r.aliases {
		for _, t := range a.Targets {
			if t.Deployment.ID == id {
				return t.Deployment
			}
		}
	}
	return nil
}

// Key finds a key by its id, nil when there is none. It is slow: for what happens once.
func (r *Rules) Key(id string) *exchange.Principal {
	for _, p := range r.keys {
		if p.Key == id {
			return p
		}
	}
	return nil
}
