package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

//go:embed org.yaml.tmpl
var orgTemplate string

const (
	fakeKey       = "fake-provider-key"
	aliasBytesMax = 64 // the registry's
)

// org is what the demo organisation depends on.
type org struct {
	Fake              string
	KeySHA256         string
	OpenAI, Anthropic bool
	Upstream, Model   string
	Alias             string // what callers call the model
	UpstreamKey       bool
}

// The keys of providers, as their own SDKs know them.
const (
	openAIEnv    = "OPENAI_API_KEY"
	anthropicEnv = "ANTHROPIC_API_KEY"
	upstreamEnv  = "UPSTREAM_API_KEY"
)

// aliases lists the models of the demo organisation.
func (s *stack) aliases() []string {
	names := []string{"chat", "chat-anthropic", "embed"}
	if os.Getenv(openAIEnv) != "" {
		names = append(names, "gpt-5-mini")
	}
	if os.Getenv(anthropicEnv) != "" {
		names = append(names, "claude-haiku-4-5")
	}
	if s.model != "" {
		names = append(names, aliasOf(s.model))
	}
	return names
}

// aliasOf makes an alias of a model's name: those of servers hold slashes and colons (qwen3:8b), which aliases must not.
func aliasOf(model string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, model)
	return name[:min(len(name), aliasBytesMax)]
}

// apply writes the demo organisation, applies it, and sets the credentials.
func (s *stack) apply(ctx context.Context, o org) error {
	o.OpenAI = os.Getenv(openAIEnv) != ""
	o.Anthropic = os.Getenv(anthropicEnv) != ""
	o.Upstream, o.Model, o.Alias = s.upstream, s.model, aliasOf(s.model)
	o.UpstreamKey = os.Getenv(upstreamEnv) != ""
	file := filepath.Join(s.dir, "org.yaml")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	t, err := template.New("org").Parse(orgTemplate)
	if err != nil {
		return err
	}
	if err := errors.Join(t.Execute(f, o), f.Close()); err != nil {
		return err
	}
	if err := s.quotad(ctx, "", "apply", "-f", file); err != nil {
		return err
	}
	secrets := []struct{ name, value string }{{"fake-openai", fakeKey}, {"fake-anthropic", fakeKey}}
	for name, env := range map[string]string{"openai": openAIEnv, "anthropic": anthropicEnv, "own": upstreamEnv} {
		if v := os.Getenv(env); v != "" && (name != "own" || o.Upstream != "") {
			secrets = append(secrets, struct{ name, value string }{name, v})
		}
	}
	for _, c := range secrets {
		if err := s.quotad(ctx, c.value, "credential", "set", c.name); err != nil {
			return err
		}
	}
	return nil
}

// checkUpstream says what is likely wrong with the user's own server. It is no reason not to start: the server may
// come later.
func (s *stack) checkUpstream(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	switch code, err := status(ctx, strings.TrimSuffix(s.upstream, "/")+"/models"); {
	case err != nil:
		fmt.Fprintf(os.Stderr, "dev: warning: UPSTREAM does not answer: %v\n\n", err)
	case code == http.StatusNotFound && !strings.HasSuffix(strings.TrimSuffix(s.upstream, "/"), "/v1"):
		fmt.Fprintf(os.Stderr, "dev: warning: UPSTREAM has no /models: most servers want %s/v1\n\n", strings.TrimSuffix(s.upstream, "/"))
	}
}

// demoKey is the demo application's secret, kept between runs.
func (s *stack) demoKey() (string, error) {
	file := filepath.Join(s.dir, "demo.key")
	if b, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	secret := "sk-sluice-" + randomHex(20)
	return secret, os.WriteFile(file, []byte(secret+"\n"), 0o600)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}

func sum(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}
