package fakeprovider

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener inside a bubble: real sockets would stop the virtual clock.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accept:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accept <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble runs a server on virtual time and gives play a client.
func bubble(t *testing.T, play func(t *testing.T, s *Server, client *http.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Keys: []Key{{"main", "secret"}}, Seed: 1})
		ln := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx, ln) }()
		transport := &http.Transport{DialContext: ln.dial, DisableCompression: true}
		play(t, s, &http.Client{Transport: transport})
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func send(t *testing.T, client *http.Client, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestPaceIsExact(t *testing.T) {
	tests := []struct {
		name      string
		directive string
		want      []time.Duration // of each event with text, from the request
	}{
		{"at once", "tokens=2", []time.Duration{0, 0}},
		{"first and gap", "tokens=4 first=50ms gap=10ms", []time.Duration{50e6, 60e6, 70e6, 80e6}},
		{"late head", "tokens=2 head=100ms first=50ms gap=30ms", []time.Duration{100e6, 100e6}},
		{"bursts", "tokens=5 first=1s gap=1s burst=2", []time.Duration{1e9, 1e9, 2e9, 2e9, 3e9}},
		{"reasoning takes its time", "tokens=2 reasoning=3 first=1s gap=1s", []time.Duration{4e9, 5e9}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *Server, client *http.Client) {
				started := time.Now()
				res := send(t, client, chatBody("[["+tt.directive+"]]", `,"stream":true`))
				defer res.Body.Close()
				var got []time.Duration
				lines := bufio.NewScanner(res.Body)
				for lines.Scan() {
					if strings.Contains(lines.Text(), `"delta":{"content":`) {
						got = append(got, time.Since(started))
					}
				}
				if len(got) != len(tt.want) {
					t.Fatalf("%d tokens, want %d", len(got), len(tt.want))
				}
				for i := range got {
					if got[i] != tt.want[i] {
						t.Errorf("token %d after %s, want %s", i, got[i], tt.want[i])
					}
				}
			})
		})
	}
}

func TestJSONTakesAsLongAsTheStream(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Server, client *http.Client) {
		started := time.Now()
		res := send(t, client, chatBody("[[tokens=5 first=1s gap=100ms]]", ""))
		res.Body.Close()
		if got := time.Since(started); got != 1400*time.Millisecond {
			t.Errorf("answer after %s, want 1.4s", got)
		}
	})
}

func TestHangEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, client *http.Client) {
		started := time.Now()
		res := send(t, client, chatBody("[[tokens=5 fault=hang after=2]]", `,"stream":true`))
		defer res.Body.Close()
		var seen int
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			seen += strings.Count(lines.Text(), `"delta":{"content":`)
		}
		if lines.Err() == nil || seen != 2 || time.Since(started) != hangMax {
			t.Errorf("%d tokens and error %v after %s, want 2 and a cut after %s", seen, lines.Err(), time.Since(started), hangMax)
		}
		w, err := s.Wait(t.Context(), 1, func(w Snapshot) bool { return w.Open == 0 })
		if err != nil || w.Records[0].Outcome != OutcomeFailed || w.Records[0].TokensSent != 2 ||
			time.Duration(w.Records[0].EndedNS-w.Records[0].StartedNS) != hangMax {
			t.Errorf("record %+v, %v", w.Records, err)
		}
	})
}

func TestCloseEndsHangingRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *Server, client *http.Client) {
		var waiting sync.WaitGroup
		var cut error
		waiting.Go(func() {
			req, err := http.NewRequest(http.MethodPost, "http://provider/v1/chat/completions", strings.NewReader(chatBody("[[fault=hang]]", "")))
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer secret")
			res, err := client.Do(req)
			if cut = err; err == nil {
				_ = res.Body.Close()
			}
		})
		if _, err := s.Wait(t.Context(), 0, func(w Snapshot) bool { return w.Open == 1 }); err != nil {
			t.Fatal(err)
		}
		s.Close()
		waiting.Wait()
		if cut == nil {
			t.Error("the hanging request got an answer")
		}
	})
}
