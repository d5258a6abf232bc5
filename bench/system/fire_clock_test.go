package system

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// lead makes a node the leader: whoever else leads is stopped until it hands over to this one.
func (c *cluster) lead(nd *node) {
	c.t.Helper()
	c.eventually(nd.id+" leads", func() bool {
		leader := c.awaitLeader(nil)
		if leader == nd {
			return true
		}
		leader.Term(c.t)
		c.awaitLeader(leader)
		c.startNode(leader)
		return false
	})
}

// clocksOff turns walls and lets clocks drift, and has each node lead for a while.
func clocksOff(c *cluster) (times int) {
	c.faults["quotad-0"].set(c.t, "wall 1h", "drift 50000")
	c.faults["quotad-1"].set(c.t, "wall -1h", "drift -50000")
	c.faults["sidecar-0"].set(c.t, "drift 50000")
	c.faults["sidecar-1"].set(c.t, "drift -50000")
	for _, nd := range c.nodes {
		c.lead(nd)
		c.pass(2 * time.Second)
		times++
	}
	// Steps while it leads.
	for _, wall := range []string{"wall 1h", "wall -1h", "wall 24h", "wall 0s"} {
		c.faults[c.nodes[2].id].set(c.t, wall)
		c.pass(time.Second)
		times++
	}
	return times
}

// periods are the budgets' periods of the app's team, the newest first.
func (c *cluster) periods() (out []uint32) {
	c.t.Helper()
	c.eventually("the periods are shown", func() bool {
		out = nil
		m, err := adminv1connect.NewAdminServiceClient(client, "http://"+c.awaitLeader(nil).admin).ShowBudgets(context.Background(),
			connect.NewRequest(&adminv1.ShowBudgetsRequest{Team: "t"}))
		if err != nil {
			return false
		}
		for _, b := range m.Msg.GetBudgets() {
			out = append(out, b.GetPeriod())
		}
		return true
	})
	return out
}

// monthEnds has the month end at the leader alone: nothing may turn, also not by a change of the configuration. Once it
// ends at another node as well, it turns. The history's budget is of a zone where the month goes on.
func monthEnds(c *cluster) (times int) {
	now := time.Now().UTC()
	if now.Day() == 1 && now.Hour() < 14 {
		c.t.Skip("a month ends somewhere just now")
	}
	next := time.Date(now.Year(), now.Month()+1, 1, 1, 0, 0, 0, time.UTC)
	wall := fmt.Sprintf("wall %ds", int64(next.Sub(now).Seconds()))
	before := c.periods()
	one := c.nodes[0]
	c.faults[one.id].set(c.t, wall)
	c.lead(one)
	c.apply(strings.Replace(fireOrg(c.fakeURL, "1000"), "model: m1", "model: m1, region: here", 1))
	c.pass(3 * time.Second)
	if c.awaitLeader(nil) == one && fmt.Sprint(c.periods()) != fmt.Sprint(before) {
		c.t.Errorf("the month turned by one clock: periods %v, before %v", c.periods(), before)
	}
	c.faults[c.nodes[1].id].set(c.t, wall)
	c.eventually("the month turns", func() bool { return len(c.periods()) > len(before) })
	c.pass(3 * time.Second)
	return 2
}
