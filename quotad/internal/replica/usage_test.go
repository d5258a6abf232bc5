package replica

import (
	"testing"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
)

// TestRareKindsAreCountedByLevel: while a node may be of the first version all count what that one counts, so that they
// agree; the cost, which says it all, is counted always.
func TestRareKindsAreCountedByLevel(t *testing.T) {
	batch := &raftlogv1.UsageBatch{Source: "s", FromSeq: 1, ToSeq: 2, Rows: []*raftlogv1.UsageRow{{
		Team: "t", Attempts: 1, Requests: 2, Errors: 3, Input: 4, CacheRead: 5, CacheWrite_5M: 6, CacheWrite_1H: 7, Output: 8, Reasoning: 9,
		CostNano: 10, Estimated: 11, InputAudio: 12, OutputAudio: 13, InputImage: 14, WebSearches: 15,
	}}}
	first := rollup.Sums{
		Attempts: 1, Requests: 2, Errors: 3, Input: 4, CacheRead: 5, CacheWrite5m: 6, CacheWrite1h: 7, Output: 8, Reasoning: 9,
		CostNano: 10, Estimated: 11,
	}
	whole := first
	whole.InputAudio, whole.OutputAudio, whole.InputImage, whole.WebSearches = 12, 13, 14, 15
	for level, want := range []rollup.Sums{first, whole} {
		if got := batchOf(batch, uint32(level)).Rows[0]; got.Sums != want {
			t.Errorf("level %d: %+v, want %+v", level, got.Sums, want)
		}
	}
	row := batchOf(batch, levelKnown).Rows[0]
	if got := usageOf(usageTo(row)); got != row {
		t.Errorf("stored and read: %+v, want %+v", got, row)
	}
}
