package system

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
	"github.com/sluice-gateway/sluice/bench/memnet"
	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad"
	dataplane "github.com/sluice-gateway/sluice/sidecar"
)

// Machines of a world. Nodes and sidecars are numbered from 0.
const (
	appIP      = "127.0.8.1" // callers and operators
	providerIP = "127.0.9.1"
	nodeIP     = "127.0.1.%d"
	carIP      = "127.0.2.%d"
	provider   = "http://" + providerIP + ":80/v1"
)

// world is the whole of Sluice in one process, in a bubble: the real programs on a network in memory and a virtual
// clock, which stands still while anything works and jumps when everything waits. It begins with the year 2000, UTC.
type world struct {
	t    *testing.T
	net  *memnet.Net
	fake *fakeprovider.Server
	http *http.Client
	logs *logs

	nodes []*member
	cars  []*member
	peers []quotad.Peer
}

// member is a node or a sidecar, as it runs.
type member struct {
	name, ip, dir string
	stop          func() // asks it to end and waits for that; nil when it does not run
	end           chan struct{}
}

// inWorld plays in a world with so many nodes and sidecars, which knows org.
func inWorld(t *testing.T, nodes, cars int, org string, play func(t *testing.T, w *world)) {
	t.Helper()
	inWorldAt(t, time.Time{}, nodes, cars, org, play)
}

// inWorldAt plays in a world that begins later than with the year 2000.
func inWorldAt(t *testing.T, begin time.Time, nodes, cars int, org string, play func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(begin))
		w := &world{t: t, net: memnet.New(time.Millisecond), logs: &logs{}}
		// Runs last. Raft and fasthttp leave goroutines behind that sleep a little beyond their ends.
		t.Cleanup(func() { w.pass(time.Minute) })
		t.Cleanup(func() {
			if t.Failed() {
				t.Log("\n" + w.logs.tail())
			}
		})
		transport := &http.Transport{
			DialContext: w.net.Host(appIP).Dial, MaxIdleConnsPerHost: 1000, DisableCompression: true,
		}
		t.Cleanup(transport.CloseIdleConnections)
		w.http = &http.Client{Transport: transport}
		w.serveProvider()
		for i := range nodes {
			m := &member{name: fmt.Sprintf("quotad-%d", i), ip: fmt.Sprintf(nodeIP, i), dir: quickDir(t)}
			w.nodes = append(w.nodes, m)
			w.peers = append(w.peers, quotad.Peer{
				ID: m.name, RaftAddress: m.ip + ":7071", ClientAddress: m.ip + ":7070", AdminAddress: m.ip + ":7072",
			})
			if err := os.WriteFile(filepath.Join(m.dir, "key"), []byte(sum("seal")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range w.nodes {
			w.startNode(m)
		}
		w.apply(org)
		w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
			_, err := c.SetCredential(ctx, connect.NewRequest(&adminv1.SetCredentialRequest{
				Name: "main", Secret: []byte(providerKey),
			}))
			return err
		})
		for i := range cars {
			m := &member{name: fmt.Sprintf("sidecar-%d", i), ip: fmt.Sprintf(carIP, i), dir: quickDir(t)}
			w.cars = append(w.cars, m)
			w.startCar(m)
		}
		for _, m := range w.cars {
			w.connected(m)
		}
		play(t, w)
	})
}

// quickDir is a directory in memory where there is such a place: a disk takes its real time for every entry of the log.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sluice-world")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // after the programs have ended
	return dir
}

// pass lets virtual time pass.
func (w *world) pass(d time.Duration) { <-time.After(d) }

// passUntil lets it pass until a moment.
func (w *world) passUntil(at time.Time) { w.pass(time.Until(at)) }

func (w *world) serveProvider() {
	w.fake = fakeprovider.New(fakeprovider.Config{
		Keys:   []fakeprovider.Key{{Name: "main", Secret: providerKey}},
		Prices: map[string]fakeprovider.Price{"*": {Input: 2_000_000_000, Output: 10_000_000_000}},
		Seed:   1,
	})
	ln, err := w.net.Host(providerIP).Listen("tcp", providerIP+":80")
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{name: "provider", ip: providerIP}
	w.run(m, func(ctx context.Context) error { return w.fake.Run(ctx, ln) }, func() error { return nil })
	w.t.Cleanup(func() { m.stop() })
}

// run runs a program until stop is called or the test ends. Then its machine closes its connections, as the end of a
// process does.
func (w *world) run(m *member, run func(context.Context) error, closing func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	go func() {
		defer close(end)
		if err := run(ctx); err != nil {
			w.t.Errorf("%s: %v", m.name, err)
		}
		if err := closing(); err != nil {
			w.t.Errorf("%s: close: %v", m.name, err)
		}
		w.net.Host(m.ip).Exit()
	}()
	m.end = end
	m.stop = sync.OnceFunc(func() {
		cancel()
		<-end
	})
	w.t.Cleanup(m.stop)
}

func (w *world) startNode(m *member) {
	w.t.Helper()
	host := w.net.Host(m.ip)
	cfg := quotad.Config{
		ID: m.name, DataDir: m.dir, Listen: m.ip + ":7070", RaftListen: m.ip + ":7071", AdminListen: m.ip + ":7072",
		Dev: true, Host: quotad.Host{Listen: host.Listen, Dial: host.Dial},
	}
	if len(w.nodes) > 1 {
		cfg.Peers = w.peers
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		w.t.Fatal(err)
	}
	q, err := quotad.New(cfg, "test", w.logs.logger(m.name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(m, q.Run, q.Close)
}

func (w *world) startCar(m *member) {
	w.t.Helper()
	host := w.net.Host(m.ip)
	cfg := dataplane.Config{
		Listen: m.ip + ":4000", OpsListen: m.ip + ":4001", DataDir: m.dir, Identity: m.name, Dev: true,
		DrainTimeout: time.Minute,
		Host: dataplane.Host{
			Listen: host.Listen, Dial: host.Dial, Now: func() int64 { return time.Now().UnixNano() },
		},
	}
	for _, p := range w.peers {
		cfg.Quotad = append(cfg.Quotad, p.ClientAddress)
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		w.t.Fatal(err)
	}
	s, err := dataplane.New(cfg, "test", w.logs.logger(m.name))
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(m, s.Run, s.Close)
}

// connected waits until a sidecar has its configuration and a session.
func (w *world) connected(m *member) {
	w.t.Helper()
	w.eventually(m.name+" is connected", func() bool {
		return w.get("http://"+m.ip+":4001/readyz") == "ready\n" && w.metric(m, "sluice_quotad_connected") == 1
	})
}

// cutOff parts sidecars from every node. Callers and the provider still reach them.
func (w *world) cutOff(cars ...*member) {
	for _, m := range cars {
		for _, n := range w.nodes {
			w.net.Cut(m.ip, n.ip)
		}
	}
}

// eventually polls until something is so.
func (w *world) eventually(what string, so func() bool) {
	w.t.Helper()
	for end := time.Now().Add(wait); !so(); w.pass(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never happened: %s", what)
		}
	}
}

func (w *world) get(url string) string {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(b)
}

// metric reads one metric of a sidecar, labels and all; -1 when it cannot be read.
func (w *world) metric(m *member, name string) float64 {
	return readMetric(w.get("http://"+m.ip+":4001/metrics"), name)
}

// admin calls the admin API of the leader. During an election it tries again.
func (w *world) admin(call func(context.Context, adminv1connect.AdminServiceClient) error) {
	w.t.Helper()
	var err error
	for end := time.Now().Add(wait); time.Now().Before(end); w.pass(50 * time.Millisecond) {
		for _, p := range w.peers {
			ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
			err = call(ctx, adminv1connect.NewAdminServiceClient(w.http, "http://"+p.AdminAddress))
			cancel()
			if err == nil {
				return
			}
			if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeFailedPrecondition &&
				code != connect.CodeDeadlineExceeded {
				w.t.Fatal(err)
			}
		}
	}
	w.t.Fatal(err)
}

// apply applies an org.yaml.
func (w *world) apply(yaml string) {
	w.t.Helper()
	// The bubble's time is long before the prices of the other tests.
	yaml = strings.ReplaceAll(yaml, "valid_from: 2026-01-01", "valid_from: 2000-01-01")
	w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
		_, err := c.Apply(ctx, connect.NewRequest(&adminv1.ApplyRequest{Yaml: yaml, File: "org.yaml"}))
		return err
	})
}

// budgets are what quotad says of the team's budget, the newest period first.
func (w *world) budgets() (bs []*adminv1.Budget) {
	w.t.Helper()
	w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
		resp, err := c.ShowBudgets(ctx, connect.NewRequest(&adminv1.ShowBudgetsRequest{Team: "t"}))
		if err == nil {
			bs = resp.Msg.Budgets
		}
		return err
	})
	for _, b := range bs {
		if b.SettledNano+b.OutstandingNano+b.SuspenseNano+b.FreeNano != b.CapNano+b.CreditsNano {
			w.t.Errorf("the books do not balance: %v", b)
		}
	}
	if len(bs) == 0 {
		w.t.Fatal("the team has no budget")
	}
	return bs
}

// usage is what quotad says was used since the year began.
func (w *world) usage() (u usage) {
	w.t.Helper()
	w.admin(func(ctx context.Context, c adminv1connect.AdminServiceClient) error {
		resp, err := c.QueryUsage(ctx, connect.NewRequest(&adminv1.QueryUsageRequest{Team: "t", From: "1999-01-01", GroupBy: "team,hour"}))
		if err != nil {
			return err
		}
		u = usage{}
		for _, r := range resp.Msg.Rows {
			u.requests += r.Requests
			u.input += r.GetTokens().GetInput()
			u.output += r.GetTokens().GetOutput()
			u.cost += r.CostNano
		}
		return nil
	})
	return u
}

// witnessed is the same in the provider's words.
func (w *world) witnessed() usage {
	c := w.fake.Witness(0).Totals
	return usage{c.Completed, c.PromptTokens, c.OutputTokens, c.CostNano}
}

// agree waits until budget and usage are what the provider says, and nothing is held or in suspense.
func (w *world) agree() {
	w.t.Helper()
	for end := time.Now().Add(wait); ; w.pass(100 * time.Millisecond) {
		var settled, open int64
		bs := w.budgets()
		for _, b := range bs {
			settled += b.SettledNano
			open += b.HeldNano + b.SuspenseNano
		}
		got, want := w.usage(), w.witnessed()
		if got == want && settled == want.cost && open == 0 {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("usage %+v, budgets %v, the witness saw %+v", got, bs, want)
		}
	}
}

// chat sends a body through a sidecar with the app's key.
func (w *world) chat(m *member, body string) answer { return w.call(m, appKey, body) }

func (w *world) call(m *member, key, body string, header ...string) answer {
	return send(w.t.Context(), w.http, "http://"+m.ip+":4000/v1/chat/completions", key, body, header...)
}

// logs keeps what the programs say, for when a test fails.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const logsShown = 20_000

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.text.String()
	return s[max(0, len(s)-logsShown):]
}

func (l *logs) logger(name string) *zap.Logger {
	cfg := zap.NewDevelopmentEncoderConfig()
	cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(cfg), zapcore.AddSync(l), zap.WarnLevel)).Named(name)
}
