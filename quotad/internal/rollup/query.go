package rollup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrQuery is returned for a query that cannot be answered; the message says why.
var ErrQuery = errors.New("usage query")

// Query selects and groups rows.
type Query struct {
	Team    string // empty: all
	FromMS  int64  // inclusive; rounded down to the hour, or to the day where hours are not kept any more
	ToMS    int64  // exclusive; rounded up likewise
	GroupBy []string
}

// The names to group by.
const (
	ByTeam         = "team"
	ByAlias        = "alias"
	ByFeature      = "feature"
	ByKey          = "key"
	ByDeployment   = "deployment"
	ByDay          = "day"  // UTC
	ByHour         = "hour" // an old day is one group, under its first hour
	ByPriceVersion = "price_version"
)

func groupNames() []string {
	return []string{ByTeam, ByAlias, ByFeature, ByKey, ByDeployment, ByDay, ByHour, ByPriceVersion}
}

// Query sums rows. The answer has one row a group, sorted; names that were not grouped by are empty. Hour and day
// together group by hour. No row matches: no rows. The error is ErrQuery. It takes time with the rows of the hours
// asked for.
func (r *Rollup) Query(q Query) ([]Row, error) {
	by, err := parseGroupBy(q.GroupBy)
	if err != nil {
		return nil, err
	}
	if q.FromMS >= q.ToMS {
		return nil, fmt.Errorf("%w: from must be before to", ErrQuery)
	}
	groups := map[Names]*Sums{}
	for at, h := range r.hours {
		// What overlaps the range counts, which is the same as rounding the range outwards.
		if r.endOf(at) <= q.FromMS || at >= q.ToMS {
			continue
		}
		for n, sums := range h.rows {
			if q.Team != "" && n.Team != q.Team {
				continue
			}
			group := by.of(n)
			to := groups[group]
			if to == nil {
				if len(groups) == groupsMax {
					return nil, fmt.Errorf("%w: more than %d groups: ask for less time or fewer names",
						ErrQuery, groupsMax)
				}
				to = &Sums{}
				groups[group] = to
			}
			to.add(*sums)
		}
	}
	out := make([]Row, 0, len(groups))
	for n, s := range groups {
		out = append(out, Row{n, *s})
	}
	slices.SortFunc(out, func(a, b Row) int { return compareNames(a.Names, b.Names) })
	return out, nil
}

// Knows reports whether there is usage of a team, at any time. It may take time with all rows.
func (r *Rollup) Knows(team string) bool {
	for _, h := range r.hours {
		for n := range h.rows {
			if n.Team == team {
				return true
			}
		}
	}
	return false
}

// grouping is a set of names to group by.
type grouping map[string]bool

func parseGroupBy(names []string) (grouping, error) {
	by := grouping{}
	for _, name := range names {
		if !slices.Contains(groupNames(), name) {
			return nil, fmt.Errorf("%w: cannot group by %.64q (allowed: %s)",
				ErrQuery, name, strings.Join(groupNames(), ", "))
		}
		if by[name] {
			return nil, fmt.Errorf("%w: cannot group by %s twice", ErrQuery, name)
		}
		by[name] = true
	}
	return by, nil
}

// of blanks the names that are not grouped by.
func (by grouping) of(n Names) Names {
	var g Names
	switch {
	case by[ByHour]:
		g.HourMS = n.HourMS
	case by[ByDay]:
		g.HourMS = n.HourMS - n.HourMS%dayMS
	}
	if by[ByTeam] {
		g.Team = n.Team
	}
	if by[ByKey] {
		g.Key = n.Key
	}
	if by[ByAlias] {
		g.Alias = n.Alias
	}
	if by[ByDeployment] {
		g.Deployment = n.Deployment
	}
	if by[ByFeature] {
		g.Feature = n.Feature
	}
	if by[ByPriceVersion] {
		g.PriceVersion = n.PriceVersion
	}
	return g
}

// Value is what the row has for a name to group by, as text: hours in RFC 3339, days as yyyy-mm-dd, empty for an
// unknown name.
func (n Names) Value(name string) string {
	switch name {
	case ByTeam:
		return n.Team
	case ByAlias:
		return n.Alias
	case ByFeature:
		return n.Feature
	case ByKey:
		return n.Key
	case ByDeployment:
		return n.Deployment
	case ByPriceVersion:
		return n.PriceVersion
	case ByHour:
		return time.UnixMilli(n.HourMS).UTC().Format(time.RFC3339)
	case ByDay:
		return time.UnixMilli(n.HourMS).UTC().Format(time.DateOnly)
	}
	return ""
}
