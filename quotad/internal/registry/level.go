package registry

// Newer names the first thing in a change that the first version of the program does not know, or makes nothing of;
// empty when there is none. What is wrong with the change is found elsewhere.
func (r *Registry) Newer(c Change) string {
	for _, o := range c.Objects {
		if len(o.Spec) == 0 {
			continue
		}
		v, err := decode(o)
		if err != nil {
			continue
		}
		if what := r.newer(o.ID, v); what != "" {
			return what
		}
	}
	return ""
}

func (r *Registry) newer(id string, v value) string {
	in := func(b *Budget) bool { return b != nil && b.Currency != "" }
	switch v := v.(type) {
	case *Currency:
		return "currency"
	case *Team:
		switch {
		case v.RunBudget != nil:
			return "run_budget of team " + id
		case v.EndUserLimits != nil:
			return "end_user_limits of team " + id
		case in(v.Budget):
			return "currency of the budget of team " + id
		}
	case *Key:
		if in(v.Budget) {
			return "currency of the budget of key " + id
		}
	case *BusinessUnit:
		if in(v.Budget) {
			return "currency of the budget of business unit " + id
		}
	case *Org:
		if in(v.Budget) {
			return "currency of the budget of the org"
		}
	case *PriceVersion:
		return v.newer()
	case *Deployment:
		// The first version keeps them, and limits nothing by them.
		before, _ := valueOf[*Deployment](r.state, KindDeployment, id)
		if v.Limits != nil && (before == nil || before.Limits == nil || *before.Limits != *v.Limits) {
			return "limits of deployment " + id
		}
	}
	return ""
}
