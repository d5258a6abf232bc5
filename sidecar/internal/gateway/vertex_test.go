package gateway

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
)

// vertexRig is a rig with one deployment on Vertex AI, whose service account gets the tokens t1, t2 and so on.
func vertexRig(t *testing.T, p *provider) *rig {
	t.Helper()
	var tokens atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":3600}`, tokens.Add(1))
	}))
	t.Cleanup(issuer.Close)
	p.id, p.dialect = "google", "vertex"
	p.change = func(d *quotav1.Deployment) { d.Project, d.Region, d.Credential = "p1", "europe-west4", "main" }
	r := newRig(t, []*provider{p}, nil)
	r.g.Adapters["vertex"] = gemini.NewVertex()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	r.must(err)
	file, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "a@b", "token_uri": issuer.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	r.must(err)
	r.g.Policy.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "main", Secret: file}}})
	return r
}

const (
	tokenRefused = `{"error":{"code":401,"message":"synthetic UNAUTHENTICATED","status":"UNAUTHENTICATED"}}`
	geminiAnswer = `{"candidates":[{"content":{"parts":[{"text":"hello"}],"role":"model"},"index":0,"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":5,"totalTokenCount":15}}`
	claudeAnswer = `{"id":"m","type":"message","role":"assistant","model":"claude-mid","content":[{"type":"text","text":"hello"}],` +
		`"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}`
)

// TestVertexTokenIsReplaced: a token that the provider refuses is replaced inside the attempt, once.
func TestVertexTokenIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name, good string
		status     int
	}{
		{"the new one is taken", "Bearer t2", 200},
		{"the new one is refused too", "Bearer none", 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &provider{model: "gemini-fx-3"}
			p.answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json; charset=UTF-8")
				const path = "/v1/projects/p1/locations/europe-west4/publishers/google/models/gemini-fx-3:generateContent"
				switch {
				case r.URL.Path != path:
					w.WriteHeader(404)
				case r.Header.Get("Authorization") != c.good:
					w.WriteHeader(401)
					_, _ = io.WriteString(w, tokenRefused)
				default:
					_, _ = io.WriteString(w, geminiAnswer)
				}
			}
			r := vertexRig(t, p)
			a := r.chat(hello)
			if a.status != c.status || p.calls.Load() != 2 || strings.Contains(a.body, "UNAUTHENTICATED") {
				t.Fatalf("%d calls, status %d: %s", p.calls.Load(), a.status, a.body)
			}
			if c.status == 200 && (a.get("choices.0.message.content").Str != "hello" || a.get("usage.total_tokens").Int() != 15) {
				t.Errorf("%s", a.body)
			}
			if n := len(r.attempts()); n != 1 {
				t.Errorf("%d attempts", n)
			}
		})
	}
}

// TestClaudeOnVertex: Anthropic's models there are asked in their own dialect, whichever the caller speaks.
func TestClaudeOnVertex(t *testing.T) {
	for _, c := range []struct{ name, path, body, want string }{
		{"chat", "/v1/chat/completions", hello, "choices.0.message.content"},
		{"messages", "/v1/messages", `{"model":"chat","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, "content.0.text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &provider{model: "claude-mid"}
			p.answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				const path = "/v1/projects/p1/locations/europe-west4/publishers/anthropic/models/claude-mid:rawPredict"
				if r.URL.Path != path || r.Header.Get("Authorization") != "Bearer t1" {
					w.WriteHeader(404)
				}
				_, _ = io.WriteString(w, claudeAnswer)
			}
			r := vertexRig(t, p)
			a := r.send("POST", c.path, c.body)
			if a.status != 200 || a.get(c.want).Str != "hello" || a.get("model").Str != "chat" {
				t.Fatalf("status %d: %s", a.status, a.body)
			}
			sent := p.lastBody()
			if !strings.Contains(sent, `"anthropic_version":"vertex-2023-10-16"`) || strings.Contains(sent, `"model"`) {
				t.Errorf("sent %s", sent)
			}
		})
	}
}
