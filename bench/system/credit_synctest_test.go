package system

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// TestCreditsTakeTheBudget: a budget that negative credits have taken is spent, not too small for ever.
func TestCreditsTakeTheBudget(t *testing.T) {
	for name, amount := range map[string]int64{"all of it": -100, "more than all": -200} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 1, org(provider, "{ monthly: 100 }", "{ rpm: 60000 }"), func(t *testing.T, w *world) {
				w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
					_, err := c.CreditBudget(ctx, connect.NewRequest(&adminv1.CreditBudgetRequest{
						Team: "t", AmountNano: amount * 1_000_000_000, Reason: "refunded elsewhere", Id: "one",
					}))
					return err
				})
				for range 2 { // what quotad says, and what is remembered of it
					a := w.chat(w.cars[0], say("tokens=1", ""))
					if a.status != 429 || a.code() != "budget_exhausted" || a.header.Get("x-should-retry") != "false" || !strings.Contains(a.body, "resets_at") {
						t.Errorf("%d %s %v", a.status, a.body, a.err)
					}
				}
				w.pass(2 * time.Second) // that is forgotten
				a := w.chat(w.cars[0], say("tokens=1", `,"max_tokens":10000000`))
				if a.status != 400 || a.code() != "request_exceeds_limit" {
					t.Errorf("above the cap itself: %d %s %v", a.status, a.body, a.err)
				}
			})
		})
	}
}
