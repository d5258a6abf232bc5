package system

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
)

const (
	balancerIP   = "127.0.7.1"
	balancerIdle = 60 * time.Second // AWS's default, and others'
	earlyAfter   = 45 * time.Second // the sidecar's, towards a caller that has heard nothing
)

// balancer stands between a caller and a sidecar. It ends a connection on which nothing moves for balancerIdle.
type balancer struct {
	w  *world
	mu sync.Mutex
	// back are the moments at which something went back to the caller.
	back []time.Time
	cuts int
}

// balance starts one before a sidecar, and returns a client that goes through it.
func balance(w *world, car *member) (*balancer, *http.Client) {
	b := &balancer{w: w}
	ln, err := w.net.Host(balancerIP).Listen("tcp", balancerIP+":80")
	if err != nil {
		w.t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			caller, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { b.join(caller, car.ip+":4000") })
		}
	})
	transport := &http.Transport{DialContext: w.net.Host(appIP).Dial, DisableKeepAlives: true}
	w.t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = ln.Close()
		conns.Wait()
	})
	return b, &http.Client{Transport: transport}
}

// join passes bytes both ways until either side ends or nothing moves.
func (b *balancer) join(caller net.Conn, to string) {
	car, err := b.w.net.Host(balancerIP).Dial(b.w.t.Context(), "tcp", to)
	if err != nil {
		_ = caller.Close()
		return
	}
	end := sync.OnceFunc(func() { _, _ = caller.Close(), car.Close() })
	idle := time.AfterFunc(balancerIdle, func() {
		b.mu.Lock()
		b.cuts++
		b.mu.Unlock()
		end()
	})
	defer idle.Stop()
	pass := func(to, from net.Conn, note func()) {
		defer end()
		_, _ = io.Copy(to, moving{from, func() { idle.Reset(balancerIdle); note() }})
	}
	var ways sync.WaitGroup
	ways.Go(func() { pass(car, caller, func() {}) })
	ways.Go(func() {
		pass(caller, car, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.back = append(b.back, time.Now())
		})
	})
	ways.Wait()
}

// moving is a reader that tells of what it reads.
type moving struct {
	from io.Reader
	tell func()
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if n > 0 {
		m.tell()
	}
	return n, err
}

const lateIP = "127.0.9.2"

// late is a provider that sends its head at once and breaks much later, without a token.
type late struct {
	after time.Duration
	cut   bool // it cuts the connection; otherwise it says that it is overloaded
}

func (l *late) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
		return
	case <-time.After(l.after):
	}
	switch {
	case l.cut:
		panic(http.ErrAbortHandler)
	case strings.HasSuffix(r.URL.Path, "/responses"):
		_, _ = io.WriteString(w, "event: error\ndata: {\"type\":\"error\",\"code\":\"server_is_overloaded\",\"message\":\"too busy\",\"param\":null,\"sequence_number\":0}\n\n")
	default:
		_, _ = io.WriteString(w, "data: {\"error\":{\"message\":\"too busy\",\"type\":\"server_error\",\"code\":\"server_is_overloaded\"}}\n\n")
	}
}

// serve runs it until the test ends.
func (l *late) serve(w *world) {
	ln, err := w.net.Host(lateIP).Listen("tcp", lateIP+":80")
	if err != nil {
		w.t.Fatal(err)
	}
	srv := &http.Server{Handler: l}
	m := &member{name: "late provider", ip: lateIP}
	w.run(m, func(ctx context.Context) error {
		go func() {
			<-ctx.Done()
			_ = srv.Close()
		}()
		_ = srv.Serve(ln) // ends with Close
		return nil
	}, func() error { return nil })
}

// silentOrg has an alias that is patient with its one deployment, and one that has a second.
func silentOrg(slow string) string {
	const timeouts = "timeouts: { connect: 2s, first_token: 100s, idle: 20s, total: 10m }"
	return strings.NewReplacer(
		"deployments:\n", `deployments:
  - { id: slow, provider: openai, base_url: "http://`+slow+`:80/v1", model: slow, credential: main, price: chat }
`,
		"aliases:\n", `aliases:
  alone: { `+timeouts+`, targets: [ { deployment: slow } ] }
  once: { `+timeouts+`, max_attempts: 1, targets: [ { deployment: slow } ] }
  pair: { `+timeouts+`, targets: [ { deployment: slow, priority: 0 }, { deployment: main, priority: 1 } ] }
  again: { `+timeouts+`, max_attempts: 2, targets: [ { deployment: slow } ] }
`).Replace(org(provider, "{ monthly: 100 }", "{ rpm: 6000 }"))
}

// speech is how callers of an API ask for a stream, and what they see of it.
var speeches = []struct {
	name, path, ask string
	alive           string   // the sign of life
	whole           string   // what a whole stream ends with
	broken          []string // how its error events begin
}{
	{
		"chat", "/v1/chat/completions", `{"model":"ALIAS","stream":true,"messages":[{"role":"user","content":"hello"}]}`,
		": keep-alive\n\n", "data: [DONE]\n\n", []string{`data: {"error":{`},
	},
	{
		"messages", "/v1/messages", `{"model":"ALIAS","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"hello"}]}`,
		"event: ping\n", "event: message_stop\n", []string{"event: error\n"},
	},
	{
		"responses", "/v1/responses", `{"model":"ALIAS","stream":true,"input":"hello"}`,
		": keep-alive\n\n", "event: response.completed\n", []string{"event: error\n", "event: response.failed\n"},
	},
}

// TestLongSilence is F13 of the field reports. The provider sends its head at once and its first token late, behind a
// load balancer that cuts silent connections. Up to a threshold the caller sees nothing: a failure is a plain answer, or
// another deployment's. Behind it the caller has a stream with signs of life, and a failure is its error event.
func TestLongSilence(t *testing.T) {
	for _, tt := range []struct {
		name, alias string
		first       time.Duration // when the slow deployment says its first token
		late        *late         // or breaks
		took        time.Duration
		status      int
		alive       int    // signs of life
		attempts    string // 1: the second deployment was not tried
		says        string // how the answer ended: what an error says, "" for a whole one
	}{
		{"a token after 80 s", "alone", 80 * time.Second, nil, 80 * time.Second, 200, 2, "1", ""},
		{"a token after 44 s", "alone", 44 * time.Second, nil, 44 * time.Second, 200, 0, "1", ""},
		{"no token at all", "pair", time.Hour, nil, 100 * time.Second, 200, 3, "1", "first-token deadline"},
		{"an error after 70 s", "pair", 0, &late{after: 70 * time.Second}, 70 * time.Second, 200, 2, "1", "too busy"},
		{"a cut after 70 s", "pair", 0, &late{after: 70 * time.Second, cut: true}, 70 * time.Second, 200, 2, "1", "ended early"},
		{"an error after 44 s", "once", 0, &late{after: 44 * time.Second}, 44 * time.Second, 503, 0, "1", "too busy"},
		{"a cut after 44 s", "once", 0, &late{after: 44 * time.Second, cut: true}, 44 * time.Second, 502, 0, "1", "ended early"},
		{"another deployment after 44 s", "pair", 0, &late{after: 44 * time.Second}, 44 * time.Second, 200, 0, "2", ""},
		{"the second attempt is silent too", "again", 0, &late{after: 25 * time.Second}, 50 * time.Second, 200, 1, "2", "too busy"},
	} {
		for _, speech := range speeches {
			t.Run(tt.name+"/"+speech.name, func(t *testing.T) {
				slow := providerIP
				if tt.late != nil {
					slow = lateIP
				}
				inWorld(t, 1, 1, silentOrg(slow), func(t *testing.T, w *world) {
					settings := map[string]fakeprovider.Settings{"slow": {"first": tt.first.String(), "tokens": "5"}}
					if err := w.fake.Apply(fakeprovider.Control{ModelSettings: &settings}); err != nil {
						t.Fatal(err)
					}
					if tt.late != nil {
						(&late{after: tt.late.after, cut: tt.late.cut}).serve(w)
					}
					b, client := balance(w, w.cars[0])
					began := time.Now()
					a := send(t.Context(), client, "http://"+balancerIP+speech.path, appKey, strings.Replace(speech.ask, "ALIAS", tt.alias, 1))
					took := time.Since(began)
					if a.err != nil || a.status != tt.status || a.header.Get("x-gw-attempts") != tt.attempts {
						t.Fatalf("after %v: %d %v, %s attempts: %s", took, a.status, a.err, a.header.Get("x-gw-attempts"), a.body)
					}
					if took < tt.took || took > tt.took+2*time.Second {
						t.Errorf("after %v, want %v", took, tt.took)
					}
					if b.cuts != 0 {
						t.Errorf("the load balancer cut %d connections", b.cuts)
					}
					if n := strings.Count(a.body, speech.alive); n != tt.alive {
						t.Errorf("%d signs of life, want %d: %s", n, tt.alive, a.body)
					}
					if tt.alive > 0 {
						if first := b.back[0].Sub(began); first < earlyAfter || first > earlyAfter+network {
							t.Errorf("the first after %v, want %v", first, earlyAfter)
						}
					}
					whole := tt.says == ""
					if got := strings.Contains(a.body, speech.whole); got != whole || !strings.Contains(a.body, tt.says) {
						t.Errorf("ends well: %v, want %v, with %q: %s", got, whole, tt.says, a.body)
					}
					errors := 0
					for _, begins := range speech.broken {
						errors += strings.Count(a.body, begins)
					}
					if broken := tt.status == 200 && !whole; broken != (errors == 1) || errors > 1 {
						t.Errorf("%d error events: %s", errors, a.body)
					}
					if tt.status != 200 && gjson.Get(a.body, "error.type").Str == "" {
						t.Errorf("no error: %s", a.body)
					}
					w.eventually("the provider is left", func() bool { return w.fake.Witness(0).Open == 0 })
					w.eventually("nothing is held", func() bool { return w.budgets()[0].HeldNano == 0 })
					// A failure without a token is the platform's to pay, on whichever side of the threshold it comes.
					if settled := w.budgets()[0].SettledNano; (settled > 0) != whole {
						t.Errorf("%d settled", settled)
					}
				})
			})
		}
	}
}
