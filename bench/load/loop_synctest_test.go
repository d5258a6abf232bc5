package load

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowServer answers every request after a fixed virtual time, without a network.
type slowServer struct {
	latency time.Duration
	flying  atomic.Int64
	peak    atomic.Int64
}

func (s *slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if n := s.flying.Add(1); n > s.peak.Load() {
		s.peak.Store(n)
	}
	defer s.flying.Add(-1)
	timer := time.NewTimer(s.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	body := `{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func TestOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{latency: time.Second}
		r := mustRun(t, Config{URL: "http://x/v1", Rate: 100, Requests: 300, Transport: server})
		if r.OK != 300 || r.Late.Max != 0 || r.Duration.Max != time.Second {
			t.Errorf("%+v late %+v duration %+v", r.ByClass, r.Late, r.Duration)
		}
		if r.Elapsed != 2990*time.Millisecond+time.Second {
			t.Errorf("elapsed %s, want 3.99s", r.Elapsed)
		}
		// 100 per second with one second each: about a hundred at once.
		if peak := server.peak.Load(); peak < 99 || peak > 101 {
			t.Errorf("peak %d, want about 100", peak)
		}
	})
}

func TestOpenLoopDropsAboveItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{latency: time.Hour}
		r := mustRun(t, Config{URL: "http://x/v1", Rate: 100, Requests: 50, InFlightMax: 10, Timeout: time.Minute, Transport: server})
		if r.ByClass[ClassDropped] != 40 || r.ByClass[ClassTimeout] != 10 || r.Requests != 50 || server.peak.Load() != 10 {
			t.Errorf("%+v, peak %d", r.ByClass, server.peak.Load())
		}
	})
}

func TestLoopsEndWithTheirDuration(t *testing.T) {
	for name, cfg := range map[string]Config{"open": {Rate: 10}, "closed": {Concurrency: 5}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.URL, cfg.Duration, cfg.Transport = "http://x/v1", 1950*time.Millisecond, &slowServer{latency: 500 * time.Millisecond}
				r := mustRun(t, cfg)
				// Ten a second at 0, 0.1, ... 1.9 s, or five workers that start at 0, 0.5, 1 and 1.5 s.
				if r.OK != 20 {
					t.Errorf("%d requests, want 20", r.OK)
				}
			})
		})
	}
}

func TestClosedLoopKeepsItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{latency: time.Second}
		r := mustRun(t, Config{URL: "http://x/v1", Concurrency: 7, Requests: 21, Transport: server})
		if r.OK != 21 || r.Elapsed != 3*time.Second || server.peak.Load() != 7 {
			t.Errorf("%d in %s, peak %d", r.OK, r.Elapsed, server.peak.Load())
		}
	})
}
