package registry

import "testing"

func TestNewer(t *testing.T) {
	limits := func(rpm int64) *Limits { return &Limits{RPM: rpm} }
	deployment := func(l *Limits) Object {
		return object("d", &Deployment{Provider: "openai", BaseURL: "http://h", Model: "m", Unpriced: "allow", Limits: l})
	}
	r := New()
	if res := r.Apply(1, Change{Objects: []Object{deployment(limits(5))}}); res.Refusal != nil {
		t.Fatal(res.Refusal)
	}
	budget := &Budget{Monthly: 1, Currency: "INR"}
	for _, tt := range []struct {
		name   string
		object Object
		want   string
	}{
		{"a team", Team{ID: "t", Weight: 2, Limits: limits(1), Budget: &Budget{Monthly: 1}}.Object(), ""},
		{"a run budget", Team{ID: "t", RunBudget: &RunBudget{MaxCalls: 1}}.Object(), "run_budget of team t"},
		{"end users", Team{ID: "t", EndUserLimits: limits(1)}.Object(), "end_user_limits of team t"},
		{"a team's currency", Team{ID: "t", Budget: budget}.Object(), "currency of the budget of team t"},
		{"a key's currency", Key{ID: "k", Budget: budget}.Object(), "currency of the budget of key k"},
		{"a unit's currency", object("u", &BusinessUnit{Budget: budget}), "currency of the budget of business unit u"},
		{"the org's budget", object(OrgID, &Org{Budget: budget}), "currency of the budget of the org"},
		{"the org's currency", Object{Kind: KindCurrency, ID: OrgID, Spec: []byte(`{"code":"INR"}`)}, "currency"},
		{"a price of before", obj(t, KindPrice, "p", `{"valid_from":"2026-01-01","per_million_usd":{"m":{"input":1}}}`), ""},
		{"a price of audio", obj(t, KindPrice, "p", `{"valid_from":"2026-01-01","per_million_usd":{"m":{"input":1,"audio_input":1}}}`),
			"audio_input of price m"},
		{"tiers", obj(t, KindPrice, "p", `{"valid_from":"2026-01-01","per_million_usd":{"a":{"input":1},"m":{"input":1,"service_tiers":{"flex":0.5}}}}`),
			"service_tiers of price m"},
		{"speeds", obj(t, KindPrice, "p", `{"valid_from":"2026-01-01","per_million_usd":{"m":{"input":1,"speeds":{"fast":6}}}}`), "speeds of price m"},
		{"geographies", obj(t, KindPrice, "p", `{"valid_from":"2026-01-01","per_million_usd":{"m":{"input":1,"inference_geo":{"us":1.1}}}}`),
			"inference_geo of price m"},
		{"limits as they were", deployment(limits(5)), ""},
		{"other limits", deployment(limits(6)), "limits of deployment d"},
		{"no limits", deployment(nil), ""},
		{"deleted", Object{Kind: KindDeployment, ID: "d"}, ""},
		{"nonsense", Object{Kind: KindTeam, ID: "t", Spec: []byte("[")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := r.Newer(Change{Objects: []Object{{Kind: KindTeam, ID: "other"}, tt.object}}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
