package adapter_test

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

func TestCount(t *testing.T) {
	for raw, want := range map[string]int64{
		"0": 0, "7": 7, "7.0": 7, "7e2": 700, `"7"`: 7, `"7.5"`: 7, "1073741824": adapter.CountMax,
		"-1": -1, "2147483647": -1, "4294967295": -1, "18446744073709551615": -1, "1e300": -1, `"1e400"`: -1, `"NaN"`: -1, `"Infinity"`: -1,
		`"many"`: -1, `""`: -1, "null": -1, "true": -1, "[7]": -1, `{"n":7}`: -1, "": -1,
	} {
		n, ok := adapter.Count(gjson.Parse(raw))
		if !ok && n == 0 {
			n = -1
		}
		if n != want {
			t.Errorf("%s: %d", raw, n)
		}
	}
}
