package fakeprovider

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// start serves cfg on loopback. Without keys in cfg there is one, "secret", named "main".
func start(t *testing.T, cfg Config) (*Server, string) {
	t.Helper()
	if cfg.Keys == nil {
		cfg.Keys = []Key{{Name: "main", Secret: "secret"}}
	}
	s := New(cfg)
	web := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close() // first: the web server waits for its handlers
		web.Close()
	})
	return s, web.URL
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (r reply) json() gjson.Result { return gjson.Parse(r.body) }

// post sends a body with the key "secret" in the way of the path's dialect.
func post(t *testing.T, url, body string) reply {
	t.Helper()
	r, err := try(t.Context(), url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func try(ctx context.Context, url, body string) (reply, error) {
	res, err := open(ctx, url, body)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(data), err}, nil
}

func open(ctx context.Context, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.Contains(url, "/v1/messages") {
		req.Header.Set("Anthropic-Version", "2023-06-01")
		req.Header.Set("X-Api-Key", "secret")
	} else {
		req.Header.Set("Authorization", "Bearer secret")
	}
	// Identity unless a test is about gzip: the client must not undo it behind our back.
	req.Header.Set("Accept-Encoding", "identity")
	return http.DefaultClient.Do(req)
}

func chatBody(prompt, more string) string {
	return `{"model":"fake-large","messages":[{"role":"user","content":"` + prompt + `"}]` + more + `}`
}

func messagesBody(prompt, more string) string {
	return `{"model":"fake-large","max_tokens":100,"messages":[{"role":"user","content":"` + prompt + `"}]` + more + `}`
}

const streamOn = `,"stream":true,"stream_options":{"include_usage":true}`

type sseEvent struct{ name, data string }

// events reads plain SSE, with LF or CR LF.
func events(body string) []sseEvent {
	var out []sseEvent
	var e sseEvent
	for line := range strings.SplitSeq(strings.ReplaceAll(body, "\r\n", "\n"), "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if line == "" && e != (sseEvent{}) {
				out = append(out, e)
				e = sseEvent{}
			}
		}
	}
	return out
}

// ended waits until nothing is open and returns the newest record.
func ended(t *testing.T, s *Server) (Record, Snapshot) {
	t.Helper()
	snapshot := waitFor(t, s, func(w Snapshot) bool { return w.Open == 0 && len(w.Records) > 0 })
	return snapshot.Records[0], snapshot
}

func waitFor(t *testing.T, s *Server, done func(Snapshot) bool) Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	snapshot, err := s.Wait(ctx, 100, done)
	if err != nil {
		t.Fatalf("the witness never saw it: %+v", snapshot)
	}
	return snapshot
}
