package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad/internal/keyring"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/replica/replicatest"
)

// patience is how long a test waits for what must happen. It is long, so that only a fault reaches it.
const patience = 60 * time.Second

const orgYAML = `version: 1
prices:
  - id: p1
    valid_from: 2026-01-01
    per_million_usd: { mid: { input: 2, output: 10 } }
credentials:
  main: { provider: openai }
deployments:
  - { id: d, provider: openai, base_url: "https://h/v1", model: m, credential: main, price: mid }
aliases:
  chat: { targets: [{ deployment: d }] }
teams:
  red: { budget: { monthly: 100 }, limits: { rpm: 60 } }
  blue: {}
keys:
  - { id: red-app, team: red, aliases: [chat] }
`

// plane is the admin plane of one running node.
type plane struct {
	t      *testing.T
	node   *replica.Node
	client adminv1connect.AdminServiceClient
	url    string
	logs   *observer.ObservedLogs
}

type someSidecars []*adminv1.SidecarStatus

func (s someSidecars) Sidecars() []*adminv1.SidecarStatus { return s }

// newPlane starts a node and serves its admin plane, both until the end of the test.
func newPlane(t *testing.T) *plane {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	log := zap.New(core)
	node := replicatest.Single(t, log)
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	p := serve(t, node, ring, log)
	p.node, p.logs = node, logs
	return p
}

// serve serves a service over HTTP.
func serve(t *testing.T, node Node, ring *keyring.Keyring, log *zap.Logger) *plane {
	t.Helper()
	h, err := New(node, ring, someSidecars{{Identity: "gw", Incarnation: 7, State: "connected"}}, Config{Build: "build-1"}, log).Handler()
	must(t, err)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return &plane{t: t, client: adminv1connect.NewAdminServiceClient(srv.Client(), srv.URL), url: srv.URL}
}

func ctxFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call makes a call that must succeed.
func call[Req, Resp any](p *plane,
	f func(adminv1connect.AdminServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), m *Req,
) *Resp {
	p.t.Helper()
	resp, err := f(p.client, ctxFor(p.t), connect.NewRequest(m))
	if err != nil {
		p.t.Fatalf("%T: %v", m, err)
	}
	return resp.Msg
}

// refusal makes a call that must fail, and returns its error.
func refusal[Req, Resp any](p *plane,
	f func(adminv1connect.AdminServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), m *Req,
) *connect.Error {
	p.t.Helper()
	_, err := f(p.client, ctxFor(p.t), connect.NewRequest(m))
	var ce *connect.Error
	if !errors.As(err, &ce) {
		p.t.Fatalf("%T: got %v, want an error of the server", m, err)
	}
	return ce
}

func (p *plane) apply(yaml string) *adminv1.ApplyResponse {
	p.t.Helper()
	return call(p, adminv1connect.AdminServiceClient.Apply, &adminv1.ApplyRequest{Yaml: yaml, Actor: "ann"})
}

func (p *plane) createKey(id string) string {
	p.t.Helper()
	return call(p, adminv1connect.AdminServiceClient.CreateKey, &adminv1.CreateKeyRequest{Id: id}).GetSecret()
}

func (p *plane) keyState(id string) string {
	p.t.Helper()
	for _, k := range call(p, adminv1connect.AdminServiceClient.ListKeys, &adminv1.ListKeysRequest{}).GetKeys() {
		if k.GetId() == id {
			return k.GetState()
		}
	}
	return "absent"
}

// rest makes a plain HTTP call and returns the status, the body as JSON and as text without spaces.
func (p *plane) rest(method, path, body string) (int, map[string]any, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctxFor(p.t), method, p.url+path, strings.NewReader(body))
	must(p.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(p.t, err)
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%s %s: status %d, body is not JSON: %q", method, path, resp.StatusCode, b)
	}
	var compact bytes.Buffer // protojson varies its spaces
	must(p.t, json.Compact(&compact, b))
	return resp.StatusCode, v, compact.String()
}
