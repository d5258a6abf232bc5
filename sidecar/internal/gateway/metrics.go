package gateway

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the gateway's. Labels take values from configuration and fixed lists alone, never from callers.
type Metrics struct {
	Requests         *prometheus.CounterVec // by HTTP status
	Refusals         *prometheus.CounterVec // by error code
	UpstreamFailures *prometheus.CounterVec // by deployment and kind
	PoolShort        *prometheus.CounterVec // by deployment
	MalformedLefts   *prometheus.CounterVec // by deployment
	OpenStreams      prometheus.Gauge
	Unpriced         prometheus.Counter
	UnpricedAttempts *prometheus.CounterVec // by deployment
	UnpricedTiers    *prometheus.CounterVec // by deployment
	RetryBudget      prometheus.Counter
	PlatformCost     prometheus.Counter
	Panics           prometheus.Counter
}

// NewMetrics registers the gateway's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	m := &Metrics{
		Requests: vec("sluice_requests_total", "Requests by HTTP status.", "status"),
		Refusals: vec("sluice_refusals_total", "Requests refused, by error code.", "code"),
		UpstreamFailures: vec("sluice_upstream_failures_total", "Failed attempts, by deployment and kind.",
			"deployment", "kind"),
		PoolShort: vec("sluice_pool_short_total",
			"Times a deployment was passed over because the limit rented from its provider was used up.", "deployment"),
		MalformedLefts: vec("sluice_provider_limits_malformed_total",
			"Values in providers' headers about their limits that could not be read.", "deployment"),
		UnpricedAttempts: vec("sluice_unpriced_attempts_total",
			"Attempts at a deployment that has no price (unpriced: allow), counted at 0.", "deployment"),
		UnpricedTiers: vec("sluice_unpriced_tiers_total",
			"Attempts on a service tier that has no price, counted at the usual one.", "deployment"),
		OpenStreams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_open_streams", Help: "Streams being relayed now.",
		}),
		Unpriced:    counter("sluice_unpriced_total", "Times a deployment was passed over for want of a price."),
		RetryBudget: counter("sluice_retry_budget_exhausted_total", "Retries not made because the retry budget was empty."),
		PlatformCost: counter("sluice_platform_cost_nano_total",
			"Nano-dollars of failed attempts that providers may invoice and no team pays for."),
		Panics: counter("sluice_panics_total", "Panics while serving. 0, or a fault in the sidecar."),
	}
	reg.MustRegister(m.OpenStreams)
	return m
}
