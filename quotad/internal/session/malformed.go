package session

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// nameBytesMax bounds the name of an end user, a run or a claimant.
const nameBytesMax = 128

// refusal ends a session: its sender can only send the same again.
type refusal struct{ *status.Status }

func (r refusal) Error() string { return r.Message() }

func malformed(format string, args ...any) error {
	return refusal{status.Newf(codes.InvalidArgument, format, args...)}
}

// ending is the status that a session ends with; nil when the cause is no refusal.
func ending(cause error) error {
	var r refusal
	if errors.As(cause, &r) {
		return r.Err()
	}
	return nil
}

// checkRenew refuses a renew that no sidecar could send, whatever configuration it has: names that are none, or that
// stand where there can be none. It is refused whole, before the ledger hears of it.
func checkRenew(m *replica.Machine, r *quotav1.Renew) error {
	for i, a := range r.GetAsks() {
		for j, n := range a.GetNeeds() {
			if what := wrongName(m, n); what != "" {
				return malformed("renew %d: asks[%d].needs[%d].name: %s", r.GetSeq(), i, j, what)
			}
		}
	}
	for i, c := range r.GetCounters() {
		if c.ProviderLeft == nil {
			continue
		}
		if c.GetProviderLeft() < 0 {
			return malformed("renew %d: counters[%d].provider_left: must not be negative", r.GetSeq(), i)
		}
		if spec, _, _, ok := m.Ledger.Spec(c.GetResource()); ok && spec.Each != ledger.EachClaimant {
			return malformed("renew %d: counters[%d].provider_left: resource %d is no pool", r.GetSeq(), i, c.GetResource())
		}
	}
	return nil
}

// wrongName says what is wrong with the name of a need; empty when nothing is. What the ledger does not know, it
// answers as gone.
func wrongName(m *replica.Machine, n *quotav1.Need) string {
	name := n.GetName()
	if len(name) > nameBytesMax || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "must be visible ASCII, at most 128 bytes"
	}
	spec, of, _, ok := m.Ledger.Spec(n.GetResource())
	if !ok || of != 0 { // asks go by the id in the snapshot: the ledger answers one by a child's as gone
		return ""
	}
	switch spec.Each {
	case ledger.EachName: // the empty one is all those beyond the bound
	case ledger.EachClaimant:
		if class, team, _ := strings.Cut(name, "/"); rank(class) < 0 || team == "" {
			return "must be class/team, in a known class"
		}
	default:
		if name != "" {
			return "the resource is not one for each name"
		}
	}
	return ""
}
