package system

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protojson"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// carStatus is a sidecar's GET /status, as operators' scripts read it.
type carStatus struct {
	Problems      []string `json:"problems"`
	Identity      string   `json:"identity"`
	Build         string   `json:"build"`
	Incarnation   string   `json:"incarnation"`
	Draining      bool     `json:"draining"`
	ConfigVersion uint64   `json:"config_version"`
	SnapshotFault string   `json:"snapshot_fault"`
	Quotad        struct {
		Connected bool      `json:"connected"`
		Address   string    `json:"address"`
		Since     time.Time `json:"since"`
		LastError string    `json:"last_error"`
	} `json:"quotad"`
	Lease struct {
		LastReplyAgeMS *int64 `json:"last_reply_age_ms"`
		LimitsForMS    int64  `json:"limits_for_ms"`
		SharesForMS    int64  `json:"shares_for_ms"`
		Leaving        bool   `json:"leaving"`
		Admissions     struct {
			Lease int `json:"lease"`
			Ask   int `json:"ask"`
			Share int `json:"share"`
			Open  int `json:"open"`
		} `json:"admissions"`
		Refusals      map[string]int `json:"refusals"`
		Waiting       int            `json:"waiting"`
		OpenHolds     int            `json:"open_holds"`
		PendingFinals int            `json:"pending_finals"`
		Fences        int            `json:"fences"`
		DoubleSettles int            `json:"double_settles"`
		StraySettles  int            `json:"stray_settles"`
		Journal       struct {
			OK        bool   `json:"ok"`
			Why       string `json:"why"`
			UsedBytes int    `json:"used_bytes"`
			SizeBytes int    `json:"size_bytes"`
		} `json:"journal"`
		Limits []struct {
			resourceName
			Names     int   `json:"names"`
			Granted   int64 `json:"granted"`
			Spent     int64 `json:"spent"`
			Returned  int64 `json:"returned"`
			Forfeited int64 `json:"forfeited"`
			Held      int64 `json:"held"`
			Balance   int64 `json:"balance"`
			Demand    int64 `json:"demand"`
		} `json:"limits"`
		Budgets []struct {
			resourceName
			Names         int    `json:"names"`
			Period        string `json:"period"`
			GrantedNano   int64  `json:"granted_nano,string"`
			SpentNano     int64  `json:"spent_nano,string"`
			ReturnedNano  int64  `json:"returned_nano,string"`
			ForfeitedNano int64  `json:"forfeited_nano,string"`
			HeldNano      int64  `json:"held_nano,string"`
			BalanceNano   int64  `json:"balance_nano,string"`
			DemandNano    int64  `json:"demand_nano,string"`
		} `json:"budgets"`
		Shares []struct {
			resourceName
			PerMinute int64 `json:"per_minute"`
		} `json:"shares"`
	} `json:"lease"`
	Usage       map[string]any   `json:"usage"`
	Deployments []map[string]any `json:"deployments"`
	EndUsers    nameCounts       `json:"end_users"`
	Runs        nameCounts       `json:"runs"`
}

type nameCounts struct {
	Live     int `json:"live"`
	Overflow int `json:"overflow"`
}

type resourceName struct {
	Scope string `json:"scope"`
	Owner string `json:"owner"`
	Kind  string `json:"kind"`
}

// readStatus takes no member that is not known here.
func readStatus(t *testing.T, text string) (out carStatus) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

func (w *world) status(m *member) carStatus {
	w.t.Helper()
	return readStatus(w.t, w.get("http://"+m.ip+":4001/status"))
}

// TestStatus: a sidecar's status has the numbers of the witness and of quotad's books, by the names of org.yaml.
func TestStatus(t *testing.T) {
	org := org(provider, "{ monthly: 100 }", "{ rpm: 60, tpm: 60000 }")
	inWorld(t, 1, 1, org, func(t *testing.T, w *world) {
		car := w.cars[0]
		if s := w.status(car); len(s.Problems) != 0 || s.Identity != "sidecar-0" || s.ConfigVersion == 0 || !s.Quotad.Connected ||
			!s.Lease.Journal.OK || len(s.Lease.Limits) != 0 || len(s.Lease.Budgets) != 0 {
			t.Fatalf("at the start: %+v", s)
		}
		w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
			resp, err := c.Status(ctx, connect.NewRequest(&adminv1.StatusRequest{}))
			if err != nil {
				return err
			}
			b, err := protojson.Marshal(resp.Msg) // as REST and the verbs have it
			if got := gjson.GetBytes(b, "sidecars.0.incarnation").Str; got == "" || got != w.status(car).Incarnation {
				t.Errorf("quotad calls it %q, it calls itself %q", got, w.status(car).Incarnation)
			}
			return err
		})
		const calls = 60
		for range calls {
			if a := w.chat(car, say("tokens=7", "")); a.status != 200 {
				t.Fatalf("%d %s %v", a.status, a.body, a.err)
			}
		}
		if a := w.chat(car, say("tokens=7", "")); a.code() != "key_requests_per_minute" {
			t.Fatalf("one too many: %d %s %v", a.status, a.body, a.err)
		}
		w.pass(5 * time.Second) // two renews
		saw := w.witnessed()
		s := w.status(car).Lease
		if s.LastReplyAgeMS == nil || *s.LastReplyAgeMS > 3_000 || s.LimitsForMS < 6_000 || s.LimitsForMS > 10_000 ||
			s.SharesForMS < 3_590_000 || s.SharesForMS > 3_600_000 {
			t.Errorf("times: %+v", s)
		}
		if a := s.Admissions; a.Ask == 0 || a.Ask+a.Lease != calls || a.Share != 0 || a.Open != 0 {
			t.Errorf("admissions: %+v", a)
		}
		if want := map[string]int{
			"throttled": 1, "reserved": 0, "exhausted": 0, "too_large": 0, "unavailable": 0, "caller_gone": 0, "leaving": 0,
		}; !maps.Equal(s.Refusals, want) {
			t.Errorf("refusals: %v", s.Refusals)
		}
		if s.Waiting+s.OpenHolds+s.PendingFinals+s.Fences+s.DoubleSettles+s.StraySettles != 0 || s.Leaving {
			t.Errorf("at rest: %+v", s)
		}
		if j := s.Journal; !j.OK || j.Why != "" || j.UsedBytes <= 0 || j.UsedBytes >= j.SizeBytes {
			t.Errorf("journal: %+v", j)
		}
		spent := map[resourceName]int64{}
		for _, l := range s.Limits {
			spent[l.resourceName] = l.Spent
			if l.Granted-l.Spent-l.Returned-l.Forfeited-l.Held != l.Balance || l.Held != 0 || l.Granted < l.Spent {
				t.Errorf("limit: %+v", l)
			}
		}
		requests, tokens := resourceName{"key", "app", "requests_per_minute"}, resourceName{"key", "app", "tokens_per_minute"}
		if want := map[resourceName]int64{requests: calls, tokens: saw.input + saw.output}; !maps.Equal(spent, want) {
			t.Errorf("limits: %v, want %v", spent, want)
		}
		if len(s.Budgets) != 1 {
			t.Fatalf("budgets: %+v", s.Budgets)
		}
		b, books := s.Budgets[0], w.budgets()[0]
		if b.resourceName != (resourceName{"team", "t", "budget"}) || b.Period != "2000-01" || b.SpentNano != saw.cost ||
			b.SpentNano != books.SettledNano || b.BalanceNano != books.OutstandingNano || b.HeldNano != 0 ||
			b.GrantedNano-b.SpentNano-b.ReturnedNano-b.ForfeitedNano != b.BalanceNano {
			t.Errorf("budget %+v, quotad says %v", b, books)
		}
		shares := map[resourceName]int64{}
		for _, sh := range s.Shares {
			shares[sh.resourceName] = sh.PerMinute
		}
		// A lone sidecar may have all of a limit.
		if want := map[resourceName]int64{requests: 60, tokens: 60_000}; !maps.Equal(shares, want) {
			t.Errorf("shares: %v, want %v", shares, want)
		}

		w.cutOff(car)
		w.pass(time.Minute)
		if a := w.chat(car, say("tokens=7", "")); a.status != 200 {
			t.Fatalf("without quotad: %d %s %v", a.status, a.body, a.err)
		}
		away := w.status(car)
		if l := away.Lease; l.Admissions.Share != 1 || l.LimitsForMS != 0 || *l.LastReplyAgeMS < 60_000 ||
			away.Quotad.Connected || !strings.Contains(strings.Join(away.Problems, " "), "quotad is away") {
			t.Errorf("without quotad: %+v", away)
		}
		w.net.Heal()
		w.agree()
	})
}
