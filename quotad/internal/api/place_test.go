package api

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// TestStoredFaultsHaveAPlace: what is wrong with an object of a file is told with its line and path, also when it shows
// against what is stored alone. What the file does not hold is named as it is stored.
func TestStoredFaultsHaveAPlace(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	for name, tc := range map[string]struct{ yaml, want string }{
		"an edited price": {
			strings.Replace(orgYAML, "output: 10", "output: 11", 1),
			"f.yaml:3: prices[p1]: differs from the stored one: price versions are never edited, add a new one\n" +
				"  - per_million_usd.mid.output: 10\n  + per_million_usd.mid.output: 11",
		},
		"a start twice": {
			"version: 1\nprices:\n  - id: p2\n    valid_from: 2026-01-01\n    per_million_usd: { mid: { input: 2 } }\n",
			`f.yaml:4: prices[p2].valid_from: is the start of price version "p1" too`,
		},
		"no price in the newest": {
			"version: 1\nprices:\n  - id: p2\n    valid_from: 2026-02-01\n    per_million_usd: { low: { input: 2 } }\n",
			`deployment d: price: the newest price version, "p2", has no price "mid": add a version that has, or say ` +
				"`unpriced: allow` to serve without counting cost",
		},
		"no rate yet": {
			"version: 1\nfx:\n  \"2199-01\": { EUR: 0.9 }\nteams:\n  red:\n    weight: 2\n    budget: { monthly: 1, currency: EUR }\n",
			"f.yaml:7: teams.red.budget.currency: there is no rate of EUR for ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := refusal(p, adminv1connect.AdminServiceClient.Apply, &adminv1.ApplyRequest{File: "f.yaml", Yaml: tc.yaml, DryRun: true})
			if e.Code() != connect.CodeInvalidArgument || !strings.HasPrefix(e.Message(), tc.want) || strings.Count(e.Message(), "\n") != strings.Count(tc.want, "\n") {
				t.Errorf("got %v\nwant %s", e, tc.want)
			}
		})
	}
}
