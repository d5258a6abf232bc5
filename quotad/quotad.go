// Package quotad wires the rooms of one quotad node together: the control plane that owns limits, budgets, keys,
// routes, prices and provider credentials.
package quotad

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/alert"
	"github.com/sluice-gateway/sluice/quotad/internal/api"
	"github.com/sluice-gateway/sluice/quotad/internal/fault"
	"github.com/sluice-gateway/sluice/quotad/internal/keyring"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/session"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// messageMax bounds a message of a sidecar.
	messageMax = 16 << 20
	// windowBytes is how much a sidecar may have on its way to us. Left to itself, gRPC measures what would be best, with
	// a ping and its answer for each message of a stream that has one at a time: a third of its cost.
	windowBytes = 256 << 10
	// closeWait bounds the end of admin requests on shutdown.
	closeWait = 2 * time.Second
)

// Quotad is one node.
type Quotad struct {
	cfg      Config
	log      *zap.Logger
	node     *replica.Node
	sessions *session.Server
	alerts   *alert.Teller
	grpc     *grpc.Server
	admin    *http.Server
	certs    *certificates // nil with Dev

	sidecars, adminPlane net.Listener
}

// New opens the data directory, the listeners and the Raft node. The configuration must be valid.
func New(cfg Config, build string, log *zap.Logger) (*Quotad, error) {
	q := &Quotad{cfg: cfg, log: log}
	if err := q.open(build); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// fits refuses the certificate of another where there are other nodes: they speak to nobody else.
func (q *Quotad) fits(cert *x509.Certificate) error {
	if len(q.cfg.Peers) < 2 && !q.cfg.Join || replica.IsOfNode(cert, q.cfg.ID) {
		return nil
	}
	return fmt.Errorf("of %v, and not of this node: it must have the name spiffe://DOMAIN/quotad/%s", cert.URIs, q.cfg.ID)
}

func (q *Quotad) open(build string) error {
	if err := os.MkdirAll(q.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	var own func() *tls.Config
	var err error
	if !q.cfg.Dev {
		if q.certs, err = openCertificates(q.cfg.TLS, q.fits, q.log.Named("tls")); err != nil {
			return err
		}
		own = q.certs.config
	}
	// The node takes the directory's lock: a second process must fail before it makes or reads anything else.
	q.node, err = replica.Open(replica.Config{
		ID: q.cfg.ID, DataDir: q.cfg.DataDir, RaftListen: q.cfg.RaftListen, Peers: q.peers(), Bootstrap: !q.cfg.Join, TLS: own,
		Listen: q.cfg.Host.Listen, Dial: q.cfg.Host.Dial, Build: build,
		WallOf: q.wallOf(own),
	}, q.log.Named("replica"))
	if err != nil {
		return err
	}
	ring, err := openRing(q.cfg.KeyFile, q.cfg.Dev)
	if err != nil {
		return fmt.Errorf("key_file: %w", err)
	}
	if err := q.checkRing(ring); err != nil {
		return err
	}
	q.sessions = session.New(q.node, ring, q.cfg.ID, !q.cfg.Dev, q.log.Named("session"))
	q.alerts = alert.New(q.node, http.DefaultClient, q.log.Named("alert"))
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(messageMax), grpc.StaticStreamWindowSize(windowBytes), grpc.StaticConnWindowSize(windowBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}
	if q.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(q.certs.server("h2"))))
	}
	q.grpc = grpc.NewServer(options...)
	quotav1.RegisterQuotaServiceServer(q.grpc, q.sessions)

	handler, err := api.New(q.node, ring, q.sessions, api.Config{
		Build: build, Operators: q.cfg.Operators, Certificate: q.certificate,
	}, q.log.Named("api")).Handler()
	if err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	q.admin = &http.Server{Handler: q.routes(handler), ReadHeaderTimeout: 5 * time.Second}
	if q.admin.ErrorLog, err = zap.NewStdLogAt(q.log.Named("admin"), zap.WarnLevel); err != nil {
		return err
	}
	q.admin.Protocols = new(http.Protocols)
	q.admin.Protocols.SetHTTP1(true)
	q.admin.Protocols.SetHTTP2(true)
	q.admin.Protocols.SetUnencryptedHTTP2(true)

	if q.sidecars, err = q.cfg.Host.Listen("tcp", q.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if q.adminPlane, err = q.cfg.Host.Listen("tcp", q.cfg.AdminListen); err != nil {
		return fmt.Errorf("admin_listen: %w", err)
	}
	if q.certs != nil {
		q.admin.TLSConfig = q.certs.server("h2", "http/1.1")
		q.adminPlane = tls.NewListener(q.adminPlane, q.admin.TLSConfig)
	}
	return nil
}

// peers lists this node alone when none are configured, with the addresses it listens on.
func (q *Quotad) peers() []Peer {
	if len(q.cfg.Peers) > 0 || q.cfg.Join {
		return q.cfg.Peers
	}
	return []Peer{{
		ID: q.cfg.ID, RaftAddress: q.cfg.RaftListen, ClientAddress: q.cfg.Listen, AdminAddress: q.cfg.AdminListen,
	}}
}

// wallOf asks another node for its wall clock, at its admin plane.
func (q *Quotad) wallOf(own func() *tls.Config) func(context.Context, Peer) (time.Time, error) {
	return func(ctx context.Context, p Peer) (time.Time, error) {
		scheme, transport := "http://", &http.Transport{DialContext: q.cfg.Host.Dial, DisableKeepAlives: true}
		if own != nil {
			scheme, transport.TLSClientConfig = "https://", own()
		}
		client := &http.Client{Transport: transport}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+p.AdminAddress+"/clock", nil)
		if err != nil {
			return time.Time{}, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return time.Time{}, err
		}
		defer func() { _ = resp.Body.Close() }()
		var ms int64
		if resp.StatusCode != http.StatusOK {
			return time.Time{}, fmt.Errorf("clock of %s: %s", p.ID, resp.Status)
		}
		if _, err := fmt.Fscan(io.LimitReader(resp.Body, 64), &ms); err != nil {
			return time.Time{}, fmt.Errorf("clock of %s: %w", p.ID, err)
		}
		return time.UnixMilli(ms), nil
	}
}

// openRing opens the key file. Only development makes one: a production node with a fresh key could open nothing that
// the others sealed.
func openRing(file string, dev bool) (*keyring.Keyring, error) {
	ring, err := keyring.Open(file)
	if dev && errors.Is(err, fs.ErrNotExist) {
		return keyring.Create(file)
	}
	return ring, err
}

// certificate says how the node's certificate is doing.
func (q *Quotad) certificate() (problem string, ends time.Time) {
	return q.certs.problem(time.Now()), q.certs.ends()
}

// checkRing refuses a key file that cannot open the credentials that are here: sidecars would be left without them.
func (q *Quotad) checkRing(ring *keyring.Keyring) (err error) {
	q.node.View(func(m *replica.Machine) {
		for _, name := range m.SealedNames() {
			if s, _ := m.Sealed(name); !slices.Contains(ring.KeyIDs(), s.GetKeyId()) {
				err = errors.Join(err, fmt.Errorf("key_file: credential %s is sealed with key %s, which is not in %s", name, s.GetKeyId(), q.cfg.KeyFile))
			}
		}
	})
	return err
}

// Addr is where the sidecar plane is.
func (q *Quotad) Addr() string { return q.sidecars.Addr().String() }

// AdminAddr is where the admin plane is.
func (q *Quotad) AdminAddr() string { return q.adminPlane.Addr().String() }

// Run serves until ctx ends or a part fails. It hands leadership over before it returns.
func (q *Quotad) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	// The node outlives the planes, so that what they are doing ends well.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts.Go(func() error { return q.node.Run(life) })
	parts.Go(func() error { return q.sessions.Run(ctx) })
	if q.certs != nil {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		parts.Go(func() error { return q.certs.run(ctx, hup) })
	}
	parts.Go(func() error { return q.alerts.Run(ctx) })
	parts.Go(func() error {
		if err := q.grpc.Serve(q.sidecars); !errors.Is(err, grpc.ErrServerStopped) { // which is: stopped before it began
			return err
		}
		return nil
	})
	parts.Go(func() error {
		if err := q.admin.Serve(q.adminPlane); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	parts.Go(func() error {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
		defer cancel()
		err := q.admin.Shutdown(closing)
		q.grpc.Stop() // sidecars go to the next leader and send again what was under way
		stop()
		if errors.Is(err, context.DeadlineExceeded) {
			return q.admin.Close()
		}
		return err
	})
	return parts.Wait()
}

// Close hands leadership over, writes the state and gives the directory back. It is safe after a New that failed.
func (q *Quotad) Close() error {
	for _, l := range []net.Listener{q.sidecars, q.adminPlane} {
		if l != nil {
			_ = l.Close() // mostly closed by its server already
		}
	}
	if q.node == nil {
		return nil
	}
	return q.node.Close()
}

// routes adds health and metrics to the admin API.
func (q *Quotad) routes(api http.Handler) http.Handler {
	reg := prometheus.NewRegistry()
	gauge := func(name, help string, f func(replica.Status) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return f(q.node.Status()) }))
	}
	one := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge("sluice_raft_leader", "1 while this node leads and serves.", func(s replica.Status) float64 { return one(s.Serving) })
	gauge("sluice_raft_term", "Raft term.", func(s replica.Status) float64 { return float64(s.Term) })
	gauge("sluice_raft_applied_index", "Newest entry in the state.", func(s replica.Status) float64 { return float64(s.Applied) })
	gauge("sluice_raft_log_stalled", "1 while a write to the log is stuck.", func(s replica.Status) float64 { return one(s.Stalled) })
	gauge("sluice_config_version", "Version of the configuration.", func(s replica.Status) float64 { return float64(s.ConfigVersion) })
	gauge("sluice_conservation_violations_total", "Entries after which the books did not balance. 0, or a fault in quotad.",
		func(s replica.Status) float64 { return float64(s.Violations) })
	if q.certs != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_tls_ends_seconds", Help: "When the certificate in use ends, Unix time.",
		}, func() float64 { return float64(q.certs.ends().Unix()) }))
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_tls_problem", Help: "1 while new certificate files are not used, or the one in use has ended.",
		}, func() float64 { return one(q.certs.problem(time.Now()) != "") }))
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_sidecars_connected", Help: "Sidecars with a session here.",
	}, func() float64 { return float64(len(q.sessions.Sidecars())) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_alerts_pending", Help: "Alerts of budgets whose webhook has not taken them yet, on the leader.",
	}, func() float64 { return float64(q.alerts.Pending()) }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_sidecar_foreign_total",
		Help: "Counters, asks, usage rows and queries of sidecars that named what their identity may not see; none was passed on.",
	}, func() float64 { return float64(q.sessions.Foreign()) }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_usage_rows_dropped_total",
		Help: "Usage rows that could not be counted since this node started: malformed, or older than what is kept.",
	}, func() (n float64) {
		q.node.View(func(m *replica.Machine) { n = float64(m.Rollup.Dropped()) })
		return n
	}))

	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /clock", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, fault.Wall().UnixMilli()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if id, _, _, _ := q.node.Leader(); id == "" {
			http.Error(w, "no leader", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}
