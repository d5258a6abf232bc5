package system

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTenMistakes: every mistake of a file is reported at once, with its line, and nothing is applied.
func TestTenMistakes(t *testing.T) {
	s := start(t, 1, 0, func(base string) string { return org(base, "{ monthly: 1 }", "{ rpm: 1 }") })
	before := s.quotad("get")
	lines := []struct{ text, fault string }{
		{"version: 1", ""},
		{"currency: EUR", "currency"},
		{"colour: blue", "colour"},
		{"prices:", ""},
		{"  - { id: p1, valid_from: yesterday, per_million_usd: { chat: { input: -2.00 } } }", "valid_from"},
		{"credentials: { main: { provider: openai } }", ""},
		{"deployments:", ""},
		{"  - { id: a, provider: nobody, base_url: \"http://x/v1\", model: m, price: chat }", "provider"},
		{"  - { id: b, provider: openai, base_url: \"ftp://x\", model: m, credential: main, price: chat }", "base_url"},
		{"  - { id: c, provider: openai, base_url: \"http://x/v1\", model: m, credential: none, price: chat }", "credential"},
		{"aliases:", ""},
		{"  x: { targets: [ { deployment: missing } ] }", "deployment"},
		{"teams:", ""},
		{"  t: { budget: { monthly: much }, timezone: Mars/Base }", "monthly"},
		{"keys:", ""},
		{"  - { id: k, team: ghost, secret_sha256: abc, outage: maybe, limits: { rpm: -1 } }", "team"},
	}
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&text, l.text)
	}
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, "quotad"), "apply", "-f", file, "--addr", "http://"+s.nodes[0].admin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if cmd.Run() == nil {
		t.Fatal("a bad file was applied")
	}
	got := errs.String()
	count := 0
	for i, l := range lines {
		if l.fault == "" {
			continue
		}
		found := false
		for line := range strings.Lines(got) {
			if strings.Contains(line, fmt.Sprintf("bad.yaml:%d:", i+1)) {
				count++
				found = found || strings.Contains(line, l.fault)
			}
		}
		if !found {
			t.Errorf("line %d: nothing about %s", i+1, l.fault)
		}
	}
	if count < 10 {
		t.Errorf("%d faults are reported, want at least ten at once:\n%s", count, got)
	}
	if after := s.quotad("get"); after != before {
		t.Error("something was applied")
	}
}

// TestREST: the admin API as curl sees it.
func TestREST(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 100 }", "{ rpm: 6000 }") })
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.nodes[0].admin+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	code, body := ask("POST", "/admin/v1/keys", `{"id":"rest","team":"t"}`)
	var key struct{ Secret string }
	s.decode(body, &key)
	if code != 200 || !strings.HasPrefix(key.Secret, "sk-sluice-") {
		t.Fatalf("create: %d %s", code, body)
	}
	try := func() int {
		return s.call(t.Context(), s.sidecars[0], "/v1/chat/completions", key.Secret, say("tokens=3", "")).status
	}
	s.eventually("the key works", func() bool { return try() == 200 })
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/admin/v1/keys", `{"id":"rest","team":"t"}`, 409, "rotate"},
		{"POST", "/admin/v1/keys", `{"id":"other"}`, 400, "team"},
		{"PUT", "/admin/v1/aliases/second", `{"targets":[{"deployment":"main"}]}`, 200, "version"},
		{"PUT", "/admin/v1/aliases/third", `{"targets":[{"deployment":"none"}]}`, 400, "none"},
		{"PUT", "/admin/v1/aliases/third", `{"target":[]}`, 400, "target"},
		{"PUT", "/admin/v1/budgets/t", `{"monthly":12.5,"hard":true}`, 200, "version"},
		{"PUT", "/admin/v1/budgets/nobody", `{"monthly":1}`, 404, "nobody"},
		{"PUT", "/admin/v1/prices/p2", `{"valid_from":"2026-02-01T00:00:00Z","per_million_usd":{"chat":{"input":1}}}`, 200, "version"},
		{"PUT", "/admin/v1/prices/p1", `{"valid_from":"2026-01-01T00:00:00Z","per_million_usd":{"chat":{"input":9}}}`, 400, "p1"},
		{"GET", "/admin/v1/status", "", 200, "sidecar-0"},
		{"GET", "/admin/v1/usage?group_by=nothing", "", 400, "nothing"},
		{"POST", "/admin/v1/keys/rest:revoke", `{}`, 200, "version"},
		{"POST", "/admin/v1/keys/none:revoke", `{}`, 404, "none"},
	} {
		if code, body := ask(c.method, c.path, c.body); code != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s %s: got %d %s, want %d and %q", c.method, c.path, c.body, code, body, c.status, c.says)
		}
	}
	s.eventually("the key is revoked", func() bool { return try() == 401 })
	s.eventually("usage by REST", func() bool {
		_, body := ask("GET", "/admin/v1/usage?team=t&group_by=key", "")
		return strings.Contains(body, `"rest"`)
	})
	if b := s.budget("t"); b.Cap != 12_500_000_000 {
		t.Errorf("the budget is %d", b.Cap)
	}
	// A file that says nothing of the key's end must not bring it back.
	s.quotad("apply", "-f", s.written(org(s.fakeURL, "{ monthly: 100 }", "{ rpm: 6000 }")))
	if got := try(); got != 401 {
		t.Errorf("after applying the file again the revoked key gets %d", got)
	}
}
