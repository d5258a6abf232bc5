package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/quotad"
	"go.uber.org/zap"
	"pgregory.net/rapid"
)

// patience is how long a test waits for what must happen. It is long, so that only a fault reaches it.
const patience = 60 * time.Second

const orgYAML = `version: 1
credentials:
  main: { provider: openai }
deployments:
  - { id: d, provider: openai, base_url: "https://h/v1", model: m, credential: main, unpriced: allow }
aliases:
  chat: { targets: [{ deployment: d }] }
teams:
  red: { budget: { monthly: 100 } }
  blue: {}
keys:
  - { id: red-app, team: red, aliases: [chat] }
`

// operator is a running node and its operator.
type operator struct {
	t    *testing.T
	addr string
	dir  string
}

// newOperator runs a node until the end of the test, and waits until it answers.
func newOperator(t *testing.T) *operator {
	t.Helper()
	t.Setenv("SLUICE_ADMIN_ADDR", "")
	dir := t.TempDir()
	cfg, err := quotad.Load("", nil, map[string]string{
		"data_dir": filepath.Join(dir, "data"), "listen": "127.0.0.1:0", "raft_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0",
	}, true)
	must(t, err)
	q, err := quotad.New(cfg, "b1", zap.NewNop())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
		must(t, q.Close())
	})
	o := &operator{t: t, addr: q.AdminAddr(), dir: dir}
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for { // a node that was just started elects itself: it says so until then
		_, err := o.try("", "get")
		if err == nil {
			return o
		}
		if waiting.Err() != nil || !strings.Contains(err.Error(), "no leader") {
			t.Fatal(err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try runs a verb and returns what it printed.
func (o *operator) try(stdin string, args ...string) (string, error) {
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(append([]string{args[0], "--addr", o.addr}, args[1:]...))
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func (o *operator) run(args ...string) string {
	o.t.Helper()
	out, err := o.try("", args...)
	if err != nil {
		o.t.Fatalf("quotad %v: %v", args, err)
	}
	return out
}

func (o *operator) refused(want string, args ...string) {
	o.t.Helper()
	if out, err := o.try("", args...); err == nil || !strings.Contains(err.Error(), want) {
		o.t.Errorf("quotad %v: got %v and %q, want an error with %q", args, err, out, want)
	}
}

// file writes an org.yaml and returns its path.
func (o *operator) file(text string) string {
	o.t.Helper()
	path := filepath.Join(o.dir, "org.yaml")
	must(o.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// columns checks a table: every line's cells, whatever the spaces between them.
func columns(t *testing.T, out string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || strings.HasPrefix(g, w)
		}
		if !found {
			t.Errorf("no line begins with %q:\n%s", w, out)
		}
	}
}

func TestApply(t *testing.T) {
	o := newOperator(t)
	path := o.file(orgYAML)
	columns(t, o.run("apply", "-f", path, "--dry-run"), "+ team red", "+ budget.monthly: 100", "+ key red-app", "6 would change (dry run); version 0")
	if out := o.run("get"); strings.Contains(out, "red") {
		t.Fatalf("the dry run did something:\n%s", out)
	}
	columns(t, o.run("apply", "-f", path), "+ team red", "6 applied; version ")
	columns(t, o.run("apply", "-f", path), "0 applied; version ")
	if out := o.run("get"); !strings.Contains(out, "monthly: 100") || !strings.Contains(out, "version: 1\n") {
		t.Errorf("get:\n%s", out)
	}

	changed := strings.Replace(strings.Replace(orgYAML, "monthly: 100", "monthly: 90.5", 1), "  blue: {}\n", "", 1)
	columns(t, o.run("apply", "-f", o.file(changed), "--dry-run", "--prune"), "~ team red", "- team blue", "2 would change")
	out, err := o.try(changed, "apply", "-f", "-", "--prune")
	must(t, err)
	columns(t, out, "~ team red", "- team blue", "2 applied")
	columns(t, o.run("get", "team", "red"), "KIND NAME VERSION SPEC", "team red")
	columns(t, o.run("history", "-n", "1"), "VERSION AT BY WHAT CHANGED")
	if out := o.run("history"); !strings.Contains(out, "apply standard input") || !strings.Contains(out, "-team blue, ~team red") ||
		!strings.Contains(out, "and 3 more") || len(strings.Split(strings.TrimSpace(out), "\n")) != 3 {
		t.Errorf("history:\n%s", out)
	}
	h := o.run("history", "--diff")
	if strings.Index(h, "apply standard input") > strings.Index(h, path) || !strings.Contains(h, "- team blue") {
		t.Errorf("history:\n%s", h)
	}
	lines := strings.Split(strings.TrimSpace(h), "\n")
	version := ""
	for _, l := range lines { // the last entry that is not indented is the first apply
		if l[0] >= '0' && l[0] <= '9' {
			version = strings.Fields(l)[0]
		}
	}
	columns(t, o.run("rollback", version, "--dry-run"), "+ team blue", "2 would change (dry run)")
	columns(t, o.run("rollback", version), "+ team blue", "2 changed")
	columns(t, o.run("get", "team"), "team blue", "team red")

	o.refused("is not a number", "rollback", "last")
	o.refused("is not in the history", "rollback", "999999")
	o.refused(path+":2: ", "apply", "-f", o.file("version: 1\nteems: {}\n"))
	o.refused("no such file", "apply", "-f", filepath.Join(o.dir, "none.yaml"))
	o.refused(`required flag(s) "file"`, "apply")
}

// TestFaultsLookAlike: every fault of a file stands on a line of its own, without anything before it.
func TestFaultsLookAlike(t *testing.T) {
	o := newOperator(t)
	path := o.file("version: 1\nteems: {}\nteams:\n  red: { weight: many }\nkeys:\n  - { id: k, team: green }\n")
	_, err := o.try("", "apply", "-f", path)
	var said bytes.Buffer
	explain(&said, err)
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 4 || lines[3] != "quotad: nothing was applied" {
		t.Fatalf("said:\n%s", said.String())
	}
	for i, n := range []string{"2", "4", "6"} {
		if !strings.HasPrefix(lines[i], path+":"+n+": ") {
			t.Errorf("fault %d is %q", i, lines[i])
		}
	}
	// What is wrong without a line, as no file is, says who speaks.
	_, err = o.try("", "get", "team", "x")
	said.Reset()
	if explain(&said, err); said.String() != "quotad: no team \"x\"\n" {
		t.Errorf("said %q", said.String())
	}
}

func TestKeys(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(orgYAML))
	secret := o.run("key", "create", "red-app", "-q")
	if !strings.HasPrefix(secret, "sk-sluice-") || strings.Count(secret, "\n") != 1 || strings.ContainsAny(strings.TrimSpace(secret), " \t") {
		t.Errorf("-q printed %d bytes, not the secret alone", len(secret))
	}
	o.refused("already has a secret: --rotate (rotate: true) replaces it", "key", "create", "red-app")
	if again := o.run("key", "create", "red-app", "-q", "--rotate"); again == secret {
		t.Error("rotate gave the same secret")
	}
	columns(t, o.run("key", "create", "extra", "--team", "blue", "--app", "x"), "key extra: sk-sluice-", "It is not shown again.")
	columns(t, o.run("key", "list"), "KEY TEAM APP STATE EXPIRES ALIASES", "extra blue x active - *", "red-app red active - chat")
	if out := o.run("key", "list", "--team", "blue"); strings.Contains(out, "red-app") {
		t.Errorf("keys of blue:\n%s", out)
	}
	columns(t, o.run("key", "revoke", "red-app"), "key red-app is revoked; version ")
	o.refused("the key is revoked: --rotate (rotate: true) gives it a new secret", "key", "create", "red-app")
	columns(t, o.run("key", "list"), "red-app red revoked")
	o.refused(`no key "x"`, "key", "revoke", "x")
}

func TestCredentials(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(orgYAML))
	out, err := o.try("sk-provider\n", "credential", "set", "main")
	must(t, err)
	columns(t, out, "credential main is at version 1")
	status := o.run("credential", "status")
	columns(t, status, "CREDENTIAL PROVIDER VERSION SET BY DEPLOYMENTS", "main openai 1 2")
	if strings.Contains(out+status, "sk-provider") {
		t.Error("the secret was printed")
	}
	if _, err := o.try("", "credential", "set", "main"); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("empty: %v", err)
	}
	if _, err := o.try(strings.Repeat("x", secretMax+1), "credential", "set", "main"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("long: %v", err)
	}
}

func TestBudgetUsageStatus(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(orgYAML))
	month := time.Now().UTC().Format("200601")
	columns(t, o.run("budget", "show"), "SCOPE OWNER PERIOD CAP", "team red "+month+" $100.00 $0.00 $0.00 $0.00 $0.00 $0.00 $100.00 0.0% yes ")
	columns(t, o.run("budget", "credit", "red", "2.000000001", "--reason", "launch"), "team red "+month+" $100.00 $2.000000001")
	columns(t, o.run("budget", "credit", "red", "3", "--reason", "a ticket", "--id", "t-1"), "team red "+month+" $100.00 $5.000000001")
	columns(t, o.run("budget", "credit", "red", "3", "--reason", "a ticket", "--id", "t-1"), "team red "+month+" $100.00 $5.000000001",
		"This credit had been given already; nothing changed:", "team red $3.00 "+time.Now().UTC().Format("2006"))
	o.refused(`id: "t-1" is that of a credit of $3.00, `, "budget", "credit", "red", "1", "--reason", "x", "--id", "t-1")
	if out := o.run("budget", "show", "red"); !strings.Contains(out, "launch\n") || !strings.Contains(out, "t-1  ") || !strings.Contains(out, "a ticket\n") {
		t.Errorf("who gave what, and why, is not told:\n%s", out)
	}
	o.run("budget", "credit", "--reason", "taken back", "--", "red", "-3")
	columns(t, o.run("budget", "credit", "--reason", "back", "--", "red", "-1"), "team red "+month+" $100.00 $1.000000001")
	o.refused("reason: required", "budget", "credit", "red", "1")
	o.refused("is not an amount in dollars", "budget", "credit", "red", "1,50", "--reason", "x")
	o.refused(`no team "x"`, "budget", "show", "x")
	columns(t, o.run("usage", "--group-by", "team,alias"), "TEAM ALIAS REQUESTS ATTEMPTS ERRORS INPUT CACHED CACHE WRITES OUTPUT COST ESTIMATED")
	o.refused(`cannot group by "x"`, "usage", "--group-by", "x")
	columns(t, o.run("usage"), "no usage in this time")
	columns(t, o.run("status"), "cluster ", "configuration ", "the books balance", "NODE RAFT ROLE LAG ANSWERED",
		"quotad-0 127.0.0.1:0 leader 0 now", "no sidecars")

	for _, tc := range []struct {
		name, field, want string
		args              []string
	}{
		{"budget", "budgets", "", []string{"budget", "show", "-o", "json"}},
		{"usage", "rows", "", []string{"usage", "-o", "json"}},
		{"status", "leader_id", `"quotad-0"`, []string{"status", "-o", "json"}},
		{"apply", "differences", "[]", []string{"apply", "-o", "json", "-f", o.file(orgYAML)}},
		{"key", "keys", "", []string{"key", "list", "-o", "json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var v map[string]json.RawMessage
			out := o.run(tc.args...)
			must(t, json.Unmarshal([]byte(out), &v))
			if got, ok := v[tc.field]; !ok || tc.want != "" && string(got) != tc.want {
				t.Errorf("%s is %s in\n%s", tc.field, got, out)
			}
		})
	}
	o.refused("neither table nor json", "status", "-o", "xml")
}

func TestNobodyThere(t *testing.T) {
	o := &operator{t: t, addr: "127.0.0.1:1"}
	o.refused("no quotad answers at 127.0.0.1:1 (--addr", "status")
	o.refused("connection refused", "status")
	o.refused("--tls-cert, --tls-key: missing", "status", "--tls-ca", "none.pem")
	o.refused("tls.cert, tls.key", "status", "--tls-ca", "none.pem", "--tls-cert", "none.pem", "--tls-key", "none.pem")
}

func TestServeReportsItsConfiguration(t *testing.T) {
	cmd := command()
	cmd.SetArgs([]string{"serve", "--dev", "--listen", "0.0.0.0:1", "--log-level", "loud"})
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		t.Fatal("it started")
	}
	for _, want := range []string{"data_dir: required", "listen: 0.0.0.0:1 is not on loopback", `--log-level: unrecognized level: "loud"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestDollars(t *testing.T) {
	for _, tc := range []struct {
		nano int64
		want string
	}{
		{0, "$0.00"}, {1, "$0.000000001"}, {-1, "-$0.000000001"}, {12_500_000_000, "$12.50"}, {1_234_000_000, "$1.234"},
		{math.MaxInt64, "$9223372036.854775807"}, {math.MinInt64, "-$9223372036.854775808"},
	} {
		if got := dollars(tc.nano); got != tc.want {
			t.Errorf("%d: got %s, want %s", tc.nano, got, tc.want)
		}
	}
}

func TestParseDollars(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int64
	}{
		{"12.50", 12_500_000_000}, {"$12.5", 12_500_000_000}, {"-$1", -1e9}, {"-1", -1e9}, {"0.000000001", 1}, {"7.", 7e9},
		{"999999999.999999999", 999_999_999_999_999_999},
	} {
		if got, err := parseDollars(tc.text); err != nil || got != tc.want {
			t.Errorf("%q: got %d, %v; want %d", tc.text, got, err, tc.want)
		}
	}
	for text, want := range map[string]string{
		"1,5": "is not an amount in dollars", "0.0000000001": "has more than 9 decimals", "-1000000000": "is out of range: an amount has at most 9 digits",
	} {
		if _, err := parseDollars(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for _, bad := range []string{"", "-", "$", ".5", "1,5", "1e3", "+1", "--1", "$-1", "1.2.3", "1.-2", "0.0000000001", "1000000000", "1_0", " 1", "1 ", "٣"} {
		if got, err := parseDollars(bad); err == nil {
			t.Errorf("%q: got %d, want an error", bad, got)
		}
	}
}

func TestDollarsThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nano := rapid.Int64Range(-999_999_999_999_999_999, 999_999_999_999_999_999).Draw(t, "nano")
		if got, err := parseDollars(dollars(nano)); err != nil || got != nano {
			t.Fatalf("%d: %s: got %d, %v", nano, dollars(nano), got, err)
		}
	})
}

func FuzzParseDollars(f *testing.F) {
	for _, s := range []string{"12.50", "-$3", "0.000000001", "1e9", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseDollars(s)
		if err != nil {
			return
		}
		if again, err := parseDollars(dollars(n)); err != nil || again != n {
			t.Fatalf("%q: %d, again %d, %v", s, n, again, err)
		}
	})
}
