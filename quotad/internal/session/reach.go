package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

// reach says what each team has: its keys, and the deployments to which their requests can be sent. It is worked out once
// a version: it takes a look at every key.
type reach struct {
	version uint64
	teams   []string // that have keys, sorted
	keys    map[string][]registry.Key
	of      map[string]map[string]bool // team to deployments
}

// keysOf are the keys of some teams by id.
func (r *reach) keysOf(teams []string) (keys []registry.Key) {
	for _, t := range teams {
		keys = append(keys, r.keys[t]...)
	}
	slices.SortFunc(keys, func(a, b registry.Key) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(keys, func(a, b registry.Key) bool { return a.ID == b.ID }) // a team may be named twice
}

func (s *Server) reachOf(r *registry.Registry) *reach {
	if known := s.reach.Load(); known != nil && known.version == r.Version() {
		return known
	}
	fresh := newReach(r)
	s.reach.Store(fresh)
	return fresh
}

func newReach(r *registry.Registry) *reach {
	targets := map[string][]string{} // alias to deployments
	for _, a := range r.Aliases() {
		for _, t := range a.Targets {
			targets[a.ID] = append(targets[a.ID], t.Deployment)
		}
	}
	accounts := map[string]string{}
	for _, d := range r.Deployments() {
		accounts[d.ID] = d.Account
	}
	type route struct{ team, alias string } // the empty alias: all of them
	routes := map[route]bool{}
	keys := map[string][]registry.Key{}
	for _, k := range r.Keys() {
		keys[k.Team] = append(keys[k.Team], k)
		if len(k.Aliases) == 0 {
			routes[route{k.Team, ""}] = true
		}
		for _, a := range k.Aliases {
			routes[route{k.Team, a}] = true
		}
	}
	out := &reach{
		version: r.Version(), teams: slices.Sorted(maps.Keys(keys)), keys: keys, of: map[string]map[string]bool{},
	}
	for _, t := range r.Teams() {
		of := map[string]bool{}
		for alias, deployments := range targets {
			if !routes[route{t.ID, ""}] && !routes[route{t.ID, alias}] {
				continue
			}
			for _, d := range deployments {
				if accounts[d] == "" || accounts[d] == t.Account {
					of[d] = true
				}
			}
		}
		out.of[t.ID] = of
	}
	return out
}
