package system

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

const darkIP = "127.0.9.9" // never answers

// deadlineOrg has deployments that fail in their ways, and aliases that try them in order.
func deadlineOrg() string {
	const timeouts = "timeouts: { connect: 2s, first_token: 10s, idle: 20s, total: 2m }"
	return strings.NewReplacer(
		"deployments:\n", `deployments:
  - { id: dark, provider: openai, base_url: "http://`+darkIP+`:80/v1", model: m1, credential: main, price: chat }
  - { id: mute, provider: openai, base_url: "`+provider+`", model: mute, credential: main, price: chat }
`,
		"aliases:\n", `aliases:
  failover:
    `+timeouts+`
    targets:
      - { deployment: dark, priority: 0 }
      - { deployment: mute, priority: 1 }
      - { deployment: main, priority: 2 }
  once:
    `+timeouts+`
    max_attempts: 1
    targets: [ { deployment: main } ]
`).Replace(org(provider, "{ monthly: 100 }", "{ rpm: 6000 }"))
}

// TestDeadlines: every deadline of an attempt strikes at its time, and the next deployment in order takes over while
// nothing has reached the caller.
func TestDeadlines(t *testing.T) {
	for _, tt := range []struct {
		name, alias, directive string
		stream                 bool
		after                  time.Duration
		status                 int
		deployment, attempts   string
		says                   string
	}{
		{"connect, first token, answer", "failover", "tokens=3", true, 12 * time.Second, 200, "main", "3", "[DONE]"},
		{"first token", "once", "tokens=3 first=1m", true, 10 * time.Second, 504, "main", "1", "first-token deadline"},
		{"first token in time", "once", "tokens=3 first=9990ms", true, 9990 * time.Millisecond, 200, "main", "1", "[DONE]"},
		{"idle", "once", "tokens=5 gap=1s fault=hang after=3", true, 22 * time.Second, 200, "main", "1", "idle deadline"},
		{"not idle", "once", "tokens=5 gap=19s", true, 76 * time.Second, 200, "main", "1", "[DONE]"},
		{"total, in mid-stream", "once", "tokens=200 gap=1s", true, 2 * time.Minute, 200, "main", "1", "total deadline"},
		{"total, no stream", "once", "tokens=3 first=1h", false, 2 * time.Minute, 504, "main", "1", "total deadline"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, 1, deadlineOrg(), func(t *testing.T, w *world) {
				w.net.Cut(w.cars[0].ip, darkIP)
				if err := w.fake.Apply(fakeprovider.Control{ModelSettings: &map[string]fakeprovider.Settings{"mute": {"fault": "hang"}}}); err != nil {
					t.Fatal(err)
				}
				more := ""
				if tt.stream {
					more = `,"stream":true`
				}
				body := strings.Replace(say(tt.directive, more), `"chat"`, `"`+tt.alias+`"`, 1)
				began := time.Now()
				a := w.chat(w.cars[0], body)
				took := time.Since(began)
				if a.status != tt.status || !strings.Contains(a.body, tt.says) || a.header.Get("x-gw-deployment") != tt.deployment ||
					a.header.Get("x-gw-attempts") != tt.attempts {
					t.Errorf("%d %s %v %v", a.status, a.body, a.header, a.err)
				}
				// Each segment is a millisecond on its way, and each attempt a few of them.
				if took < tt.after || took > tt.after+100*time.Millisecond {
					t.Errorf("after %v, want %v", took, tt.after)
				}
				w.eventually("the provider is left", func() bool { return w.fake.Witness(0).Open == 0 })
				w.eventually("nothing is held", func() bool { return w.budgets()[0].HeldNano == 0 })
				w.eventually("usage is what was settled", func() bool { return w.usage().cost == w.budgets()[0].SettledNano })
			})
		})
	}
}
