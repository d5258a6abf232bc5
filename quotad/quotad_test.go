package quotad

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
)

// patience is how long a test waits for what must happen. It is long, so that only a fault reaches it.
const patience = 60 * time.Second

func devConfig(t *testing.T) Config {
	t.Helper()
	c, err := Load("", nil, map[string]string{
		"data_dir": filepath.Join(t.TempDir(), "data"), "listen": "127.0.0.1:0", "raft_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0",
	}, true)
	must(t, err)
	return c
}

// run runs a node until the end of the test.
func run(t *testing.T, cfg Config) *Quotad {
	t.Helper()
	q, err := New(cfg, "b1", zap.NewNop())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
		must(t, q.Close())
	})
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for range q.node.Watch(waiting) {
		if _, _, _, self := q.node.Leader(); self {
			return q
		}
	}
	t.Fatal("no leader")
	return nil
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	resp, err := c.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}

func TestAdminPlane(t *testing.T) {
	q := run(t, devConfig(t))
	for _, tc := range []struct{ name, path, want string }{
		{"health", "/healthz", "ok\n"},
		{"ready", "/readyz", "ready\n"},
		{"leader", "/metrics", "\nsluice_raft_leader 1\n"},
		{"sidecars", "/metrics", "\nsluice_sidecars_connected 0\n"},
		{"violations", "/metrics", "\nsluice_conservation_violations_total 0\n"},
		{"REST", "/admin/v1/status", `"quotad-0"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if code, body := get(t, http.DefaultClient, "http://"+q.AdminAddr()+tc.path); code != http.StatusOK || !strings.Contains(body, tc.want) {
				t.Errorf("status %d: %s", code, body)
			}
		})
	}
}

func TestSecondQuotadOnADirectory(t *testing.T) {
	cfg := devConfig(t)
	run(t, cfg)
	_, err := New(cfg, "b1", zap.NewNop())
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), cfg.DataDir) {
		t.Errorf("got %v", err)
	}
}

func TestNewGivesBackWhatItOpened(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	for _, tc := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"sidecar port taken", func(c *Config) { c.Listen = taken.Addr().String() }, "listen: "},
		{"admin port taken", func(c *Config) { c.AdminListen = taken.Addr().String() }, "admin_listen: "},
		{"raft port taken", func(c *Config) { c.RaftListen = taken.Addr().String() }, "listen for peers: "},
		{"no key file outside dev", func(c *Config) { c.Dev, c.TLS = false, authority(t).files(t, "n", "n") }, "key_file: "},
		{"certificate of another node", func(c *Config) {
			c.Dev, c.TLS, c.Join = false, authority(t).files(t, "spiffe://x/quotad/b", "n"), true
		}, "tls.cert: of [spiffe://x/quotad/b], and not of this node: it must have the name spiffe://DOMAIN/quotad/quotad-0"},
		{"no certificates", func(c *Config) { c.Dev, c.TLS = false, TLSFiles{"x", "y", "z"} }, "tls.cert, tls.key: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := devConfig(t)
			bad := cfg
			tc.edit(&bad)
			if _, err := New(bad, "b1", zap.NewNop()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v", err)
			}
			run(t, cfg) // the directory is free
		})
	}
}

func TestRunThatIsStoppedAtOnce(t *testing.T) {
	q, err := New(devConfig(t), "b1", zap.NewNop())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must(t, q.Run(ctx))
	must(t, q.Close())
}

func TestStateOutlivesARestart(t *testing.T) {
	cfg := devConfig(t)
	yaml := "version: 1\nteams: { red: {} }\n"
	var version uint64
	t.Run("first", func(t *testing.T) {
		q := run(t, cfg)
		resp, err := adminv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+q.AdminAddr()).Apply(
			context.Background(), connect.NewRequest(&adminv1.ApplyRequest{Yaml: yaml}))
		must(t, err)
		version = resp.Msg.GetVersion()
	})
	t.Run("second", func(t *testing.T) {
		q := run(t, cfg)
		if got := q.node.Status().ConfigVersion; got != version || got == 0 {
			t.Errorf("version %d, want %d", got, version)
		}
	})
}
