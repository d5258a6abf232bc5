package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

// provider serves a fake provider with the key "secret" and returns its base URL.
func provider(t *testing.T, cfg fakeprovider.Config) (*fakeprovider.Server, string) {
	t.Helper()
	cfg.Keys = []fakeprovider.Key{{Name: "main", Secret: "secret"}}
	s := fakeprovider.New(cfg)
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		web.Close()
	})
	return s, web.URL + "/v1"
}

func mustRun(t *testing.T, cfg Config) Report {
	t.Helper()
	report, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestBothLoopsAgreeWithTheWitness(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
	}{
		{"closed, JSON", Config{Concurrency: 8}},
		{"closed, streams", Config{Concurrency: 8, Stream: true}},
		{"open, JSON", Config{Rate: 2000}},
		{"open, streams", Config{Rate: 2000, Stream: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, url := provider(t, fakeprovider.Config{})
			cfg := tt.cfg
			cfg.URL, cfg.Keys, cfg.Requests, cfg.PromptTokens, cfg.Directive = url, []string{"secret"}, 200, 20, "tokens=7"
			r := mustRun(t, cfg)
			w := s.Witness(0)
			if r.OK != 200 || r.Attempts != 200 || r.ByStatus["200"] != 200 || w.Totals.Completed != 200 {
				t.Fatalf("report %+v, witness %+v", r.ByClass, w.Totals)
			}
			if r.PromptTokens != 200*20 || r.OutputTokens != 200*7 || r.NoUsage != 0 ||
				r.PromptTokens != w.Totals.PromptTokens || r.OutputTokens != w.Totals.OutputTokens {
				t.Errorf("%d prompt %d output tokens, witness %+v", r.PromptTokens, r.OutputTokens, w.Totals)
			}
			if tt.cfg.Stream && r.Chunks != 200*7 {
				t.Errorf("%d chunks, want 1400", r.Chunks)
			}
			if r.TTFT.Count != 200 || r.TTFT.P50 <= 0 || r.Duration.P50 < r.TTFT.P50 || r.Duration.Max < r.Duration.P99 {
				t.Errorf("percentiles %+v %+v", r.TTFT, r.Duration)
			}
			for i, record := range r.Records {
				if record.Index != i || !strings.HasPrefix(record.RequestID, "req_") || record.Finish != "stop" {
					t.Fatalf("record %d: %+v", i, record)
				}
			}
		})
	}
}

func TestClasses(t *testing.T) {
	tests := []struct {
		directive  string
		stream     bool
		want       Class
		status     int
		code       string
		retryAfter time.Duration
	}{
		{"tokens=3", true, ClassOK, 200, "", 0},
		{"tokens=0", true, ClassOK, 200, "", 0},
		{"sse=crlf,comment,nospace,split text=unicode tokens=20", true, ClassOK, 200, "", 0},
		{"status=429 retry-after=1500ms", true, ClassStatus, 429, "rate_limit_exceeded", 1500 * time.Millisecond},
		{"status=503", false, ClassStatus, 503, "server_is_overloaded", 0},
		{"fault=cut", true, ClassCut, 200, "", 0},
		{"fault=cut", false, ClassCut, 200, "", 0},
		{"fault=truncate", true, ClassCut, 200, "", 0},
		{"fault=no-done", true, ClassCut, 200, "", 0},
		{"fault=reset", true, ClassCut, 200, "", 0},
		{"fault=cut after=head", true, ClassNoAnswer, 0, "", 0},
		{"fault=error-first", true, ClassStreamError, 200, "server_error", 0},
		{"fault=error-mid", true, ClassStreamError, 200, "server_error", 0},
		{"fault=error-first", false, ClassStreamError, 200, "server_error", 0},
		{"fault=broken-json", true, ClassMalformed, 200, "", 0},
		{"fault=html", false, ClassMalformed, 200, "", 0},
		{"fault=html", true, ClassMalformed, 200, `content type "text/html; charset=utf-8"`, 0},
		{"fault=empty", true, ClassCut, 200, "", 0},
		{"fault=empty", false, ClassMalformed, 200, "", 0},
		{"fault=json", true, ClassMalformed, 200, `content type "application/json"`, 0},
		{"fault=hang", true, ClassTimeout, 0, "", 0},
		{"fault=hang after=2", true, ClassTimeout, 200, "", 0},
		{"fault=hang after=0", false, ClassTimeout, 200, "", 0},
	}
	_, url := provider(t, fakeprovider.Config{})
	for _, tt := range tests {
		name := "JSON "
		if tt.stream {
			name = "stream "
		}
		t.Run(name+tt.directive, func(t *testing.T) {
			cfg := Config{URL: url, Keys: []string{"secret"}, Concurrency: 1, Requests: 1, Stream: tt.stream, Directive: tt.directive}
			if tt.want == ClassTimeout {
				cfg.Timeout = 100 * time.Millisecond
			}
			got := mustRun(t, cfg).Records[0]
			if got.Class != tt.want || got.Status != tt.status || got.Code != tt.code || got.RetryAfter != tt.retryAfter {
				t.Errorf("%+v, want %s %d %q %s", got, tt.want, tt.status, tt.code, tt.retryAfter)
			}
		})
	}
	if got := mustRun(t, Config{URL: "http://127.0.0.1:1/v1", Concurrency: 1, Requests: 1}).Records[0]; got.Class != ClassConnect {
		t.Errorf("closed port: %+v", got)
	}
	if got := mustRun(t, Config{URL: url, Keys: []string{"wrong"}, Concurrency: 1, Requests: 1}).Records[0]; got.Status != 401 || got.Code != "invalid_api_key" {
		t.Errorf("wrong key: %+v", got)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s, url := provider(t, fakeprovider.Config{Defaults: fakeprovider.Settings{"fault": "hang"}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		// When it never becomes true the test fails below for want of a cancel.
		_, _ = s.Wait(ctx, 0, func(w fakeprovider.Snapshot) bool { return w.Open == 3 })
		cancel()
	}()
	r, err := Run(ctx, Config{URL: url, Keys: []string{"secret"}, Concurrency: 3, Requests: 100})
	if err != nil || r.Requests != 3 || r.ByClass[ClassCancelled] != 3 {
		t.Errorf("%v %+v", err, r.ByClass)
	}
}

func TestRetriesAgainstTheProvider(t *testing.T) {
	tests := []struct {
		name     string
		set      fakeprovider.Settings
		retry    bool
		attempts int
		want     Class
	}{
		{"not asked to", fakeprovider.Settings{"status": "429", "retry-after": "1ms"}, false, 1, ClassStatus},
		{"429", fakeprovider.Settings{"status": "429", "retry-after": "1ms"}, true, 3, ClassOK},
		{"503", fakeprovider.Settings{"status": "503", "retry-after": "1ms"}, true, 3, ClassOK},
		{"no answer", fakeprovider.Settings{"fault": "cut", "after": "head"}, true, 3, ClassOK},
		{"told not to", fakeprovider.Settings{"status": "429", "retry-after": "1ms", "should-retry": "false"}, true, 1, ClassStatus},
		{"told to", fakeprovider.Settings{"status": "400", "retry-after": "1ms", "should-retry": "true"}, true, 3, ClassOK},
		{"400", fakeprovider.Settings{"status": "400"}, true, 1, ClassStatus},
		{"hint too long", fakeprovider.Settings{"status": "429", "retry-after": "61"}, true, 1, ClassStatus},
		{"broken stream", fakeprovider.Settings{"fault": "cut"}, true, 1, ClassCut},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, url := provider(t, fakeprovider.Config{Rules: []fakeprovider.Rule{{Next: 2, Set: tt.set}}})
			got := mustRun(t, Config{URL: url, Keys: []string{"secret"}, Concurrency: 1, Requests: 1, Retry: tt.retry}).Records[0]
			if got.Attempts != tt.attempts || got.Class != tt.want || s.Witness(0).Totals.Received != int64(tt.attempts) {
				t.Errorf("%+v, want %d attempts and %s", got, tt.attempts, tt.want)
			}
		})
	}
}

func TestRequestBody(t *testing.T) {
	for _, tokens := range []int{1, 4, 5, 32, 1000} {
		cfg := Config{PromptTokens: tokens, Stream: true, MaxTokens: -1, Model: "m"}.WithDefaults()
		var body struct {
			Model     string
			MaxTokens *int `json:"max_tokens"`
			Messages  []struct{ Content string }
			Options   struct {
				IncludeUsage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err := json.Unmarshal([]byte(requestBody(cfg)), &body); err != nil {
			t.Fatal(err)
		}
		if want := max(2, (tokens-3)*4); len(body.Messages[0].Content) != want && tokens > 3 {
			t.Errorf("%d tokens: %d bytes, want %d", tokens, len(body.Messages[0].Content), want)
		}
		if body.MaxTokens != nil || !body.Options.IncludeUsage || body.Messages[0].Content == "" {
			t.Errorf("body %+v", body)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Config{URL: "http://x/v1", Concurrency: 1}
	if err := good.WithDefaults().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no url":             func(c *Config) { c.URL = "" },
		"other scheme":       func(c *Config) { c.URL = "ftp://x" },
		"no loop":            func(c *Config) { c.Concurrency = 0 },
		"both loops":         func(c *Config) { c.Rate = 1 },
		"negative rate":      func(c *Config) { c.Rate = -1 },
		"too many requests":  func(c *Config) { c.Requests = requestsMax + 1 },
		"too many workers":   func(c *Config) { c.Concurrency = concurrencyMax + 1 },
		"too many attempts":  func(c *Config) { c.Attempts = attemptsMax + 1 },
		"negative timeout":   func(c *Config) { c.Timeout = -1 },
		"bracketed settings": func(c *Config) { c.Directive = "[[tokens=1]]" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			change(&cfg)
			if _, err := Run(t.Context(), cfg); err == nil {
				t.Error("Run took it")
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name, seconds, ms string
		want              time.Duration
	}{
		{"none", "", "", 0},
		{"seconds", "2", "", 2 * time.Second},
		{"milliseconds win", "2", "1500", 1500 * time.Millisecond},
		{"date", now.Add(3 * time.Second).Format(http.TimeFormat), "", 3 * time.Second},
		{"date in the past", now.Add(-time.Hour).Format(http.TimeFormat), "", 0},
		{"nonsense", "soon", "never", 0},
		{"negative", "-1", "-1", 0},
		{"absurd", "1e300", "Inf", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Retry-After", tt.seconds)
			h.Set("Retry-After-Ms", tt.ms)
			if got := retryAfter(h, now); got != tt.want {
				t.Errorf("retryAfter = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestPercentiles(t *testing.T) {
	var thousand []time.Duration
	for i := range 1000 {
		thousand = append(thousand, time.Duration(1000-i))
	}
	tests := []struct {
		name   string
		values []time.Duration
		want   Percentiles
	}{
		{"none", nil, Percentiles{}},
		{"one", []time.Duration{5}, Percentiles{1, 5, 5, 5, 5, 5}},
		{"two", []time.Duration{9, 1}, Percentiles{2, 1, 9, 9, 9, 9}},
		{"thousand", thousand, Percentiles{1000, 500, 900, 990, 999, 1000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentiles(tt.values); got != tt.want {
				t.Errorf("percentiles = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestWriteTable(t *testing.T) {
	r := summarize(Config{}, []Record{
		{Index: 1, Class: ClassStatus, Status: 429, Code: "slow_down", Attempts: 2},
		{Index: 0, Class: ClassOK, Status: 200, Attempts: 1, TTFT: time.Millisecond, Duration: 2 * time.Millisecond},
		{Index: 2, Class: ClassDropped},
	}, time.Second)
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 in 1s, 1 ok (1.0/s), 3 attempts", "dropped: 1", "429: 1", "slow_down: 1", "first token  1", "1 answers without usage"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// FuzzSplitLines compares with the plain rule: CR LF and CR are LF, and what follows the last one is no line. The
// bytes come one at a time and together.
func FuzzSplitLines(f *testing.F) {
	for _, seed := range []string{"", "a", "a\n", "a\r\nb\r\n", "a\rb\r", "\r\r\n\n", "data: x\n\n", "\n\r", "\r\n\r\nrest"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		plain := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
		want := strings.Split(plain, "\n")
		want = want[:len(want)-1]
		whole := bufio.NewScanner(bytes.NewReader(data))
		slow := bufio.NewScanner(iotest.OneByteReader(bytes.NewReader(data)))
		for _, lines := range []*bufio.Scanner{whole, slow} {
			lines.Buffer(nil, lineBytesMax)
			lines.Split(splitLines())
			got := []string{}
			for lines.Scan() {
				got = append(got, lines.Text())
			}
			if !slices.Equal(got, want) {
				t.Fatalf("lines of %q = %q, want %q", data, got, want)
			}
		}
	})
}
