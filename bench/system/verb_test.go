package system

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// apply applies an org.yaml.
func (s *stack) apply(yaml string) {
	s.t.Helper()
	s.quotad("apply", "-f", s.written(yaml))
}

// written puts an org.yaml into a file.
func (s *stack) written(yaml string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "org.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *stack) quotad(args ...string) string { s.t.Helper(); return s.quotadIn("", args...) }

// quotadIn runs an operator verb and returns what it printed. During an election it tries again.
func (s *stack) quotadIn(stdin string, args ...string) string {
	s.t.Helper()
	var last string
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		for _, nd := range s.nodes {
			var out, errs bytes.Buffer
			cmd := exec.Command(filepath.Join(binaries, "quotad"), append(args, "--addr", "http://"+nd.admin)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
			if err := cmd.Run(); err == nil {
				return out.String()
			}
			last = out.String() + errs.String()
			if !strings.Contains(last, "leader") && !strings.Contains(last, "refused") && !strings.Contains(last, "unavailable") {
				s.t.Fatalf("quotad %s: %s", strings.Join(args, " "), last)
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	s.t.Fatalf("quotad %s: %s", strings.Join(args, " "), last)
	return ""
}

// budget is what quotad says of a team's budget, in nano-dollars.
type budget struct {
	Cap, Settled, Outstanding, Held, Suspense, Free int64
}

func (s *stack) budget(team string) budget {
	s.t.Helper()
	return s.budgets(team)[0]
}

// budgets are those of all periods, the newest first.
func (s *stack) budgets(team string) (all []budget) {
	s.t.Helper()
	var out struct {
		Budgets []struct {
			Scope, Owner    string
			CapNano         int64 `json:"cap_nano,string"`
			SettledNano     int64 `json:"settled_nano,string"`
			OutstandingNano int64 `json:"outstanding_nano,string"`
			HeldNano        int64 `json:"held_nano,string"`
			SuspenseNano    int64 `json:"suspense_nano,string"`
			FreeNano        int64 `json:"free_nano,string"`
		}
	}
	s.decode(s.quotad("budget", "show", team, "-o", "json"), &out)
	for _, b := range out.Budgets {
		if b.Scope == "team" && b.Owner == team {
			all = append(all, budget{b.CapNano, b.SettledNano, b.OutstandingNano, b.HeldNano, b.SuspenseNano, b.FreeNano})
		}
	}
	if len(all) == 0 {
		s.t.Fatalf("no budget of team %s", team)
	}
	return all
}

func (s *stack) decode(text string, v any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		s.t.Fatalf("%v in %s", err, text)
	}
}
