package measure

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// GoBench runs a Go benchmark of this module and returns what it reports, by unit. These are figures of code that only
// its own package can drive.
func GoBench(ctx context.Context, pkg, name string, more ...string) (map[string]float64, error) {
	args := append([]string{"test", pkg, "-run", "^$", "-bench", "^" + name + "$", "-benchmem"}, more...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s%s", strings.Join(args, " "), err, out, errs.String())
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], name) {
			continue
		}
		got := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if got[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
		}
		return got, nil
	}
	return nil, fmt.Errorf("%s does not report: %s", name, out)
}
