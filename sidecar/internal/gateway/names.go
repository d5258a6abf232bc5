package gateway

import (
	"container/list"
	"sync"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	// namesMax is how many end users, and how many runs, of one key are told apart while they are live. Those beyond
	// share one limit and one cap: whoever invents names gains nothing, and a sidecar's memory has a bound.
	namesMax = 4096
	// nameKept is how long after its last request a name is live.
	nameKept = 10 * time.Minute
)

// names are the live end users and runs of all keys. The zero value is ready.
type names struct {
	mu       sync.Mutex
	live     map[liveName]*list.Element
	count    map[liveName]int // by key and scope: the name is empty
	byUse    list.List        // of *usedName, the latest first
	overflow map[string]uint64
}

type liveName struct{ key, scope, name string }

type usedName struct {
	liveName
	at time.Time
}

// admit is the name a request goes by: its own, or the empty one when too many others of its key are live.
func (n *names) admit(now time.Time, key, scope, name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(now)
	id, group := liveName{key, scope, name}, liveName{key: key, scope: scope}
	if e := n.live[id]; e != nil {
		e.Value.(*usedName).at = now //nolint:forcetypeassert // the list holds nothing else
		n.byUse.MoveToFront(e)
		return name
	}
	if n.live == nil {
		n.live, n.count, n.overflow = map[liveName]*list.Element{}, map[liveName]int{}, map[string]uint64{}
	}
	if n.count[group] >= namesMax {
		n.overflow[scope]++
		return ""
	}
	n.count[group]++
	n.live[id] = n.byUse.PushFront(&usedName{id, now})
	return name
}

// forget drops the names that are not live any more.
func (n *names) forget(now time.Time) {
	for e := n.byUse.Back(); e != nil; e = n.byUse.Back() {
		u := e.Value.(*usedName) //nolint:forcetypeassert // the list holds nothing else
		if now.Sub(u.at) < nameKept {
			return
		}
		n.byUse.Remove(e)
		delete(n.live, u.liveName)
		group := liveName{key: u.key, scope: u.scope}
		if n.count[group]--; n.count[group] == 0 {
			delete(n.count, group)
		}
	}
}

// NameCounts says how many end users or runs there are, never which.
type NameCounts struct {
	Live     int    `json:"live"`     // with a request in the last ten minutes
	Overflow uint64 `json:"overflow"` // requests that had to share the one without a name
}

// Names counts the end users or runs of a scope.
func (g *Gateway) Names(scope string) NameCounts {
	g.names.mu.Lock()
	defer g.names.mu.Unlock()
	g.names.forget(time.Now())
	c := NameCounts{Overflow: g.names.overflow[scope]}
	for group, n := range g.names.count {
		if group.scope == scope {
			c.Live += n
		}
	}
	return c
}

// drawn is the end user or the run that a request counts for.
type drawn struct {
	is   bool
	name string // empty with is set: the one that all names share that are too many
}

// named settles which end user and which run a request counts for, where its key has limits on them.
func (g *Gateway) named(f *flow) {
	one := func(scope, name string) drawn {
		if name == "" {
			return drawn{}
		}
		for _, d := range f.who.Draws {
			if d.Scope == scope {
				return drawn{true, g.names.admit(f.began, f.who.Key, scope, name)}
			}
		}
		return drawn{}
	}
	f.user, f.run = one(exchange.ScopeEndUser, f.req.UserSHA256), one(exchange.ScopeRun, f.req.RunID)
}

// which says which one of a resource the request draws on, and whether it does at all.
func (f *flow) which(d *exchange.Resource) (name string, draws bool) {
	switch {
	case d.Each == exchange.Whole:
		return "", true
	case d.Scope == exchange.ScopeRun:
		return f.run.name, f.run.is
	}
	return f.user.name, f.user.is
}
