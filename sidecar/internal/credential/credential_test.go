package credential

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// issuer is a token endpoint: it counts, and answers with tokens t1, t2 and so on.
type issuer struct {
	*httptest.Server
	asked  atomic.Int64
	status atomic.Int64  // 0 for a token
	life   atomic.Int64  // seconds
	form   atomic.Value  // of the last request
	hold   chan struct{} // nil for none: it is read when a request has come, and before it is answered
}

func newIssuer(t *testing.T) *issuer {
	s := &issuer{}
	s.life.Store(3600)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.asked.Add(1)
		if s.hold != nil {
			<-s.hold
			<-s.hold
		}
		_ = r.ParseForm()
		s.form.Store(r.PostForm.Encode())
		w.Header().Set("Content-Type", "application/json")
		if status := s.status.Load(); status != 0 {
			w.WriteHeader(int(status))
			_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"the secret hush is wrong"}`))
			return
		}
		_, _ = w.Write([]byte(`{"access_token":"t` + strconv.FormatInt(n, 10) + `","token_type":"Bearer","expires_in":` +
			strconv.FormatInt(s.life.Load(), 10) + `}`))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *issuer) secret() []byte {
	return []byte(`{"tenant_id":"contoso","client_id":"app","client_secret":"hush","token_uri":"` + s.URL + `"}`)
}

func newRoom(t *testing.T) *Room {
	r := New(nil)
	t.Cleanup(r.Close)
	return r
}

var azure = &exchange.Deployment{Provider: "azure", BaseURL: "https://x.openai.azure.com/openai/v1", Credential: "main"}

// header is what Authorize put on a call, as name and value.
func header(t *testing.T, r *Room, now time.Time, d *exchange.Deployment, secret []byte) (string, *adapter.Call) {
	t.Helper()
	c := &adapter.Call{}
	if f := r.Authorize(t.Context(), now, d, secret, c, "x"); f != nil {
		t.Fatalf("%+v", f)
	}
	if len(c.Header) == 0 {
		return "", c
	}
	if len(c.Header) > 1 {
		t.Fatalf("header %+v", c.Header)
	}
	return c.Header[0].Name + ": " + c.Header[0].Value, c
}

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct{ provider, secret, want string }{
		"azure, plain":            {"azure", "k1\n", "api-key: k1"},
		"azure, in a document":    {"azure", ` {"api_key":"k2"}`, "api-key: k2"},
		"gemini":                  {"gemini", "k3", "x-goog-api-key: k3"},
		"bedrock":                 {"bedrock", "k4", "Authorization: Bearer k4"},
		"vertex":                  {"vertex", `{"access_token":"k5"}`, "Authorization: Bearer k5"},
		"none":                    {"azure", "", ""},
		"the adapter's own doing": {"openai", "k6", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := &exchange.Deployment{Provider: c.provider}
			if got, _ := header(t, newRoom(t), time.Now(), d, []byte(c.secret)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestWrongSecrets: what a secret lacks is said, and nothing of it.
func TestWrongSecrets(t *testing.T) {
	for name, c := range map[string]struct{ provider, secret, want string }{
		"broken document":     {"azure", `{"api_key":"hush`, "is no JSON object"},
		"half a registration": {"azure", `{"tenant_id":"hush"}`, "must have api_key, or tenant_id"},
		"two lines":           {"gemini", "hush\nhush", "byte 5 cannot stand in a header field"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &exchange.Deployment{Provider: c.provider, Credential: "main"}
			f := newRoom(t).Authorize(t.Context(), time.Now(), d, []byte(c.secret), &adapter.Call{}, "x")
			if f == nil || f.Kind != exchange.FailCredential || !strings.Contains(f.Message, c.want) ||
				!strings.Contains(f.Message, `"main"`) || strings.Contains(f.Message, "hush") {
				t.Errorf("got %+v, want %q", f, c.want)
			}
		})
	}
}

// TestTokenIsShared: many attempts at once cost one fetch, and the form asks for the deployment's audience.
func TestTokenIsShared(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	now := time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, _ := header(t, r, now, azure, s.secret()); got != "Authorization: Bearer t1" {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
	const form = "client_id=app&client_secret=hush&grant_type=client_credentials&scope=https%3A%2F%2Fai.azure.com%2F.default"
	if n := s.asked.Load(); n != 1 || s.form.Load() != form {
		t.Errorf("asked %d times, with %q", n, s.form.Load())
	}
	classic := &exchange.Deployment{Provider: "azure", BaseURL: "https://x.openai.azure.com/openai/deployments/d"}
	if got, _ := header(t, r, now, classic, s.secret()); got != "Authorization: Bearer t2" {
		t.Errorf("got %q: the audiences must have a token each", got)
	}
}

// TestTokenIsRenewedAhead: near its end the old token is still sent while the next one is fetched, once.
func TestTokenIsRenewedAhead(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	now := time.Now()
	_, _ = header(t, r, now, azure, s.secret())
	if _, _ = header(t, r, now.Add(50*time.Minute), azure, s.secret()); s.asked.Load() != 1 {
		t.Fatal("renewed too early")
	}
	late := now.Add(56 * time.Minute)
	if got, _ := header(t, r, late, azure, s.secret()); got != "Authorization: Bearer t1" {
		t.Fatalf("got %q", got)
	}
	r.tasks.Wait()
	if got, _ := header(t, r, late, azure, s.secret()); got != "Authorization: Bearer t2" || s.asked.Load() != 2 {
		t.Errorf("got %q after %d fetches", got, s.asked.Load())
	}
	if got, _ := header(t, r, now.Add(3*time.Hour), azure, s.secret()); got != "Authorization: Bearer t3" {
		t.Errorf("got %q long after its end", got)
	}
}

// TestTokenThatFailsToRenew: the old one serves on to its end, and the issuer is not asked for each request.
func TestTokenThatFailsToRenew(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	now := time.Now()
	_, _ = header(t, r, now, azure, s.secret())
	s.status.Store(503)
	late := now.Add(57 * time.Minute)
	for range 3 {
		if got, _ := header(t, r, late, azure, s.secret()); got != "Authorization: Bearer t1" {
			t.Fatalf("got %q", got)
		}
		r.tasks.Wait()
	}
	if n := s.asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	_, _ = header(t, r, late.Add(fetchPause), azure, s.secret())
	r.tasks.Wait()
	if n := s.asked.Load(); n != 3 {
		t.Errorf("asked %d times after the pause", n)
	}
}

// TestRefusedToken: whoever is refused first gives the token up; the others find the new one. A provider that refuses
// new ones too is not given one after the other.
func TestRefusedToken(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	now := time.Now()
	_, first := header(t, r, now, azure, s.secret())
	_, second := header(t, r, now, azure, s.secret())
	if !r.Refused(now, azure, s.secret(), first) {
		t.Fatal("the first refusal is not worth another try")
	}
	got, third := header(t, r, now, azure, s.secret())
	if got != "Authorization: Bearer t2" || !r.Refused(now, azure, s.secret(), second) {
		t.Fatalf("got %q", got)
	}
	if got, _ := header(t, r, now, azure, s.secret()); got != "Authorization: Bearer t2" {
		t.Fatalf("got %q: the second refusal was of the old token", got)
	}
	if r.Refused(now, azure, s.secret(), third) {
		t.Error("a new token that is refused is worth no other")
	}
	if !r.Refused(now.Add(forgetPause), azure, s.secret(), third) {
		t.Error("it is after a while")
	}
	if d := (&exchange.Deployment{Provider: "gemini"}); r.Refused(now, d, []byte("k"), &adapter.Call{}) {
		t.Error("a plain key stays what it is")
	}
}

// TestNoToken: an issuer that refuses is our fault to mend, one that is down is not; neither is asked for each request.
func TestNoToken(t *testing.T) {
	for name, c := range map[string]struct {
		status int64
		want   exchange.FailureKind
	}{
		"refused": {401, exchange.FailCredential}, "busy": {429, exchange.FailOverloaded}, "down": {500, exchange.FailOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newIssuer(t), newRoom(t)
			s.status.Store(c.status)
			now := time.Now()
			for range 3 {
				f := r.Authorize(t.Context(), now, azure, s.secret(), &adapter.Call{}, "x")
				if f == nil || f.Kind != c.want || strings.Contains(f.Message, "hush") {
					t.Fatalf("%+v", f)
				}
			}
			if n := s.asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
			s.status.Store(0)
			if got, _ := header(t, r, now.Add(fetchPause), azure, s.secret()); got != "Authorization: Bearer t2" {
				t.Errorf("got %q", got)
			}
		})
	}
	t.Run("out of reach", func(t *testing.T) {
		s, r := newIssuer(t), newRoom(t)
		s.Close()
		if f := r.Authorize(t.Context(), time.Now(), azure, s.secret(), &adapter.Call{}, "x"); f == nil || f.Kind != exchange.FailConnect {
			t.Errorf("%+v", f)
		}
	})
}

// TestCallerLeavesWhileItWaits: the wait ends, the fetch does not: its token is there for those who come after.
func TestCallerLeavesWhileItWaits(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	s.hold = make(chan struct{})
	now := time.Now()
	who, leave := context.WithCancel(t.Context())
	left := make(chan *exchange.Failure)
	go func() { left <- r.Authorize(who, now, azure, s.secret(), &adapter.Call{}, "x") }()
	s.hold <- struct{}{} // the issuer has been asked, and does not answer yet
	leave()
	if f := <-left; f == nil || f.Kind != exchange.FailCancelled {
		t.Errorf("%+v", f)
	}
	s.hold <- struct{}{}
	if got, _ := header(t, r, now, azure, s.secret()); got != "Authorization: Bearer t1" {
		t.Errorf("got %q", got)
	}
}
