package sidecar

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/lease"
)

// opsHandler serves the ops listener. leave begins what SIGTERM begins.
func (s *Sidecar) opsHandler(leave func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, _ *http.Request) {
		s.gateway.Drain() // before the answer, not a moment later
		leave()
		answer(w, 202, "draining")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case s.gateway.Draining():
			answer(w, 503, "draining")
		case s.policy.Rules() == nil:
			answer(w, 503, "no configuration yet: quotad has not been reached since the first start")
		default:
			answer(w, 200, "ready") // also while quotad is away: leases and standing shares serve
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(s.status()) // a reader that left is no fault of ours
	})
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}

// collect registers what the rooms count themselves.
func (s *Sidecar) collect() {
	gauge := func(name, help string, f func() float64) {
		s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	counter := func(name, help string, labels prometheus.Labels, f func(lease.Stats) uint64) {
		s.metrics.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(f(s.lease.Stats())) }))
	}
	one := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge("sluice_quotad_connected", "1 while there is a session with quotad.", func() float64 {
		return one(s.link.State().Connected)
	})
	if s.certs != nil {
		gauge("sluice_tls_ends_seconds", "When the certificate in use ends, Unix time.", func() float64 {
			return float64(s.certs.ends().Unix())
		})
		gauge("sluice_tls_problem", "1 while new certificate files are not used, or the one in use has ended.", func() float64 {
			return one(s.certs.problem(time.Now()) != "")
		})
	}
	gauge("sluice_config_version", "Version of the configuration in force.", func() float64 {
		return float64(s.acked.Load())
	})
	gauge("sluice_journal_ok", "1 while the lease journal works.", func() float64 {
		return one(s.lease.Stats().Journal.OK)
	})
	gauge("sluice_open_holds", "Reservations of running requests.", func() float64 {
		return float64(s.lease.Stats().OpenHolds)
	})
	gauge("sluice_usage_unsent", "Usage events quotad has not counted yet.", func() float64 {
		return float64(s.usage.Stats().Unsent)
	})
	gauge("sluice_usage_unwritten", "Usage events that are not on disk yet.", func() float64 {
		return float64(s.usage.Stats().Unwritten)
	})
	gauge("sluice_usage_write_errors", "Writes of usage events that failed.", func() float64 {
		return float64(s.usage.Stats().WriteErrors)
	})
	for _, scope := range []string{exchange.ScopeEndUser, exchange.ScopeRun} {
		s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_live_names", Help: "End users or runs with a request in the last ten minutes, where they are limited.",
			ConstLabels: prometheus.Labels{"scope": scope},
		}, func() float64 { return float64(s.gateway.Names(scope).Live) }))
		s.metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "sluice_shared_names_total", Help: "Requests of end users or runs beyond the bound of their key, which share one.",
			ConstLabels: prometheus.Labels{"scope": scope},
		}, func() float64 { return float64(s.gateway.Names(scope).Overflow) }))
	}
	const admitted, admittedHelp = "sluice_admissions_total", "Requests admitted, by where the balance came from."
	counter(admitted, admittedHelp, prometheus.Labels{"from": "lease"}, func(l lease.Stats) uint64 { return l.LocalAdmissions })
	counter(admitted, admittedHelp, prometheus.Labels{"from": "ask"}, func(l lease.Stats) uint64 { return l.AskedAdmissions })
	counter(admitted, admittedHelp, prometheus.Labels{"from": "share"}, func(l lease.Stats) uint64 { return l.TrickleAdmissions })
	counter(admitted, admittedHelp, prometheus.Labels{"from": "open"}, func(l lease.Stats) uint64 { return l.OpenAdmissions })
	for r := lease.Throttled; r < lease.NumReasons; r++ {
		counter("sluice_lease_refusals_total", "Requests not admitted, by reason.", prometheus.Labels{"reason": r.String()},
			func(l lease.Stats) uint64 { return l.Refusals[r] })
	}
	counter("sluice_double_settles_total", "Settles of a reservation that was not open. 0, or a fault in the sidecar.", nil,
		func(l lease.Stats) uint64 { return l.DoubleSettles })
	counter("sluice_fences_total", "Times quotad fenced this process.", nil, func(l lease.Stats) uint64 { return l.Fences })
}
