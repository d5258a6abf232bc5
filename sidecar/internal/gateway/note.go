package gateway

import (
	"encoding/binary"
	"errors"
	"time"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// requestIDKept is how much of a request id a note keeps, in bytes. Our own ids are shorter; a caller's may not be.
const requestIDKept = 36

// note is what the journal keeps of a request, so that the successor of a killed process can write its usage row:
// three strings, each behind its length, then the start in Unix milliseconds, the tokens and the cost as varints.
func (f *flow) note() []byte {
	b := make([]byte, 0, lease.MaxNoteBytes)
	for _, s := range [...]string{clipTo(f.req.ID, requestIDKept), f.who.Key, f.alias.Name} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, n := range [...]int64{f.began.UnixMilli(), f.reserved.input, f.reserved.output, int64(f.reserved.cost)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if len(b) > lease.MaxNoteBytes {
		return nil // its money is journalled all the same
	}
	return b
}

var errNote = errors.New("note of a lost request is damaged")

// LostEvent makes the usage event of a request that was open when its process died: what was reserved counts as used.
func LostEvent(rules *policy.Rules, note []byte) (*usagev1.Event, error) {
	var text [3]string
	for i := range text {
		n, w := binary.Uvarint(note)
		if w <= 0 || n > uint64(len(note)-w) {
			return nil, errNote
		}
		text[i] = string(note[w : w+int(n)])
		note = note[w+int(n):]
	}
	var num [4]int64
	for i := range num {
		n, w := binary.Uvarint(note)
		if w <= 0 {
			return nil, errNote
		}
		num[i], note = int64(n), note[w:]
	}
	e := &usagev1.Event{
		RequestId: text[0], Attempt: 1, AtMs: num[0], Key: text[1], Alias: text[2], Billed: true,
		Status: usagev1.Status_STATUS_LOST, Source: usagev1.Source_SOURCE_RESERVATION,
		Tokens: &usagev1.Tokens{Input: num[1], Output: num[2]}, CostNano: num[3],
	}
	if rules == nil {
		return e, nil
	}
	if p := rules.Key(e.GetKey()); p != nil {
		e.Team, e.App = p.Team, p.App
	}
	if a := rules.Alias(e.GetAlias()); a != nil && len(a.Targets) > 0 {
		_, e.PriceVersion, _ = rules.Price(time.UnixMilli(e.GetAtMs()), a.Targets[0].Deployment)
	}
	return e, nil
}

func protoTokens(t exchange.Tokens) *usagev1.Tokens {
	return &usagev1.Tokens{
		Input: t.Input, CacheRead: t.CacheRead, CacheWrite_5M: t.CacheWrite5m, CacheWrite_1H: t.CacheWrite1h,
		Output: t.Output, Reasoning: t.Reasoning,
	}
}
