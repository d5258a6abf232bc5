package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/lease"
	"go.uber.org/zap"
)

// requestIDKept is how much of a request id a note keeps, in bytes. Our own ids are shorter; a caller's may not be.
const requestIDKept = 36

// note is what the journal keeps of a request, so that the successor of a killed process can write its usage row:
// strings, each behind its length, then the start in Unix milliseconds, the tokens and the cost as varints, then the
// team: its key may be gone from the configuration by then, and the money is the team's all the same.
func (f *flow) note() []byte {
	b := make([]byte, 0, lease.MaxNoteBytes)
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	text(clipTo(f.req.ID, requestIDKept))
	text(f.who.Key)
	text(f.alias.Name)
	for _, n := range [...]int64{f.began.UnixMilli(), f.reserved.input, f.reserved.output, int64(f.reserved.cost)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	text(f.who.Team)
	if len(b) > lease.MaxNoteBytes {
		return nil // its money is journalled all the same
	}
	return b
}

// HasRow says whether a reservation with this note has a usage row.
func HasRow(note []byte) bool { return !bytes.Equal(note, rentedNote) }

var errNote = errors.New("note of a lost request is damaged")

// LostEvent makes the usage event of a request that was open when its process died: what was reserved counts as used.
func LostEvent(rules *policy.Rules, note []byte) (*usagev1.Event, error) {
	number := func() (n uint64, ok bool) {
		n, w := binary.Uvarint(note)
		note = note[max(w, 0):]
		return n, w > 0
	}
	text := func() (s string, ok bool) {
		n, ok := number()
		if !ok || n > uint64(len(note)) {
			return "", false
		}
		s, note = string(note[:n]), note[n:]
		return s, true
	}
	var words [4]string // request id, key, alias; behind the numbers the team
	var num [4]int64
	whole := true
	for i := range 3 {
		s, ok := text()
		words[i], whole = s, whole && ok
	}
	for i := range num {
		n, ok := number()
		num[i], whole = int64(n), whole && ok
	}
	s, ok := text()
	words[3], whole = s, whole && ok
	if !whole {
		return nil, errNote
	}
	e := &usagev1.Event{
		RequestId: words[0], Attempt: 1, AtMs: num[0], Key: words[1], Alias: words[2], Team: words[3], Billed: true,
		Status: usagev1.Status_STATUS_LOST, Source: usagev1.Source_SOURCE_RESERVATION,
		Tokens: &usagev1.Tokens{Input: num[1], Output: num[2]}, CostNano: num[3],
	}
	if rules == nil {
		return e, nil
	}
	if p := rules.Key(e.GetKey()); p != nil {
		e.App = p.App
	}
	if a := rules.Alias(e.GetAlias()); a != nil && len(a.Targets) > 0 {
		_, e.PriceVersion, _ = rules.Price(time.UnixMilli(e.GetAtMs()), a.Targets[0].Deployment)
	}
	return e, nil
}

func protoTokens(t exchange.Tokens) *usagev1.Tokens {
	return &usagev1.Tokens{
		Input: t.Input, CacheRead: t.CacheRead, CacheWrite_5M: t.CacheWrite5m, CacheWrite_1H: t.CacheWrite1h,
		Output: t.Output, Reasoning: t.Reasoning, InputAudio: t.InputAudio, OutputAudio: t.OutputAudio,
		InputImage: t.InputImage, OutputImage: t.OutputImage, WebSearches: t.WebSearches,
	}
}

// rawUsageMax bounds the provider's usage that an event keeps, in bytes. A longer one is left out: half of it says nothing.
const rawUsageMax = 4 << 10

func rawUsage(raw string) []byte {
	if raw == "" || len(raw) > rawUsageMax {
		return nil
	}
	return []byte(raw)
}

// knowPrice tells of what nobody has stated a price for: a deployment that serves all the same, counted at nothing, and a
// service tier, speed or geography, counted as the usual one.
func (g *Gateway) knowPrice(f *flow, at time.Time, e ended) {
	p, _, ok := f.rules.Price(at, e.d)
	if !ok {
		g.Metrics.UnpricedAttempts.WithLabelValues(e.d.ID).Inc()
		if told, _ := g.unpriced.Swap(e.d.ID, e.d); told != e.d { // once in each configuration
			g.Log.Warn("a deployment without a price serves: counted at $0", zap.String("deployment", e.d.ID),
				zap.String("request_id", f.req.ID))
		}
		return
	}
	member, word := p.Unknown(f.terms(e.usage))
	if member == "" {
		return
	}
	g.Metrics.UnpricedTiers.WithLabelValues(e.d.ID).Inc()
	g.Log.Warn("what a deployment served has no price: counted as the usual", zap.String("deployment", e.d.ID),
		zap.String("member", member), zap.String("value", clip(word)), zap.String("request_id", f.req.ID))
}
