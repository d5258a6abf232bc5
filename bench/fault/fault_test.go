package fault

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	p, err := parse("dial a:1 b:2\nkill log 3\n\nhang apply\nslow flush 20ms\nwall -1h\ndrift -50000\noften 100\npower /a /b\n")
	if err != nil {
		t.Fatal(err)
	}
	if p.dial["a:1"] != "b:2" || p.kill["log"] != 3 || !p.hang["apply"] || p.slow["flush"] != 20*time.Millisecond ||
		p.wall != -time.Hour || p.drift != -50_000 || p.often != 100 || p.power != [2]string{"/a", "/b"} {
		t.Errorf("got %+v", p)
	}
	for _, bad := range []string{"kil log 1", "kill log", "kill log x", "wall 1", "drift 5%", "hang"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestDrift(t *testing.T) {
	if got := drifted(time.Hour, 50_000); got != 3*time.Minute {
		t.Errorf("5%% of an hour: %v", got)
	}
	if got := drifted(time.Hour, -50_000); got != -3*time.Minute {
		t.Errorf("-5%% of an hour: %v", got)
	}
}

// TestShippedBinariesHaveNoFaults: what is built without the tag must not even contain this package.
func TestShippedBinariesHaveNoFaults(t *testing.T) {
	deps := func(tags string) string {
		out, err := exec.Command("go", "list", "-tags", tags, "-deps", "../../quotad/cmd/quotad", "../../sidecar/cmd/sidecar").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if strings.Contains(deps(""), "/bench/") {
		t.Error("they do")
	}
	if !strings.Contains(deps("faults"), "/bench/fault\n") {
		t.Error("with the tag they do not either: this test proves nothing")
	}
}
