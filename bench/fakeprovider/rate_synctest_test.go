package fakeprovider

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLimits: a model's limits are kept to the request and the token, and every head says truthfully what is left.
func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, client *http.Client) {
		err := s.Apply(Control{Limits: &map[string]Limits{
			"gpt":    {Requests: 3, Tokens: 600},
			"claude": {Requests: 60, InputTokens: 100, OutputTokens: 60},
		}})
		if err != nil {
			t.Fatal(err)
		}
		send := func(path, body string) reply {
			t.Helper()
			req, err := http.NewRequest("POST", "http://fake/v1/"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Api-Key", "secret")
			req.Header.Set("Anthropic-Version", "2023-06-01")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return reply{resp.StatusCode, resp.Header, string(b), err}
		}
		want := func(r reply, status int, header map[string]string) {
			t.Helper()
			if r.status != status {
				t.Errorf("status %d, want %d: %s", r.status, status, r.body)
			}
			for name, v := range header {
				if got := r.header.Get(name); got != v {
					t.Errorf("%s: %q, want %q", name, got, v)
				}
			}
		}
		chat := func(more string) reply {
			return send("chat/completions", `{"model":"gpt","messages":[{"role":"user","content":"hi"}]`+more+`}`)
		}
		// The cap counts, not what was written; without a cap the prompt: one token for the text, three for the message.
		want(chat(`,"max_tokens":400`), 200, map[string]string{
			"x-ratelimit-limit-requests": "3", "x-ratelimit-remaining-requests": "2", "x-ratelimit-reset-requests": "20s",
			"x-ratelimit-limit-tokens": "600", "x-ratelimit-remaining-tokens": "200", "x-ratelimit-reset-tokens": "40s",
		})
		want(chat(``), 200, map[string]string{"x-ratelimit-remaining-requests": "1", "x-ratelimit-remaining-tokens": "196"})
		want(chat(`,"max_tokens":246`), 429, map[string]string{
			"x-ratelimit-remaining-requests": "1", "x-ratelimit-remaining-tokens": "196", "retry-after": "5", "retry-after-ms": "5000",
		})
		<-time.After(5 * time.Second)
		want(chat(`,"max_tokens":246,"stream":true`), 200, map[string]string{
			"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "0",
		})
		<-time.After(5 * time.Second)
		want(chat(``), 429, map[string]string{"x-ratelimit-remaining-tokens": "50", "retry-after-ms": "10000"})
		want(chat(`,"max_tokens":601`), 429, nil) // larger than the whole

		message := func(more string) reply {
			return send("messages", `{"model":"claude","max_tokens":1000,"messages":[{"role":"user","content":"`+more+`hi"}]}`)
		}
		// What is read from the cache is free, the cap does not count, and output may leave a debt.
		want(message("[[cache-read=5 tokens=50]]"), 200, map[string]string{
			"anthropic-ratelimit-input-tokens-remaining": "95", "anthropic-ratelimit-output-tokens-remaining": "60",
			"anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-output-tokens-reset": time.Now().UTC().Format(time.RFC3339),
		})
		want(message("[[tokens=40]]"), 200, map[string]string{"anthropic-ratelimit-output-tokens-remaining": "10"})
		// 30 too many: at one a second the first token is back after 31 seconds.
		want(message(""), 429, map[string]string{"anthropic-ratelimit-output-tokens-remaining": "0", "retry-after": "31"})
		<-time.After(31 * time.Second)
		want(message("[[tokens=1]]"), 200, nil)

		w := s.Witness(0)
		if w.Models["gpt"].RateLimited != 3 || w.Models["gpt"].Completed != 3 || w.Models["claude"].RateLimited != 1 ||
			w.Totals.Received != w.Totals.Completed+w.Totals.RateLimited {
			t.Errorf("%+v", w.Totals)
		}
	})
}
