// Package usage records what every attempt used. An event is a line of JSON in the process's event file before the
// caller sees the end of its answer; from there it is summed and sent to quotad, each event exactly once.
package usage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// line is an event as written: the field names of usage.v1.Event, with status and source in words.
type line struct {
	*usagev1.Event
	Seq    uint64 `json:"seq"` // number of the event within its file, from 1
	Status string `json:"status"`
	Source string `json:"source"`
}

func encode(seq uint64, e *usagev1.Event) ([]byte, error) {
	b, err := json.Marshal(line{
		Event:  e,
		Seq:    seq,
		Status: word(e.GetStatus().String(), "STATUS_"),
		Source: word(e.GetSource().String(), "SOURCE_"),
	})
	if err != nil {
		return nil, fmt.Errorf("encode usage event: %w", err)
	}
	return append(b, '\n'), nil
}

func decode(b []byte) (seq uint64, e *usagev1.Event, err error) {
	l := line{Event: &usagev1.Event{}}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&l); err != nil {
		return 0, nil, fmt.Errorf("decode usage event: %w", err)
	}
	l.Event.Status = usagev1.Status(usagev1.Status_value["STATUS_"+strings.ToUpper(l.Status)])
	l.Event.Source = usagev1.Source(usagev1.Source_value["SOURCE_"+strings.ToUpper(l.Source)])
	return l.Seq, l.Event, nil
}

func word(enum, prefix string) string { return strings.ToLower(strings.TrimPrefix(enum, prefix)) }

// rowKey is what the events of one row agree in.
type rowKey struct {
	hourMS                                              int64
	team, key, alias, deployment, feature, priceVersion string
}

// rows sums events.
type rows map[rowKey]*quotav1.UsageRow

// platform is the account that pays for what no team does. No team can be called so.
const platform = "(platform)"

// add counts an attempt for its team, and what it used for whoever pays.
func (rs rows) add(e *usagev1.Event) {
	r := rs.row(e, e.GetTeam())
	r.Attempts++
	if e.GetStatus() != usagev1.Status_STATUS_OK {
		r.Errors++
	}
	if e.GetBilled() {
		r.Requests++
		if e.GetSource() != usagev1.Source_SOURCE_PROVIDER {
			r.Estimated++
		}
	}
	u := e.GetTokens()
	if e.GetPlatformPays() {
		if e.GetCostNano() == 0 && nothing(u) {
			return
		}
		r = rs.row(e, platform)
	}
	t := r.GetTokens()
	t.Input += u.GetInput()
	t.CacheRead += u.GetCacheRead()
	t.CacheWrite_5M += u.GetCacheWrite_5M()
	t.CacheWrite_1H += u.GetCacheWrite_1H()
	t.Output += u.GetOutput()
	t.Reasoning += u.GetReasoning()
	t.InputAudio += u.GetInputAudio()
	t.OutputAudio += u.GetOutputAudio()
	t.InputImage += u.GetInputImage()
	t.OutputImage += u.GetOutputImage()
	t.WebSearches += u.GetWebSearches()
	r.CostNano += e.GetCostNano()
}

// nothing says that nothing was used: no kind is above 0.
func nothing(u *usagev1.Tokens) bool {
	return u.GetInput()+u.GetCacheRead()+u.GetCacheWrite_5M()+u.GetCacheWrite_1H()+u.GetOutput()+
		u.GetInputAudio()+u.GetOutputAudio()+u.GetInputImage()+u.GetOutputImage()+u.GetWebSearches() == 0
}

// row finds or makes the row of an event in an account.
func (rs rows) row(e *usagev1.Event, team string) *quotav1.UsageRow {
	k := rowKey{
		hourMS: time.UnixMilli(e.GetAtMs()).UTC().Truncate(time.Hour).UnixMilli(),
		team:   team, key: e.GetKey(), alias: e.GetAlias(), deployment: e.GetDeployment(),
		feature: e.GetFeature(), priceVersion: e.GetPriceVersion(),
	}
	r := rs[k]
	if r == nil {
		r = &quotav1.UsageRow{
			HourMs: k.hourMS, Team: k.team, Key: k.key, Alias: k.alias, Deployment: k.deployment,
			Feature: k.feature, PriceVersion: k.priceVersion, Tokens: &usagev1.Tokens{},
		}
		rs[k] = r
	}
	return r
}
