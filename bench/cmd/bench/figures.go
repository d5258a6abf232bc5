package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// figures is how a measurement is told: as a table or as JSON, and in a directory of tables, "" for none.
type figures struct{ output, keep string }

// checkOutput refuses other ways to tell figures than there are.
func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return fmt.Errorf("output %q: want table or json", output)
	}
	return nil
}

// tell writes a report to w, and keeps its table under the name of what was measured and the day.
func (f figures) tell(w io.Writer, name string, at time.Time, report interface{ WriteTable(io.Writer) error }) error {
	var text strings.Builder
	if err := report.WriteTable(&text); err != nil {
		return err
	}
	if f.keep != "" {
		if err := os.MkdirAll(f.keep, 0o755); err != nil {
			return err
		}
		file := filepath.Join(f.keep, name+"-"+at.Format("2006-01-02")+".txt")
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	if f.output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	_, err := fmt.Fprint(w, text.String())
	return err
}
