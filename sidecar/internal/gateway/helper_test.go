package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/credential"
	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/internal/route"
	"github.com/sluice-gateway/sluice/sidecar/internal/usage"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

const (
	appKey = "sk-app"
	hello  = `{"model":"chat","messages":[{"role":"user","content":"hi"}]}`
)

// provider is one deployment and how it answers.
type provider struct {
	id, dialect, model string
	answer             http.HandlerFunc
	change             func(*quotav1.Deployment)

	calls  atomic.Int64
	mu     sync.Mutex
	bodies []string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.bodies = append(p.bodies, string(b))
	p.mu.Unlock()
	p.calls.Add(1)
	p.answer(w, r)
}

func (p *provider) lastBody() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bodies) == 0 {
		return ""
	}
	return p.bodies[len(p.bodies)-1]
}

// fine answers in OpenAI's dialect.
func fine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`)
}

// failing answers with a status and pairs of header fields.
func failing(status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"no","type":"x","param":null,"code":null}}`)
	}
}

// rig is a gateway on a real socket, with providers behind it and a small ledger in quotad's place.
type rig struct {
	t      *testing.T
	g      *Gateway
	url    string
	events string
	ledger *ledger
	counts *prometheus.Registry
	key    string
	snap   *quotav1.Snapshot
	began  time.Time
}

// newRig serves alias chat from the providers, in their order. change may alter the snapshot first.
func newRig(t *testing.T, providers []*provider, change func(*quotav1.Snapshot)) *rig {
	t.Helper()
	sum := sha256.Sum256([]byte(appKey))
	alias := &quotav1.Alias{
		Name: "chat", MaxAttempts: 3, DefaultMaxOutput: 100,
		Timeouts: &quotav1.Timeouts{ConnectMs: 10_000, FirstTokenMs: 30_000, IdleMs: 30_000, TotalMs: 60_000},
	}
	snap := &quotav1.Snapshot{
		Version: 7, Aliases: []*quotav1.Alias{alias},
		Keys: []*quotav1.Key{{Id: "app", Team: "red", App: "shop", SecretSha256: sum[:], Outage: quotav1.Outage_OUTAGE_SHARE}},
		Prices: []*quotav1.PriceVersion{{Id: "p1", ValidFromMs: 1, Prices: []*quotav1.Price{
			{Name: "mid", Input: 2_000_000_000, CacheRead: 200_000_000, CacheWrite_5M: 2_500_000_000, CacheWrite_1H: 4_000_000_000, Output: 10_000_000_000},
		}}},
	}
	for i, p := range providers {
		s := httptest.NewServer(p)
		t.Cleanup(s.Close)
		d := &quotav1.Deployment{Id: p.id, Provider: p.dialect, BaseUrl: s.URL + "/v1", Model: p.model, Price: "mid"}
		if d.GetProvider() == "" {
			d.Provider = "openai"
		}
		if p.change != nil {
			p.change(d)
		}
		snap.Deployments = append(snap.Deployments, d)
		alias.Targets = append(alias.Targets, &quotav1.Target{Deployment: d.GetId(), Priority: int32(i), Weight: 1})
	}
	if change != nil {
		change(snap)
	}
	r := &rig{t: t, events: t.TempDir(), counts: prometheus.NewRegistry(), key: appKey, snap: snap, began: time.Now()}
	log := zap.NewNop()
	store := policy.NewStore("")
	rules, err := policy.Compile(snap)
	r.must(err)
	r.must(store.Install(rules, snap))
	store.SetSecrets(&quotav1.Credentials{})
	client, err := lease.New(lease.Config{AskWait: time.Minute}, log) // a busy machine must not look like an outage
	r.must(err)
	client.Configure(snap.GetResources())
	r.ledger = newLedger(client, snap.GetResources())
	recorder, err := usage.Open(usage.Config{Dir: r.events, Name: "test"}, log)
	r.must(err)
	watch, err := relay.NewWatcher()
	r.must(err)
	upstream := relay.NewClient(relay.Config{})
	credentials := credential.New(nil)
	r.g = &Gateway{
		Policy: store, Lease: client, Estimate: estimate.New(), Route: route.New(), Relay: upstream, Watch: watch,
		Adapters:    map[string]adapter.Adapter{"openai": openai.New(), "azure": openai.New(), "compatible": openai.New(), "anthropic": anthropic.New()},
		Credentials: credentials,
		Usage:       recorder, Rollups: usage.NewQuerier(), Metrics: NewMetrics(r.counts), Log: log,
		Connected: func() bool { return true },
	}
	server := NewServer(r.g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.url = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for _, run := range []func() error{
		func() error { return client.Run(ctx) }, func() error { return watch.Run(ctx) },
		func() error { return upstream.Run(ctx) }, func() error { return server.Serve(l) },
	} {
		ended.Go(func() { _ = run() })
	}
	client.Connected(r.ledger)
	t.Cleanup(func() {
		_ = server.Shutdown(ctx)
		stop()
		ended.Wait()
		r.ledger.calls.Wait()
		_ = recorder.Close()
		_ = client.Close()
		credentials.Close()
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// answer is what a caller saw.
type answer struct {
	status int
	header http.Header
	body   string
	closed bool // its connection, by the sidecar
}

func (a answer) get(path string) gjson.Result { return gjson.Get(a.body, path) }

// send makes a request with the rig's key; header are pairs.
func (r *rig) send(method, path, body string, header ...string) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, bytes.NewReader([]byte(body)))
	r.must(err)
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	r.must(err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	r.must(err)
	return answer{resp.StatusCode, resp.Header, string(b), resp.Close}
}

func (r *rig) chat(body string, header ...string) answer {
	r.t.Helper()
	return r.send("POST", "/v1/chat/completions", body, header...)
}

// attempts are the usage events so far, as they stand on disk.
func (r *rig) attempts() []gjson.Result {
	r.t.Helper()
	var out []gjson.Result
	files, err := filepath.Glob(filepath.Join(r.events, "*"))
	r.must(err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		r.must(err)
		lines := bufio.NewScanner(bytes.NewReader(b))
		for lines.Scan() {
			if !json.Valid(lines.Bytes()) {
				r.t.Fatalf("event %s", lines.Text())
			}
			out = append(out, gjson.Parse(lines.Text()))
		}
	}
	return out
}

// eventually polls until something is so. The bound ends a hung test, it judges nothing.
func (r *rig) eventually(what string, so func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); runtime.Gosched() {
		if time.Now().After(end) {
			r.t.Fatalf("never happened: %s", what)
		}
	}
}

// metric is a counter, of the labels that come first.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.counts.Gather()
	r.must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}

// kinds are the failures of the attempts that an error lists.
func kinds(a answer) (out []string) {
	for _, e := range a.get("error.attempts").Array() {
		out = append(out, e.Get("deployment").Str+" "+e.Get("failure").Str)
	}
	return out
}

// number reads a header as a whole number, -1 when it is none.
func (a answer) number(name string) int64 {
	n, err := strconv.ParseInt(a.header.Get(name), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
