package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// org is an organisation of one team and one key; limits and budget in the words of org.yaml.
func org(base, budget, keyLimits string) string {
	return fmt.Sprintf(`version: 1
currency: USD
prices:
  - id: p1
    valid_from: 2026-01-01T00:00:00Z
    per_million_usd: { chat: { input: 2.00, output: 10.00 } }
credentials: { main: { provider: openai } }
deployments:
  - { id: main, provider: openai, base_url: "%s", model: m1, credential: main, price: chat }
aliases:
  chat: { targets: [ { deployment: main } ] }
teams:
  t: { budget: %s }
keys:
  - { id: app, team: t, secret_sha256: %s, limits: %s }
`, base, budget, sum(appKey), keyLimits)
}

func say(directive string, more string) string {
	return fmt.Sprintf(`{"model":"chat","messages":[{"role":"user","content":"[[%s]] hello"}]%s}`, directive, more)
}

// usage is what GET /v1/usage and `quotad usage` both say, in sum.
type usage struct {
	requests, input, output, cost int64
}

func (s *stack) usageHTTP(sc *sidecar) usage {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, sc.url+"/v1/usage", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("x-api-key", appKey)
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Data []struct {
			Requests int64
			Tokens   struct{ Input, Output int64 }
			CostNano int64 `json:"cost_nano"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		s.t.Fatal(err)
	}
	var u usage
	for _, r := range out.Data {
		u.requests, u.input, u.output, u.cost = u.requests+r.Requests, u.input+r.Tokens.Input, u.output+r.Tokens.Output, u.cost+r.CostNano
	}
	return u
}

func (s *stack) usageCLI() usage {
	s.t.Helper()
	var out struct {
		Rows []struct {
			Requests int64 `json:",string"`
			Tokens   struct {
				Input  int64 `json:",string"`
				Output int64 `json:",string"`
			}
			CostNano int64 `json:"cost_nano,string"`
		}
	}
	s.decode(s.quotad("usage", "--group-by", "team,hour", "-o", "json"), &out)
	var u usage
	for _, r := range out.Rows {
		u.requests, u.input, u.output, u.cost = u.requests+r.Requests, u.input+r.Tokens.Input, u.output+r.Tokens.Output, u.cost+r.CostNano
	}
	return u
}

func TestMainJob(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 100 }", "{ rpm: 60000, tpm: 5000000 }") })
	sc := s.sidecars[0]

	t.Run("json", func(t *testing.T) {
		a := s.chat(sc, say("tokens=7", ""))
		var out struct {
			Model   string
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				PromptTokens     int64 `json:"prompt_tokens"`
				CompletionTokens int64 `json:"completion_tokens"`
			}
			Gateway struct {
				Deployment string
				Cost       json.Number
			} `json:"x_gateway"`
		}
		s.decode(a.body, &out)
		if a.status != 200 || out.Model != "chat" || out.Choices[0].Message.Content != fakeprovider.Text(7, false) ||
			out.Usage.CompletionTokens != 7 || out.Gateway.Deployment != "main" || out.Gateway.Cost.String() == "0" {
			t.Errorf("%d %s", a.status, a.body)
		}
		for _, h := range []string{"x-request-id", "x-gw-deployment", "x-gw-attempts", "x-gw-config-version",
			"x-ratelimit-limit-tokens", "x-ratelimit-remaining-requests", "x-gw-budget-remaining"} {
			if a.header.Get(h) == "" {
				t.Errorf("header %s is missing", h)
			}
		}
	})
	t.Run("stream", func(t *testing.T) {
		a := s.chat(sc, say("tokens=5", `,"stream":true`))
		ev, err := events(strings.NewReader(a.body))
		if err != nil || ev[len(ev)-1] != "[DONE]" {
			t.Fatalf("%v %v", ev, err)
		}
		text := ""
		for _, e := range ev[:len(ev)-1] {
			var c struct {
				Choices []struct{ Delta struct{ Content string } }
				Usage   *struct{}
			}
			s.decode(e, &c)
			if len(c.Choices) == 0 || c.Usage != nil {
				t.Errorf("usage was not asked for: %s", e)
				continue
			}
			text += c.Choices[0].Delta.Content
		}
		if text != fakeprovider.Text(5, false) {
			t.Errorf("got %q", text)
		}
	})
	t.Run("usage agrees with the witness", func(t *testing.T) {
		w := s.fake.Witness(0).Totals
		want := usage{w.Completed, w.PromptTokens, w.OutputTokens, w.CostNano}
		s.eventually("rollups", func() bool { return s.usageCLI() == want && s.usageHTTP(sc) == want })
		s.eventually("budget", func() bool { return s.budget("t").Settled == want.cost })
	})
	t.Run("bad input", func(t *testing.T) { badInput(t, s, sc) })
	t.Run("live changes", func(t *testing.T) { liveChanges(t, s, sc) })
}

func badInput(t *testing.T, s *stack, sc *sidecar) {
	before := s.fake.Witness(0).Totals.Received
	for name, c := range map[string]struct {
		path, key, body string
		status          int
		code            string
	}{
		"malformed JSON":      {"/v1/chat/completions", appKey, `{"model":`, 400, "invalid_json"},
		"unknown alias":       {"/v1/chat/completions", appKey, strings.Replace(say("tokens=1", ""), `"chat"`, `"none"`, 1), 404, "model_not_found"},
		"no key":              {"/v1/chat/completions", "", say("tokens=1", ""), 401, "invalid_api_key"},
		"unknown key":         {"/v1/chat/completions", "sk-nobody", say("tokens=1", ""), 401, "invalid_api_key"},
		"negative max_tokens": {"/v1/chat/completions", appKey, say("tokens=1", `,"max_tokens":-1`), 400, "invalid_value"},
		"more than the limit": {"/v1/chat/completions", appKey, say("tokens=1", `,"max_tokens":9000000`), 400, "request_exceeds_limit"},
		"unknown route":       {"/v1/completions", appKey, `{}`, 404, "unknown_route"},
		"33 MiB":              {"/v1/chat/completions", appKey, say("tokens=1", `,"pad":"`+strings.Repeat("x", 33<<20)+`"`), 413, "request_too_large"},
	} {
		a := s.call(t.Context(), sc, c.path, c.key, c.body)
		if a.status != c.status || a.code() != c.code || a.header.Get("x-should-retry") != "false" {
			t.Errorf("%s: got %d %s %v (%v), want %d %s", name, a.status, a.body, a.header["X-Should-Retry"], a.err, c.status, c.code)
		}
	}
	for head, want := range map[string]string{"Authorization: Bearer " + appKey + "\r\n": "HTTP/1.1 413 ", "": "HTTP/1.1 401 "} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(sc.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + head + "Content-Length: 900000000\r\n\r\n{\"m")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1024)
		n, err := conn.Read(b)
		if err != nil || !strings.HasPrefix(string(b[:n]), want) {
			t.Errorf("a lying length: %q %v, want %s", b[:n], err, want)
		}
	}
	if now := s.fake.Witness(0).Totals.Received; now != before {
		t.Errorf("%d bad requests reached the provider", now-before)
	}
	if held := s.budget("t").Held; held != 0 {
		t.Errorf("bad requests left %d nano-dollars held", held)
	}
}

func liveChanges(t *testing.T, s *stack, sc *sidecar) {
	secret := strings.TrimSpace(s.quotad("key", "create", "second", "--team", "t", "-q"))
	try := func(key string) answer {
		return s.call(t.Context(), sc, "/v1/chat/completions", key, say("tokens=1", ""))
	}
	s.eventually("the new key works", func() bool { return try(secret).status == 200 })
	s.quotad("key", "revoke", "second")
	s.eventually("the revoked key is refused", func() bool { a := try(secret); return a.status == 401 && a.code() == "invalid_api_key" })

	s.apply(strings.Replace(org(s.fakeURL, "{ monthly: 100 }", "{ rpm: 60000, tpm: 5000000 }"), "model: m1", "model: m2", 1))
	s.eventually("the new deployment serves", func() bool {
		try(appKey)
		return s.fake.Witness(0).Models["m2"].Completed > 0
	})
	newPrice := strings.Replace(org(s.fakeURL, "{ monthly: 100 }", "{ rpm: 60000, tpm: 5000000 }"), "prices:\n", `prices:
  - id: p2
    valid_from: 2026-02-01T00:00:00Z
    per_million_usd: { chat: { input: 1.00, output: 1.00 } }
`, 1)
	s.apply(newPrice)
	s.eventually("the new price is in force", func() bool { return strings.Contains(try(appKey).body, `"price_version":"p2"`) })
	s.eventually("status shows the acknowledged version", func() bool {
		var st struct {
			ConfigVersion string `json:"config_version"`
			Sidecars      []struct {
				State         string
				ConfigVersion string `json:"config_version"`
			}
		}
		s.decode(s.quotad("status", "-o", "json"), &st)
		return slices.ContainsFunc(st.Sidecars, func(c struct {
			State         string
			ConfigVersion string `json:"config_version"`
		}) bool {
			return c.State == "connected" && c.ConfigVersion == st.ConfigVersion
		})
	})
	s.apply(org(s.fakeURL, "{ monthly: 100 }", "{ rpm: 1, tpm: 5000000 }"))
	s.eventually("the new limit holds", func() bool {
		a := try(appKey)
		return a.status == 429 && a.code() == "key_requests_per_minute" && a.header.Get("retry-after") != ""
	})
}

func TestCallerLeaves(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 100 }", "{ rpm: 60000, tpm: 5000000 }") })
	sc := s.sidecars[0]
	for name, directive := range map[string]string{"before the first token": "first=1h", "in mid-stream": "tokens=1000 gap=10ms"} {
		t.Run(name, func(t *testing.T) {
			s.fake.Reset()
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan answer, 1)
			go func() {
				done <- s.call(ctx, sc, "/v1/chat/completions", appKey, say(directive, `,"stream":true,"max_tokens":1000`))
			}()
			s.eventually("the provider works", func() bool {
				w := s.fake.Witness(1)
				return w.Open == 1 && (name == "before the first token" || w.Records[0].TokensSent >= 3)
			})
			leave()
			<-done
			s.eventually("the provider sees the close", func() bool { return s.fake.Witness(0).Totals.Cancelled == 1 })
			s.eventually("nothing is held", func() bool { return s.budget("t").Held == 0 })
		})
	}
	s.eventually("the partial is settled", func() bool { return s.budget("t").Settled > 0 })
}

func TestUnknownKeyWhileQuotadIsAway(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 100 }", "{ rpm: 600, tpm: 5000000 }") })
	sc := s.sidecars[0]
	if a := s.chat(sc, say("tokens=1", "")); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.nodes[0].Kill()
	s.eventually("the sidecar knows", func() bool { return s.metric(sc, "sluice_quotad_connected") == 0 })
	if a := s.chat(sc, say("tokens=1", "")); a.status != 200 {
		t.Errorf("a known key goes on: %d %s", a.status, a.body)
	}
	a := s.call(t.Context(), sc, "/v1/chat/completions", "sk-new", say("tokens=1", ""))
	if a.status != 503 || a.code() != "quota_unavailable" || a.header.Get("retry-after") == "" {
		t.Errorf("an unknown key: %d %s %v", a.status, a.body, a.header)
	}
	if b, err := get(sc.ops + "/readyz"); err != nil || b != "ready\n" {
		t.Errorf("readiness must not depend on quotad: %q %v", b, err)
	}
}

// TestStopIsClean: SIGTERM lets a running stream end, and nothing stays behind.
func TestStopIsClean(t *testing.T) {
	s := start(t, 1, 1, func(base string) string { return org(base, "{ monthly: 100 }", "{ rpm: 60000 }") })
	sc := s.sidecars[0]
	done := make(chan answer, 1)
	go func() { done <- s.chat(sc, say("tokens=20 gap=50ms", `,"stream":true,"max_tokens":20`)) }()
	s.eventually("the stream runs", func() bool { w := s.fake.Witness(1); return w.Open == 1 && w.Records[0].TokensSent > 2 })
	sc.Term(t)
	if a := <-done; a.err != nil || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("the stream must end well: %v %q", a.err, a.body)
	}
	want := s.fake.Witness(0).Totals.CostNano
	if b := s.budget("t"); b.Settled != want || b.Outstanding != 0 || b.Suspense != 0 {
		t.Errorf("after goodbye: %+v, want %d settled and nothing out", b, want)
	}
	if got := s.usageCLI().cost; got != want {
		t.Errorf("usage says %d, want %d", got, want)
	}
}
