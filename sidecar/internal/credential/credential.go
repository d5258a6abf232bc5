// Package credential puts on calls what proves to providers who sends them, where that needs the time, the network or
// the whole call: tokens that are fetched and renewed, and signatures. What is a key alone and stands in the header
// that OpenAI or Anthropic have for it, the adapters put there themselves.
package credential

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Caller is who waits for a call to be authorized.
type Caller interface {
	Done() <-chan struct{} // closed once it has left
}

// Authorizer authorizes calls.
type Authorizer interface {
	// Authorize appends the header fields that authorize a call whose body is made. secret is the deployment's, empty for
	// none; host is the Host field that will be sent. It may wait for a token, for fetchWait at most and no longer than
	// its caller, who then gets FailCancelled.
	Authorize(who Caller, now time.Time, d *exchange.Deployment, secret []byte, c *adapter.Call, host string) *exchange.Failure

	// Refused says that the provider took what stands on c for no authority (401). It reports whether authorizing anew
	// may help, as it does with a token that was taken back before its end.
	Refused(now time.Time, d *exchange.Deployment, secret []byte, c *adapter.Call) bool
}

// method is how one secret authorizes. It is made once, and has many users at a time.
type method interface {
	authorize(who Caller, now time.Time, d *exchange.Deployment, c *adapter.Call, host string) *exchange.Failure
}

// refusable is a method with something to forget. A new one must be worth trying when it reports true.
type refusable interface {
	refused(now time.Time, c *adapter.Call) bool
}

// reader makes the method of a secret by the secret's shape. Its error is a message without any of the secret.
type reader func(r *Room, d *exchange.Deployment, secret []byte) (method, error)

// readers are the providers whose calls are authorized here. The calls of others stay as their adapters made them.
var readers = map[string]reader{
	"azure":   readAzure,
	"bedrock": readBedrock,
	"gemini":  readGemini,
	"vertex":  readVertex,
}

// holder is whose method it is. A secret may stand for several: tokens are for an audience.
type holder struct{ provider, audience, secret string }

// Room is the Authorizer of a sidecar: it keeps what was made of each secret.
type Room struct {
	ctx   context.Context // of fetches, with the HTTP client in it; ends with Close
	stop  context.CancelFunc
	tasks sync.WaitGroup // fetches under way

	mu   sync.Mutex
	held map[holder]method
}

// New makes a room that fetches tokens over connections of dial, nil for the machine's own. It must be closed.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Room {
	r := &Room{held: map[holder]method{}}
	client := &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		// A redirect would carry the secret elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r.ctx, r.stop = context.WithCancel(context.WithValue(context.Background(), oauth2.HTTPClient, client))
	return r
}

// Close ends the fetches under way.
func (r *Room) Close() {
	r.stop()
	r.tasks.Wait()
}

// Authorize implements Authorizer.
func (r *Room) Authorize(who Caller, now time.Time, d *exchange.Deployment, secret []byte, c *adapter.Call, host string) *exchange.Failure {
	if readers[d.Provider] == nil || len(secret) == 0 {
		return nil
	}
	m, err := r.method(d, secret)
	if err != nil {
		return &exchange.Failure{Kind: exchange.FailCredential, Message: fmt.Sprintf("credential %q: %s", d.Credential, err)}
	}
	return m.authorize(who, now, d, c, host)
}

// Refused implements Authorizer.
func (r *Room) Refused(now time.Time, d *exchange.Deployment, secret []byte, c *adapter.Call) bool {
	if readers[d.Provider] == nil || len(secret) == 0 {
		return false
	}
	m, err := r.method(d, secret)
	if err != nil {
		return false
	}
	f, ok := m.(refusable)
	return ok && f.refused(now, c)
}

// method is what was made of a secret, the first time it is met.
func (r *Room) method(d *exchange.Deployment, secret []byte) (method, error) {
	h := holder{d.Provider, audience(d), string(secret)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.held[h]; m != nil {
		return m, nil
	}
	m, err := readers[d.Provider](r, d, secret)
	if err != nil {
		return nil, err
	}
	if len(r.held) >= heldMax {
		clear(r.held) // only years of changing secrets come here
	}
	r.held[h] = m
	return m, nil
}
