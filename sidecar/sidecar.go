// Package sidecar wires the rooms of the sidecar together: the data plane that lives next to an application.
package sidecar

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/bedrock"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/credential"
	"github.com/sluice-gateway/sluice/sidecar/internal/estimate"
	"github.com/sluice-gateway/sluice/sidecar/internal/gateway"
	"github.com/sluice-gateway/sluice/sidecar/internal/link"
	"github.com/sluice-gateway/sluice/sidecar/internal/policy"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
	"github.com/sluice-gateway/sluice/sidecar/internal/route"
	"github.com/sluice-gateway/sluice/sidecar/internal/usage"
	"github.com/sluice-gateway/sluice/sidecar/lease"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// leaveWait bounds each farewell to quotad while stopping.
const leaveWait = 3 * time.Second

// Sidecar is one process's data plane. New opens what must be exclusive, Run serves until its context ends.
type Sidecar struct {
	cfg   Config
	build string
	log   *zap.Logger

	policy      *policy.Store
	lease       *lease.Client
	usage       *usage.Recorder
	rollups     *usage.Querier
	router      *route.Router
	relay       *relay.Client
	watch       *relay.Watcher
	link        *link.Link
	credentials *credential.Room
	gateway     *gateway.Gateway
	server      *gateway.Server
	metrics     *prometheus.Registry
	certs       *certificates // nil with Dev

	data, ops, unix net.Listener
	acked           atomic.Uint64 // newest snapshot in force
	cluster         atomic.Pointer[string]
	snapshotFault   atomic.Pointer[string] // why the newest snapshot is not in force; nil when it is
}

// New opens the data directory and the listeners and puts the last good snapshot in force. The configuration must be
// valid.
func New(cfg Config, build string, log *zap.Logger) (*Sidecar, error) {
	s := &Sidecar{cfg: cfg, build: build, log: log, metrics: prometheus.NewRegistry()}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sidecar) open() error {
	if err := os.MkdirAll(s.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	var err error
	cfg := lease.Config{Dir: filepath.Join(s.cfg.DataDir, "lease"), Identity: s.cfg.Identity, Now: s.cfg.Host.Now}
	if s.cfg.Dev {
		cfg.MarkDir = s.cfg.DataDir // so that it goes with the directory; no disk is put back under a process in development
	}
	s.lease, err = lease.New(cfg, s.log.Named("lease"))
	if err != nil {
		return fmt.Errorf("data directory %s: %w", s.cfg.DataDir, err)
	}
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails: crypto/rand ends the process instead
	s.usage, err = usage.Open(usage.Config{
		Dir: filepath.Join(s.cfg.DataDir, "events"), Name: hex.EncodeToString(name[:]), KeepBytes: int64(s.cfg.EventsKeepMiB) << 20,
	}, s.log.Named("usage"))
	if err != nil {
		return err
	}
	s.rollups = usage.NewQuerier()
	s.policy = policy.NewStore(s.cfg.DataDir)
	s.restore()
	if s.watch, err = relay.NewWatcher(); err != nil {
		return fmt.Errorf("watch callers: %w", err)
	}
	s.router, s.relay = route.New(), relay.NewClient(relay.Config{
		UserAgent: "sluice/" + s.build, Dial: s.cfg.Host.Dial,
	})
	var tlsConfig func() *tls.Config
	if !s.cfg.Dev {
		if s.certs, err = openCertificates(s.cfg.TLS, nil, s.log.Named("tls")); err != nil {
			return err
		}
		tlsConfig = s.certs.config
	}
	s.credentials = credential.New(s.cfg.Host.Dial)
	s.link = link.New(link.Config{Addresses: s.cfg.Quotad, TLS: tlsConfig, Dial: s.dialQuotad()}, s, s.log.Named("link"))
	secret, err := readSecret(s.cfg.DefaultKeyFile)
	if err != nil {
		return err
	}
	s.gateway = &gateway.Gateway{
		Policy: s.policy, Lease: s.lease, Estimate: estimate.New(), Route: s.router, Relay: s.relay, Watch: s.watch,
		Adapters: map[string]adapter.Adapter{
			"openai": openai.New(), "azure": openai.New(), "compatible": openai.New(), "anthropic": anthropic.New(),
			"bedrock": bedrock.New(), "gemini": gemini.New(), "vertex": gemini.NewVertex(),
		},
		Credentials: s.credentials,
		Usage:       s.usage, Rollups: s.rollups, Metrics: gateway.NewMetrics(s.metrics), Log: s.log.Named("gateway"),
		Connected: func() bool { return s.link.State().Connected }, DefaultSecret: secret,
	}
	s.server = gateway.NewServer(s.gateway)
	s.collect()
	return s.listen()
}

// dialQuotad is how the link dials on another machine than the real one; nil on that.
func (s *Sidecar) dialQuotad() func(context.Context, string) (grpc.DialOption, error) {
	if s.cfg.Host.Dial == nil {
		return nil
	}
	return func(context.Context, string) (grpc.DialOption, error) {
		return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.cfg.Host.Dial(ctx, "tcp", address)
		}), nil
	}
}

// restore puts the last good snapshot in force and writes the usage rows of requests a killed predecessor left open.
func (s *Sidecar) restore() {
	snap, err := s.policy.Load()
	if err != nil {
		s.fault(fmt.Errorf("starting without a configuration until quotad is reached: %w", err))
	}
	if snap != nil {
		s.lease.Configure(snap.GetResources())
		s.acked.Store(snap.GetVersion())
		s.cluster.Store(&snap.ClusterId)
	}
	lost := 0
	for _, h := range s.lease.Predecessor() {
		if !gateway.HasRow(h.Note) {
			continue
		}
		lost++
		e, err := gateway.LostEvent(s.policy.Rules(), h.Note)
		if err != nil {
			s.log.Error("a lost request has no usage row; its money is accounted for", zap.Error(err))
			continue
		}
		s.usage.Record(e)
	}
	if lost > 0 {
		s.log.Warn("the last process ended with requests open; they count as spent in full", zap.Int("requests", lost))
	}
}

func (s *Sidecar) listen() error {
	var err error
	if s.data, err = s.cfg.Host.Listen("tcp", s.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.ops, err = s.cfg.Host.Listen("tcp", s.cfg.OpsListen); err != nil {
		return fmt.Errorf("ops_listen: %w", err)
	}
	if s.cfg.UnixSocket == "" {
		return nil
	}
	_ = os.Remove(s.cfg.UnixSocket) // left by a killed process; the data directory's lock says that it is dead
	if s.unix, err = s.cfg.Host.Listen("unix", s.cfg.UnixSocket); err != nil {
		return fmt.Errorf("unix_socket: %w", err)
	}
	if err := os.Chmod(s.cfg.UnixSocket, 0o600); err != nil {
		return fmt.Errorf("unix_socket: %w", err)
	}
	return nil
}

// Addr is where the data listener is.
func (s *Sidecar) Addr() string { return s.data.Addr().String() }

// OpsAddr is where the ops listener is.
func (s *Sidecar) OpsAddr() string { return s.ops.Addr().String() }

// Run serves until ctx ends or an operator asks to drain, then drains: it refuses what comes new; gives bucket leases and
// shares back first, since a shutdown may be cut short; lets running streams end, up to the drain timeout; and files
// what they used.
func (s *Sidecar) Run(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	// The rooms outlive ctx: draining needs them.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	rooms, _ := errgroup.WithContext(life)
	rooms.Go(func() error { return s.policy.Run(life) })
	rooms.Go(func() error { return s.lease.Run(life) })
	rooms.Go(func() error { return s.usage.Run(life) })
	rooms.Go(func() error { return s.watch.Run(life) })
	rooms.Go(func() error { return s.relay.Run(life) })
	rooms.Go(func() error { return s.link.Run(life) })
	if s.certs != nil {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		rooms.Go(func() error { return s.certs.run(life, hup) })
	}

	ops := &http.Server{Handler: s.opsHandler(leave), ReadHeaderTimeout: 5 * time.Second}
	listeners, failed := errgroup.WithContext(ctx)
	listeners.Go(func() error { return s.server.Serve(s.data) })
	if s.unix != nil {
		listeners.Go(func() error { return s.server.Serve(s.unix) })
	}
	rooms.Go(func() error {
		if err := ops.Serve(s.ops); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	<-failed.Done() // asked to stop, or a listener failed
	s.drain(context.WithoutCancel(ctx))
	err := listeners.Wait()
	stop()
	_ = ops.Close()
	return errors.Join(err, rooms.Wait())
}

func (s *Sidecar) drain(ctx context.Context) {
	s.gateway.Drain()
	s.log.Info("draining")
	missed := false
	farewell := func(what string, f func(context.Context) error) {
		if missed && !s.link.State().Connected {
			return // quotad is away and was waited for already: the journal and the event files tell it later
		}
		ctx, cancel := context.WithTimeout(ctx, leaveWait)
		defer cancel()
		if err := f(ctx); err != nil {
			missed = true
			s.log.Warn("could not tell quotad before stopping", zap.String("what", what), zap.Error(err))
		}
	}
	farewell("leases", s.lease.Leave)
	streams, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	if err := s.server.Shutdown(streams); err != nil {
		s.log.Warn("drain timeout", zap.Error(err))
	}
	farewell("final totals", s.lease.Leave)
	farewell("usage", s.usage.Flush)
}

// Close gives back files and locks. It is safe after a New that failed.
func (s *Sidecar) Close() error {
	var err error
	for _, l := range []net.Listener{s.data, s.ops, s.unix} {
		if l != nil {
			_ = l.Close() // mostly closed by its server already
		}
	}
	if s.credentials != nil {
		s.credentials.Close()
	}
	if s.usage != nil {
		err = errors.Join(err, s.usage.Close())
	}
	if s.lease != nil {
		err = errors.Join(err, s.lease.Close())
	}
	return err
}

func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("default_key_file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Hello implements link.Handler.
func (s *Sidecar) Hello() *quotav1.Hello {
	h := &quotav1.Hello{
		Identity: s.cfg.Identity, Incarnation: s.lease.Incarnation(), ConfigVersion: s.acked.Load(), Build: s.build,
	}
	if c := s.cluster.Load(); c != nil {
		h.ClusterId = *c
	}
	return h
}

// Connected implements link.Handler.
func (s *Sidecar) Connected(w *quotav1.Welcome) {
	s.cluster.Store(&w.ClusterId)
	s.lease.Connected(s.link)
	s.usage.Connected(s.link)
	s.usage.Epoch(w.GetEpoch())
	s.rollups.Connected(s.link)
}

// Disconnected implements link.Handler.
func (s *Sidecar) Disconnected() {
	s.lease.Disconnected()
	s.usage.Disconnected()
	s.rollups.Disconnected()
}

// Handle implements link.Handler.
func (s *Sidecar) Handle(m *quotav1.SessionResponse) {
	switch m := m.GetMessage().(type) {
	case *quotav1.SessionResponse_RenewReply:
		before := s.lease.Incarnation()
		s.lease.HandleRenewReply(m.RenewReply)
		s.usage.Epoch(m.RenewReply.GetEpoch())
		if s.lease.Incarnation() != before {
			s.link.Restart("fenced: going on as a new incarnation") // a session belongs to one incarnation
		}
	case *quotav1.SessionResponse_FileFinalReply:
		s.lease.HandleFileFinalReply(m.FileFinalReply)
	case *quotav1.SessionResponse_Wake:
		s.lease.Wake()
	case *quotav1.SessionResponse_Snapshot:
		s.install(m.Snapshot)
	case *quotav1.SessionResponse_Credentials:
		changed := s.policy.SetSecrets(m.Credentials)
		rules := s.policy.Rules()
		s.router.Forget(func(id string) bool {
			d := rules.Deployment(id)
			return d != nil && changed[d.Credential]
		})
	case *quotav1.SessionResponse_UsageAck:
		s.usage.HandleAck(m.UsageAck)
	case *quotav1.SessionResponse_UsageResult:
		s.rollups.HandleResult(m.UsageResult)
	}
}

// install puts a snapshot in force. The lease machine learns of new resources before any request can draw on them.
func (s *Sidecar) install(snap *quotav1.Snapshot) {
	rules, err := policy.Compile(snap)
	if err != nil {
		s.fault(fmt.Errorf("snapshot %d is refused, the last one stays in force: %w", snap.GetVersion(), err))
		return
	}
	s.lease.Configure(snap.GetResources())
	s.fault(nil)
	before := s.policy.Rules()
	if err := s.policy.Install(rules, snap); err != nil {
		s.log.Error("configuration is in force and not on disk; it will be tried again", zap.Error(err))
	}
	s.router.Forget(func(id string) bool { return !reflect.DeepEqual(before.Deployment(id), rules.Deployment(id)) })
	s.acked.Store(rules.Version)
	s.link.Send(&quotav1.SessionRequest{Message: &quotav1.SessionRequest_ConfigAck{
		ConfigAck: &quotav1.ConfigAck{Version: rules.Version},
	}})
	s.log.Info("configuration in force", zap.Uint64("version", rules.Version), zap.Int("keys", rules.Keys()))
}

// fault keeps what is wrong with the newest snapshot for /status, nil for nothing.
func (s *Sidecar) fault(err error) {
	if err == nil {
		s.snapshotFault.Store(nil)
		return
	}
	text := err.Error()
	s.snapshotFault.Store(&text)
	s.log.Error("configuration", zap.String("fault", text))
}
