package system

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

// TestUsageNotStated: a provider that states no usage costs what is estimated. The caller is told that estimate, as
// one, and the ledger says the same.
func TestUsageNotStated(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 100 }", "{ rpm: 60000, tpm: 5000000 }") })
	sc := s.sidecars[0]
	var told usage
	add := func(doc string, estimated bool) {
		t.Helper()
		var a struct {
			Usage struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Total      int64 `json:"total_tokens"`
			}
			Gateway struct {
				Cost      json.Number
				Estimated bool
			} `json:"x_gateway"`
		}
		s.decode(doc, &a)
		cost, ok := new(big.Rat).SetString(a.Gateway.Cost.String())
		if u := a.Usage; !ok || a.Gateway.Estimated != estimated || u.Prompt == 0 || u.Completion == 0 || u.Total != u.Prompt+u.Completion || cost.Sign() <= 0 {
			t.Fatalf("told %s", doc)
		}
		nano := cost.Mul(cost, big.NewRat(1e9, 1))
		told = usage{told.requests + 1, told.input + a.Usage.Prompt, told.output + a.Usage.Completion, told.cost + nano.Num().Int64()}
	}
	for range 3 {
		a := s.chat(sc, say("tokens=50 fault=no-usage", ""))
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		add(a.body, true)
		add(s.chat(sc, say("tokens=9", "")).body, false) // it teaches the estimator
		a = s.chat(sc, say("tokens=50 fault=no-usage", `,"stream":true,"stream_options":{"include_usage":true}`))
		ev, err := events(strings.NewReader(a.body))
		if err != nil || len(ev) < 3 || ev[len(ev)-1] != "[DONE]" {
			t.Fatalf("%v %v", ev, err)
		}
		add(ev[len(ev)-2], true)
	}
	s.eventually("rollups", func() bool { return s.usageCLI().requests == told.requests })
	if got := s.usageCLI(); got != told {
		t.Errorf("settled %+v, told %+v", got, told)
	}
}
