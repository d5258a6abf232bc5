package gateway

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// TestEveryKindIsTold: each kind of tokens is in the usage event, and in GET /v1/usage under the name it has there.
func TestEveryKindIsTold(t *testing.T) {
	used := exchange.Tokens{
		Input: 1, CacheRead: 2, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5, Reasoning: 6, InputAudio: 7, OutputAudio: 8, InputImage: 9,
		WebSearches: 10,
	}
	got := protoTokens(used)
	fields := (&usagev1.Tokens{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if v := got.ProtoReflect().Get(fields.Get(i)); v.Int() != int64(fields.Get(i).Number()) {
			t.Errorf("%s: %d", fields.Get(i).Name(), v.Int())
		}
		if fields.Get(i).Kind() != protoreflect.Int64Kind {
			t.Errorf("%s is no count", fields.Get(i).Name())
		}
	}
	want := usageTokens{
		Input: 1, CacheRead: 2, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5, Reasoning: 6, InputAudio: 7, OutputAudio: 8, InputImage: 9,
		WebSearches: 10,
	}
	if row := rowOf(&quotav1.UsageRow{Tokens: got}, nil); row.Tokens != want {
		t.Errorf("told: %+v", row.Tokens)
	}
}

func TestRawUsageIsBounded(t *testing.T) {
	for n, kept := range map[int]bool{0: false, 1: true, rawUsageMax: true, rawUsageMax + 1: false} {
		if got := rawUsage(strings.Repeat("x", n)); len(got) > 0 != kept || kept && len(got) != n {
			t.Errorf("of %d bytes %d are kept", n, len(got))
		}
	}
}
