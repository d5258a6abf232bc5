package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/oauth2"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// fetch gets a new token, by the library of whoever issues it. Its context has the room's HTTP client.
type fetch func(ctx context.Context) (*oauth2.Token, error)

// bearer is a method whose token is fetched: the attempts share it, and the next one is fetched while it is still good.
type bearer struct {
	room  *Room
	fetch fetch

	mu      sync.Mutex
	token   *oauth2.Token // nil for none
	since   time.Time     // when it was asked for
	pending *fetching     // nil for none
	last    *fetching     // that brought no token; nil when the last one did
	forgot  time.Time     // when a token was last given up because the provider refused it
}

// fetching is one fetch. Its result stands once done is closed.
type fetching struct {
	begun   time.Time
	done    chan struct{}
	token   *oauth2.Token
	failure *exchange.Failure
}

func newBearer(r *Room, f fetch) *bearer { return &bearer{room: r, fetch: f} }

func (b *bearer) authorize(who Caller, now time.Time, _ *exchange.Deployment, c *adapter.Call, _ string) *exchange.Failure {
	token, pending := b.take(now)
	if token == nil {
		select {
		case <-pending.done:
		case <-who.Done(): // the fetch goes on for those who come after
			return &exchange.Failure{Kind: exchange.FailCancelled, Message: "the caller left while a token was fetched"}
		}
		if pending.failure != nil {
			return pending.failure
		}
		token = pending.token
	}
	c.Header = append(c.Header, adapter.Field{Name: "Authorization", Value: "Bearer " + token.AccessToken})
	return nil
}

// take returns the token that is good now, or the fetch that will bring one.
func (b *bearer) take(now time.Time) (*oauth2.Token, *fetching) {
	b.mu.Lock()
	defer b.mu.Unlock()
	resting := b.last != nil && now.Sub(b.last.begun) < fetchPause
	if b.token != nil && now.Before(b.end(spareLife)) {
		if !resting && now.After(b.end(min(renewAhead, b.token.Expiry.Sub(b.since)/5))) {
			b.begin(now)
		}
		return b.token, nil
	}
	if b.pending == nil && resting {
		return nil, b.last
	}
	return nil, b.begin(now)
}

// end is when the token ends, and so long before. One without an end is good for as long as the provider takes it.
func (b *bearer) end(before time.Duration) time.Time {
	if b.token.Expiry.IsZero() {
		return time.Unix(1<<62, 0)
	}
	return b.token.Expiry.Add(-before)
}

// begin begins a fetch, unless one is under way.
func (b *bearer) begin(now time.Time) *fetching {
	if b.pending != nil {
		return b.pending
	}
	p := &fetching{begun: now, done: make(chan struct{})}
	b.pending = p
	b.room.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(b.room.ctx, fetchWait)
		defer cancel()
		token, err := b.fetch(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil && !visible(token.AccessToken) {
			err = errors.New("its token cannot stand in a header")
		}
		if b.pending, b.last = nil, nil; err != nil {
			p.failure, b.last = asFailure(err), p
		} else {
			p.token, b.token, b.since = token, token, now
		}
		close(p.done)
	})
	return p
}

// refused implements refusable. Many attempts may have used one token: the first gives it up, and those after it find
// another in its place.
func (b *bearer) refused(now time.Time, c *adapter.Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token == nil || !carries(c, b.token.AccessToken) {
		return true
	}
	if now.Sub(b.forgot) < forgetPause {
		return false // a new token did not help
	}
	b.token, b.forgot = nil, now
	return true
}

func carries(c *adapter.Call, token string) bool {
	for _, f := range c.Header {
		if f.Name == "Authorization" && f.Value == "Bearer "+token {
			return true
		}
	}
	return false
}

func visible(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// asFailure says why there is no token: refused by its issuer, which is ours to mend, or out of reach.
func asFailure(err error) *exchange.Failure {
	var no *oauth2.RetrieveError
	if !errors.As(err, &no) || no.Response == nil {
		return &exchange.Failure{Kind: exchange.FailConnect, Message: "the token endpoint was not reached or gave no token"}
	}
	status := no.Response.StatusCode
	code := no.ErrorCode
	if code == "" { // not every part of the library reads it
		code = gjson.GetBytes(no.Body, "error").Str
	}
	f := &exchange.Failure{
		Kind: exchange.FailCredential, Code: code,
		Message: strings.TrimSpace(fmt.Sprintf("the token endpoint answered %d %s", status, code)),
	}
	if status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		f.Kind = exchange.FailOverloaded
	}
	return f
}
