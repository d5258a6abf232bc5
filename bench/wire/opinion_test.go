package wire

import (
	"testing"

	"github.com/sluice-gateway/sluice/bench/wire/cost"
)

// TestSecondOpinion: what each answer is expected to cost is what its raw bytes say it costs, read by the table of who
// includes what.
func TestSecondOpinion(t *testing.T) {
	versions, err := cost.Prices([]byte("prices: [{ id: v, per_million_usd: { fx: { " + prices + " } } }]"))
	if err != nil {
		t.Fatal(err)
	}
	price, judged := versions["v"]["fx"], 0
	for _, f := range load(t) {
		if f.Want.Usage == nil {
			continue
		}
		u, ok, err := cost.Read(cost.Dialect(f.folder(), f.API), f.raw)
		if err != nil || !ok {
			t.Errorf("%s: %v %v", f.File, ok, err)
			continue
		}
		got, err := price.Nano(u)
		if want := nano(t, f.Want.Usage); err != nil || !got.IsInt64() || got.Int64() != want {
			t.Errorf("%s: %s, expected %d, %v", f.File, got, want, err)
		}
		judged++
	}
	if judged < 60 {
		t.Errorf("only %d answers state their usage", judged)
	}
}
