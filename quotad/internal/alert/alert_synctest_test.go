package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

const (
	reached = "budget reached a threshold"
	failed  = "alert was not told, and will be tried again"
)

// TestToldOnce: a webhook that takes an alert is called once for each threshold, with all that the message promises.
func TestToldOnce(t *testing.T) {
	inCluster(t, 1, []string{"red", "blue"}, func(c *cluster) {
		m := c.members[0]
		c.spend(499, "red", "blue")
		<-time.After(time.Hour)
		if got := m.hooks.called(""); len(got) != 0 || m.said(reached) != 0 {
			c.t.Fatalf("nothing was reached, called %v", got)
		}
		c.spend(101, "red")
		<-time.After(time.Hour)
		calls := m.hooks.called("")
		if len(calls) != 1 || calls[0].host != "red.example" {
			c.t.Fatalf("called %v", calls)
		}
		var got map[string]any
		must(c.t, json.Unmarshal([]byte(calls[0].body), &got))
		id, _ := got["id"].(string)
		want := map[string]any{
			"id": id, "kind": "budget_threshold", "scope": "team", "owner": "red", "team": "red", "period": "2000-01",
			"threshold_permille": 500.0, "spent_nano": "600000000000", "cap_nano": "1000000000000", "hard": true,
			"text": "Budget of team red for 2000-01: 50% reached, $600.00 of $1000.00 spent.",
		}
		if !reflect.DeepEqual(got, want) || id == "" {
			c.t.Errorf("got %v, want %v", got, want)
		}
		for name, want := range map[string]string{"Content-Type": "application/json", "User-Agent": "sluice-quotad", "Idempotency-Key": id} {
			if got := calls[0].header.Get(name); got != want {
				c.t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		c.spend(501, "blue") // half and all at once
		<-time.After(time.Hour)
		if calls := m.hooks.called("blue.example"); len(calls) != 2 ||
			calls[0].header.Get("Idempotency-Key") == calls[1].header.Get("Idempotency-Key") {
			c.t.Errorf("called %v", calls)
		}
		if m.said(reached) != 3 || m.said(failed) != 0 || len(c.untold(m)) != 0 || m.teller.Pending() != 0 {
			c.t.Errorf("log %v, untold %v, pending %d", m.logs.All(), c.untold(m), m.teller.Pending())
		}
		c.discreet(m)
	})
}

// TestRetry: a webhook that fails is called again after one second, then twice as long each time up to ten minutes, with
// the same id, until it takes the alert. Whatever it answers, its path is in no log, and no redirect is followed.
func TestRetry(t *testing.T) {
	for name, tt := range map[string]struct {
		answer answer
		logged string
	}{
		"an error of its own": {answer{status: 503}, `webhook at red.example answered 503: "so it is"`},
		"a redirect":          {answer{status: 307, location: "https://elsewhere.example/" + secret}, "webhook at red.example answered 307"},
		"no redirect's place": {answer{status: 302}, "webhook at red.example answered 302"},
		"not reached":         {answer{err: errors.New("connection refused")}, "call webhook at red.example: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, []string{"red"}, func(c *cluster) {
				m := c.members[0]
				m.hooks.turn(tt.answer, nil)
				c.spend(600, "red")
				const tries = 14
				want := []time.Duration{0}
				for gap := time.Second; len(want) < tries; gap = min(2*gap, 10*time.Minute) {
					want = append(want, want[len(want)-1]+gap)
				}
				begin := time.Now()
				<-time.After(want[tries-1] + time.Minute)
				calls := m.hooks.called("")
				if len(calls) != tries {
					c.t.Fatalf("called %d times, want %d", len(calls), tries)
				}
				for i, call := range calls {
					// Each goes out at its time exactly: the clock stands still while anything works.
					if got := call.at.Sub(calls[0].at); got != want[i] || call.host != "red.example" ||
						call.header.Get("Idempotency-Key") != calls[0].header.Get("Idempotency-Key") {
						c.t.Errorf("call %d: %v after the first to %s, want %v", i, got, call.host, want[i])
					}
				}
				if late := calls[0].at.Sub(begin); late < 0 || late > time.Second {
					c.t.Errorf("first called %v after it was reached", late)
				}
				if m.said(reached) != 1 || m.said(failed) != tries || m.teller.Pending() != 1 || fmt.Sprint(c.untold(m)) != "[red 500]" {
					c.t.Errorf("log %v, pending %d, untold %v", m.logs.All(), m.teller.Pending(), c.untold(m))
				}
				if why := fmt.Sprint(m.logs.FilterMessage(failed).All()[0].ContextMap()["error"]); !strings.Contains(why, tt.logged) {
					c.t.Errorf("logged %q, want %q", why, tt.logged)
				}

				m.hooks.turn(taken, nil)
				<-time.After(2 * time.Hour)
				if got := m.hooks.called(""); len(got) != tries+1 || m.teller.Pending() != 0 || len(c.untold(m)) != 0 {
					c.t.Errorf("%d calls, pending %d, untold %v", len(got), m.teller.Pending(), c.untold(m))
				}
				c.discreet(m)
			})
		})
	}
}

// TestHangingWebhook: each call of it ends after ten seconds, and nobody else waits for it.
func TestHangingWebhook(t *testing.T) {
	others := []string{"blue", "green", "white"}
	inCluster(t, 1, append([]string{"red"}, others...), func(c *cluster) {
		m := c.members[0]
		m.hooks.turn(taken, map[string]answer{"red.example": {hangs: true}})
		c.spend(600, "red")
		<-time.After(time.Second)
		c.spend(600, others...)
		<-time.After(time.Second)
		for _, team := range others {
			if got := m.hooks.called(team + ".example"); len(got) != 1 {
				c.t.Errorf("%s: called %d times", team, len(got))
			}
		}
		if fmt.Sprint(c.untold(m)) != "[red 500]" || len(m.hooks.called("red.example")) != 1 || m.said(failed) != 0 {
			c.t.Errorf("untold %v, %d calls", c.untold(m), len(m.hooks.called("red.example")))
		}
		<-time.After(15 * time.Second)
		calls := m.hooks.called("red.example")
		if len(calls) != 2 || calls[1].at.Sub(calls[0].at) != postTimeout+retryMin || m.said(failed) != 1 {
			c.t.Errorf("calls of what hangs: %v", calls)
		}
		c.discreet(m)
	})
}

// TestManyHangingWebhooks: calls have a bound, and beyond it one waits only until another has ended.
func TestManyHangingWebhooks(t *testing.T) {
	var teams []string
	for i := range 2 * callsMax {
		teams = append(teams, fmt.Sprintf("t%02d", i))
	}
	inCluster(t, 1, teams, func(c *cluster) {
		m := c.members[0]
		m.hooks.turn(answer{hangs: true}, nil)
		c.spend(600, teams...)
		<-time.After(postTimeout - time.Second)
		if got := len(m.hooks.called("")); got != callsMax {
			c.t.Errorf("%d calls at once, want %d", got, callsMax)
		}
		<-time.After(postTimeout)
		called := map[string]bool{}
		for _, call := range m.hooks.called("") {
			called[call.host] = true
		}
		if len(called) != len(teams) {
			c.t.Errorf("%d of %d webhooks were called", len(called), len(teams))
		}
	})
}

// TestNoWebhook: the log is where the alert goes then, and that is having told it.
func TestNoWebhook(t *testing.T) {
	inCluster(t, 1, []string{"quiet"}, func(c *cluster) {
		m := c.members[0]
		c.spend(1000, "quiet")
		<-time.After(time.Hour)
		if got := m.hooks.called(""); len(got) != 0 || m.said(reached) != 2 || m.said(failed) != 0 || len(c.untold(m)) != 0 ||
			m.teller.Pending() != 0 {
			c.t.Errorf("called %v, log %v, untold %v", got, m.logs.All(), c.untold(m))
		}
		first := m.logs.FilterMessage(reached).All()[0].ContextMap()
		if first["scope"] != "team" || first["owner"] != "quiet" || first["period"] != "2000-01" || first["threshold_permille"] != int64(500) {
			c.t.Errorf("logged %v", first)
		}
	})
}

// TestNextLeaderTakesOver: a node that no longer leads calls nobody, not even for what waited for its turn; the next
// leader tells what was not told, and only that, with the same ids.
func TestNextLeaderTakesOver(t *testing.T) {
	var teams []string
	for i := range callsMax + 2 {
		teams = append(teams, fmt.Sprintf("t%02d", i))
	}
	inCluster(t, 3, append(teams, "told"), func(c *cluster) {
		old := c.leader()
		c.spend(600, "told")
		<-time.After(time.Second)
		for _, m := range c.members {
			m.hooks.turn(answer{hangs: true}, nil)
		}
		c.spend(600, teams...)
		<-time.After(time.Second)
		ids := map[string]string{}
		for _, call := range old.hooks.called("") {
			ids[call.host] = call.header.Get("Idempotency-Key")
		}
		if len(ids) != 1+callsMax {
			c.t.Fatalf("called %v", ids)
		}

		var rest []*member
		for _, m := range c.members {
			if m != old {
				c.net.Cut(old.ip, m.ip)
				rest = append(rest, m)
				m.hooks.turn(taken, nil)
			}
		}
		next := c.leader(rest...)
		for range 1000 {
			if _, _, _, self := old.Leader(); !self {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		before := len(old.hooks.called(""))
		<-time.After(time.Minute)
		if after := len(old.hooks.called("")); after != before || old.teller.Pending() != 0 {
			c.t.Errorf("the old leader made %d calls more, pending %d", after-before, old.teller.Pending())
		}
		calls := next.hooks.called("")
		if len(calls) != len(teams) || len(next.hooks.called("told.example")) != 0 || len(c.untold(next)) != 0 {
			c.t.Errorf("the next leader made %d calls, want %d; untold %v", len(calls), len(teams), c.untold(next))
		}
		for _, call := range calls {
			if id, known := ids[call.host]; known && id != call.header.Get("Idempotency-Key") {
				c.t.Errorf("%s: a new id", call.host)
			}
		}

		c.net.Heal()
		<-time.After(time.Minute)
		total := 0
		for _, m := range c.members {
			total += len(m.hooks.called(""))
			if len(c.untold(m)) != 0 {
				c.t.Errorf("%s: untold %v", m.id, c.untold(m))
			}
			c.discreet(m)
		}
		if want := before + len(teams); total != want {
			c.t.Errorf("%d calls in all, want %d", total, want)
		}
	})
}
