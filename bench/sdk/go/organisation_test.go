package sdk

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// org is a team, a key, an alias and deployments of a test's own, so that limits, breakers and counts are nobody
// else's. Strings are in the words of org.yaml.
type org struct {
	budget string // of the team; default { monthly: 100 }
	limits string // of the key; default {}
	alias  string // more of the alias, such as "max_attempts: 1,"
	chat   bool   // its deployments know no dialect but chat

	secret, model string
	upstream      [2]string // the model names at the provider; the alias tries them in this order
}

// made applies the organisation and waits until the sidecar knows the key.
func (o org) made(t *testing.T) org {
	t.Helper()
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	name := "go-" + hex.EncodeToString(id[:])
	o.secret, o.model = "sk-sluice-"+name, "chat-"+name
	o.upstream = [2]string{"first-" + name, "second-" + name}
	sum := sha256.Sum256([]byte(o.secret))
	text, err := os.ReadFile(os.Getenv("SLUICE_ORG"))
	if err != nil {
		t.Fatalf("SLUICE_ORG must name the stack's org.yaml: %v", err)
	}
	insert := func(section, format string, args ...any) {
		text = bytes.Replace(text, []byte("\n"+section+":\n"), []byte("\n"+section+":\n  "+fmt.Sprintf(format, args...)+"\n"), 1)
	}
	provider, credential := "openai", "fake-openai"
	if o.chat {
		provider, credential = "compatible", name
		insert("credentials", "%s: { provider: compatible }", name)
	}
	for _, model := range o.upstream {
		insert("deployments", `- { id: %s, provider: %s, base_url: "%s/v1", model: %s, credential: %s, price: chat }`,
			model, provider, providerURL(), model, credential)
	}
	insert("aliases", "%s: { %s targets: [ { deployment: %s, priority: 1 }, { deployment: %s, priority: 2 } ] }",
		o.model, o.alias, o.upstream[0], o.upstream[1])
	insert("teams", "%s: { budget: %s }", name, cmp.Or(o.budget, "{ monthly: 100 }"))
	insert("keys", "- { id: %s, team: %s, secret_sha256: %s, aliases: [%s], limits: %s }",
		name, name, hex.EncodeToString(sum[:]), o.model, cmp.Or(o.limits, "{}"))
	post(t, adminURL()+"/admin/v1/config:apply", map[string]any{"yaml": string(text), "file": name})
	if o.chat {
		post(t, adminURL()+"/admin.v1.AdminService/SetCredential", map[string]any{"name": name, "secret": []byte(providerKey)})
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		if _, err := newApp(t, o.secret).Models.Get(testContext(t), o.model); err == nil {
			return o
		} else if t.Context().Err() != nil || !strings.Contains(err.Error(), "401") {
			t.Fatal(err)
		}
	}
}

// fault makes the provider answer the next requests for a model so; next 0 means all.
func fault(t *testing.T, model string, next int, set map[string]any) {
	t.Helper()
	post(t, providerURL()+"/control", map[string]any{"add_rules": []any{map[string]any{"model": model, "next": next, "set": set}}})
}

// received is how many requests for a model have reached the provider.
func received(t *testing.T, model string) int64 {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, witnessURL()+"?records=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	var w struct {
		Models map[string]struct{ Received int64 }
	}
	do(t, req, &w)
	return w.Models[model].Received
}

// providerKey is the key that the fake provider of deploy/dev takes.
const providerKey = "fake-provider-key"

func adminURL() string { return cmp.Or(os.Getenv("SLUICE_ADMIN"), "http://127.0.0.1:7072") }

func providerURL() string { return strings.TrimSuffix(witnessURL(), "/witness") }

func post(t *testing.T, url string, body any) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connect-Protocol-Version", "1") // secrets are set by RPC alone
	do(t, req, nil)
}

// do sends a request and decodes its answer into v unless that is nil.
func do(t *testing.T, req *http.Request, v any) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s", req.URL, resp.StatusCode, b.Bytes())
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(b.Bytes(), v); err != nil {
		t.Fatal(err)
	}
}
