// Package alert tells people that a budget reached a threshold: in quotad's log, and at the team's webhook if it has
// one. The ledger raises each alert once; an alert is told once the webhook has taken it, and that is an entry in the
// Raft log, so the next leader goes on where this one stopped. A webhook may see an alert twice when the leader dies
// between the two: both carry the same id.
package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/registry"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

const (
	// postTimeout bounds one call of a webhook.
	postTimeout = 10 * time.Second
	// A webhook that fails is called again after retryMin, then twice as long each time, up to retryMax, for as long as
	// quotad remembers the budget's period.
	retryMin = time.Second
	retryMax = 10 * time.Minute
	// callsMax bounds the webhooks called at once, so that one that hangs holds up few others.
	callsMax = 8
	// answerMax bounds what is read of a webhook's answer for the log.
	answerMax = 200
)

// Node is the part of the replica that alerts need.
type Node interface {
	Propose(ctx context.Context, ops ...*raftlogv1.Op) ([]replica.Result, error)
	View(read func(*replica.Machine))
	Leader() (id, clientAddr, adminAddr string, self bool)
	Watch(ctx context.Context) <-chan replica.Signal
}

// Teller tells of alerts while its node leads.
type Teller struct {
	node   Node
	client *http.Client
	log    *zap.Logger
	calls  chan struct{} // a token for each call under way

	mu     sync.Mutex
	alerts map[key]*state // those this leadership knows of and that are not told
	done   chan struct{}  // a call has ended; holds one
}

type key struct {
	resource uint64
	period   uint32
	permille int64
}

// state is an alert that is not told.
type state struct {
	running bool
	tries   int
	next    time.Time
}

var errNotLeader = errors.New("this node no longer leads")

// New makes a teller that calls webhooks with client; its redirects are not followed.
func New(node Node, client *http.Client, log *zap.Logger) *Teller {
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Teller{
		node: node, client: &c, log: log, calls: make(chan struct{}, callsMax), alerts: map[key]*state{},
		done: make(chan struct{}, 1),
	}
}

// Pending is how many alerts this node, if it leads, has not told yet.
func (t *Teller) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.alerts)
}

// Run tells until ctx ends.
func (t *Teller) Run(ctx context.Context) error {
	changes := t.node.Watch(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case s, more := <-changes:
			if !more {
				return nil
			}
			if !s.Alerts && !s.Leadership {
				continue
			}
		case <-timer.C:
		case <-t.done:
		}
		next := t.look(ctx, &calls, time.Now())
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// look begins to tell what is due, and returns when something more will be.
func (t *Teller) look(ctx context.Context, calls *sync.WaitGroup, now time.Time) (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, _, _, self := t.node.Leader(); !self {
		clear(t.alerts)
		return time.Time{}
	}
	notices := t.untold()
	known := map[key]*state{}
	for _, n := range notices {
		s := t.alerts[n.key]
		if s == nil {
			s = &state{next: now}
			t.log.Warn("budget reached a threshold", zap.String("scope", n.Scope), zap.String("owner", n.Owner),
				zap.String("period", n.Period), zap.Int64("threshold_permille", n.Permille), zap.String("alert", n.ID))
		}
		known[n.key] = s
		switch {
		case s.running:
		case !now.Before(s.next):
			s.running = true
			calls.Go(func() { t.tell(ctx, n, s) })
		case next.IsZero() || s.next.Before(next):
			next = s.next
		}
	}
	t.alerts = known
	return next
}

// tell takes an alert to its webhook once, and notes it when it was taken.
func (t *Teller) tell(ctx context.Context, n notice, s *state) {
	t.calls <- struct{}{}
	err := errNotLeader
	if _, _, _, self := t.node.Leader(); self { // still, if it waited for its turn
		err = t.post(ctx, n)
	}
	<-t.calls
	if err == nil {
		_, err = t.node.Propose(ctx, &raftlogv1.Op{Op: &raftlogv1.Op_AlertTold{AlertTold: &raftlogv1.AlertTold{
			Resource: n.key.resource, Period: n.key.period, Permille: n.key.permille,
		}}})
	}
	if err != nil && ctx.Err() == nil {
		t.log.Warn("alert was not told, and will be tried again", zap.String("alert", n.ID), zap.Int("tries", s.tries+1),
			zap.Error(err))
	}
	t.mu.Lock()
	s.running = false
	s.next = time.Now().Add(min(retryMin<<min(s.tries, 20), retryMax))
	s.tries++
	t.mu.Unlock()
	select {
	case t.done <- struct{}{}:
	default:
	}
}

func (t *Teller) post(ctx context.Context, n notice) error {
	if n.webhook == "" {
		return nil // the log is all there is
	}
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode alert: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.webhook, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call webhook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sluice-quotad")
	req.Header.Set("Idempotency-Key", n.ID)
	resp, err := t.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address: its path is often a secret
		}
		return fmt.Errorf("call webhook at %s: %w", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, answerMax)) // what came is enough
	return fmt.Errorf("webhook at %s answered %s: %q", req.URL.Host, resp.Status, answer)
}

// notice is what a webhook is sent. Amounts are nano-dollars as decimal strings, as in the admin API.
type notice struct {
	key     key
	webhook string

	ID        string `json:"id"` // the same whenever it is sent again
	Kind      string `json:"kind"`
	Scope     string `json:"scope"` // org, business_unit, team or key
	Owner     string `json:"owner"`
	Team      string `json:"team,omitempty"`
	Period    string `json:"period"` // yyyy-mm
	Permille  int64  `json:"threshold_permille"`
	SpentNano int64  `json:"spent_nano,string"` // when it is sent; what stands in suspense included
	CapNano   int64  `json:"cap_nano,string"`   // with credits
	Hard      bool   `json:"hard"`              // requests are refused when it is spent
	Text      string `json:"text"`              // for people; chat systems show this member
}

// untold lists what is to be told.
func (t *Teller) untold() (out []notice) {
	t.node.View(func(m *replica.Machine) {
		for _, a := range m.Ledger.Untold() {
			out = append(out, noticeOf(m, a))
		}
	})
	return out
}

func noticeOf(m *replica.Machine, a ledger.Alert) notice {
	n := notice{
		key:  key{a.Resource, a.Period, a.Permille},
		ID:   fmt.Sprintf("%s-%d-%d-%d", m.ClusterID(), a.Resource, a.Period, a.Permille),
		Kind: "budget_threshold", Scope: a.Spec.Scope, Owner: a.Spec.Owner,
		Period: fmt.Sprintf("%04d-%02d", a.Period/100, a.Period%100), Permille: a.Permille, SpentNano: a.Spent,
		CapNano: a.Cap, Hard: a.Spec.Hard,
	}
	switch n.Scope {
	case registry.ScopeTeam:
		n.Team = n.Owner
	case registry.ScopeKey:
		k, _ := m.Registry.Key(n.Owner)
		n.Team = k.Team
	}
	if team, ok := m.Registry.Team(n.Team); ok && team.Alerts != nil {
		n.webhook = team.Alerts.Webhook
	}
	n.Text = fmt.Sprintf("Budget of %s %s for %s: %s%% reached, %s of %s spent.", n.Scope, n.Owner, n.Period,
		percent(a.Permille), registry.Nano(a.Spent).USD(), registry.Nano(a.Cap).USD())
	return n
}

// percent writes thousandths as a percentage.
func percent(permille int64) string {
	if permille%10 == 0 {
		return strconv.FormatInt(permille/10, 10)
	}
	return fmt.Sprintf("%d.%d", permille/10, permille%10)
}
