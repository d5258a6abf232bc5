package quota

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// identity is what the sidecars of a team are called.
func identity(team int) string { return fmt.Sprintf("team-%03d", team) }

// org is an organisation of so many teams with keysInTeam keys each, whose limits are never short. A request draws on six
// resources: requests and tokens a minute and a budget, of its key and of its team.
func org(teams int) string {
	const limits = "{ rpm: 1000000000, tpm: 900000000000 }"
	const budget = "{ monthly: 100000000 }"
	var t, k, s strings.Builder
	for i := range teams {
		id := identity(i)
		fmt.Fprintf(&t, "  %s: { budget: %s, limits: %s }\n", id, budget, limits)
		for j := range keysInTeam {
			key := fmt.Sprintf("%s-%d", id, j)
			fmt.Fprintf(&k, "  - { id: %s, team: %s, secret_sha256: %x, budget: %s, limits: %s }\n", key, id, sha256.Sum256([]byte(key)), budget, limits)
		}
		fmt.Fprintf(&s, "  - { identity: %s, teams: [ %s ] }\n", id, id)
	}
	return `version: 1
currency: USD
prices:
  - id: p1
    valid_from: 2020-01-01T00:00:00Z
    per_million_usd: { chat: { input: 2.00, output: 10.00 } }
credentials: { main: { provider: openai } }
deployments:
  - { id: main, provider: openai, base_url: "http://127.0.0.1:1/v1", model: m1, credential: main, price: chat }
aliases:
  chat: { targets: [ { deployment: main } ] }
teams:
` + t.String() + "keys:\n" + k.String() + "sidecars:\n" + s.String()
}
