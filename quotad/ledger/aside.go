package ledger

import "slices"

// A pool's claimants draw on one level. While their wishes fit it, who comes gets. Else the pool is contested: what
// refills is divided among them when it arrives, by class and team, whether or not they ask just then, and each draws on
// what is set aside for it.
//
// What is set aside is an account, not a heap of units: a request that is larger than its claimant's account goes through
// as soon as the account is above 0 and the level has enough for it and for all larger accounts. What it drew ahead is
// repaid out of the claimant's later parts. Or else many small parts would fill the bucket, none of them large enough for
// a request. Nothing here can let through more than the bucket: whatever is drawn, the level must have it.

// contested says that parts of the pool are set aside.
func (r *resource) contested() bool { return r.accounts > 0 }

// credit changes what is set aside for a claimant.
func (r *resource) credit(amount int64) {
	pool := r.of
	if r.aside != 0 {
		pool.accounts--
	}
	r.aside += amount
	if r.aside != 0 {
		pool.accounts++
	}
	pool.asides += amount
}

// mayDraw says that it is the turn of a claimant of a contested pool to draw an amount that the level has.
func (r *resource) mayDraw(amount int64) bool {
	if r.aside >= amount || r.aside <= 0 {
		return r.aside > 0
	}
	left := r.of.level - amount
	for _, other := range r.of.kids {
		if other.aside > r.aside {
			left -= other.aside
		}
	}
	return left >= 0
}

// turnMS says in how many milliseconds it may be the turn of a claimant of a contested pool to draw an amount: when its
// account is above 0 again, or else soon, since what is ahead of it may be drawn at any time.
func (r *resource) turnMS(amount, rate int64) int64 {
	switch {
	case r.aside >= amount:
		return 1
	case r.aside > 0:
		return divideEveryMS
	}
	return max(divideEveryMS, mulDiv(-r.aside, max(r.of.pools[0].claimants, 1), rate))
}

// rank finds a claimant's class and weight by its name, "class/team". What is not named so has the last class.
func (r *resource) rank(f *fairness) {
	name, team := r.name, ""
	if i := slices.Index([]byte(name), '/'); i >= 0 {
		name, team = name[:i], name[i+1:]
	}
	r.class, _ = classOf(name)
	r.weight = f.weight(team)
}

// wish is what a claimant lacks, units × perUnit.
func (r *resource) wish() int64 { return min(r.pools[0].wants, 2*bucketMax) * perUnit }

// setAside divides what has refilled since the last time. The pool must be refilled.
func (l *Ledger) setAside(r *resource) {
	enough := r.level >= 0 && r.wish() <= r.level
	if enough && !r.contested() || l.now-r.used < divideEveryMS {
		return
	}
	r.used = l.now
	l.touchResource(r)
	if enough {
		for _, kid := range r.kids {
			if kid.aside != 0 {
				kid.credit(-kid.aside)
				l.touchResource(kid)
			}
		}
		return
	}
	var claims [classes][]claim
	var wishes [classes]int64
	for k := range claims {
		claims[k] = l.parties[k][:0]
	}
	for i, kid := range r.kids {
		wish := kid.wish()
		if kid.aside > wish { // it goes back to all
			kid.credit(wish - kid.aside)
			l.touchResource(kid)
		}
		if lack := wish - kid.aside; lack > 0 {
			claims[kid.class] = append(claims[kid.class], claim{id: uint64(i), want: lack, weight: kid.weight})
			wishes[kid.class] = addSat(wishes[kid.class], lack)
		}
	}
	l.parties = claims
	free := r.level - r.asides
	if free <= 0 {
		l.cutAsides(r, -free)
		return
	}
	parts := l.fair.parts(free, wishes)
	for k := range claims {
		spread(parts[k], claims[k], func(id uint64, part int64) {
			if part > 0 {
				r.kids[id].credit(part)
				l.touchResource(r.kids[id])
			}
		})
	}
}

// cutAsides takes what the level lost otherwise out of what is set aside, from each in proportion.
func (l *Ledger) cutAsides(r *resource, lost int64) {
	all := int64(0)
	for _, kid := range r.kids {
		all = addSat(all, max(kid.aside, 0))
	}
	lost = min(lost, all)
	if lost == 0 {
		return
	}
	for _, kid := range r.kids {
		if kid.aside > 0 {
			kid.credit(-mulDiv(kid.aside, lost, all))
			l.touchResource(kid)
		}
	}
}

// parts divides free among the classes: to each its reserve, the rest to interactive and standard by reserve, and what
// they do not want to batch. So batch keeps its floor and shrinks to it first.
func (f *fairness) parts(free int64, wishes [classes]int64) (parts [classes]int64) {
	left := free
	for k := range parts {
		parts[k] = min(wishes[k], mulDiv(free, f.reserves[k], 1000))
		left -= parts[k]
	}
	spread(left, []claim{
		{id: uint64(interactive), want: wishes[interactive] - parts[interactive], weight: max(1, f.reserves[interactive])},
		{id: uint64(standard), want: wishes[standard] - parts[standard], weight: max(1, f.reserves[standard])},
	}, func(k uint64, part int64) {
		parts[k] += part
		left -= part
	})
	parts[batch] += min(left, wishes[batch]-parts[batch])
	return parts
}

// correct takes the provider's word that v units are left of its limit, a tenth of which is not ours. What lies idle on
// leases counts as used. It only ever lowers the level: what the provider has seen was drawn here too, or by others.
func (l *Ledger) correct(r *resource, v int64) {
	l.refill(r)
	p := r.pools[0]
	left := min(v, 2*bucketMax) - min(p.idle, 2*bucketMax) - r.spec.Limit/providerReserve
	if level := left * perUnit; level < r.level {
		r.charge60k(r.level - level)
		l.touchResource(r)
	}
}
