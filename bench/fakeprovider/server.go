package fakeprovider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers API calls, control calls and witness queries on one handler. It may be used from any goroutine.
// Control and witness are open to everyone who reaches the listener: keep it on loopback or inside a test.
type Server struct {
	witness  *witness
	detail   bool
	idPrefix string
	ids      atomic.Uint64
	stop     chan struct{} // closed by Close

	mu      sync.Mutex // guards what follows
	rules   *ruleset
	closing bool
	busy    sync.WaitGroup // requests being answered; Add only while closing is false
}

// New makes a Server. A config that Validate refuses is a BUG panic.
func New(cfg Config) *Server {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		panic("BUG: fakeprovider.New: " + err.Error())
	}
	seed := cfg.Seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	return &Server{
		witness: newWitness(cfg.RecordsMax), detail: cfg.Detail,
		idPrefix: fmt.Sprintf("%08x", uint32(seed^seed>>32)), stop: make(chan struct{}), rules: newRuleset(cfg),
	}
}

// Run serves HTTP/1.1 on ln until ctx ends, then closes every connection, waits for the handlers, and returns nil.
// It closes ln in any case. An error means that the listener failed.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	hs := &http.Server{Handler: s, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		_ = hs.Close() // Serve says what matters
		s.Close()
	}()
	err := hs.Serve(ln)
	cancel()
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve fake provider: %w", err)
}

// Close ends every request that is waiting, as a cut connection, waits for all handlers to return, and makes later
// API calls fail with 503. It may be called more than once. Run calls it.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.busy.Wait()
}

// Witness returns the counts and the newest records, at most records of them.
func (s *Server) Witness(records int) Snapshot {
	snapshot, _ := s.witness.snapshot(records, time.Now())
	return snapshot
}

// Wait blocks until done says yes and returns that snapshot. done is called at once and after every change: a request
// received, admitted or ended, tokens written, a reset. When ctx ends first, the error is its cause.
func (s *Server) Wait(ctx context.Context, records int, done func(Snapshot) bool) (Snapshot, error) {
	return s.witness.wait(ctx, records, done)
}

// Reset forgets counts, timeline and records. Requests that are open stay open and count for nothing when they end.
// Settings, rules and keys stay.
func (s *Server) Reset() { s.witness.reset(time.Now()) }

// Apply changes the server. Nothing is changed when the error is not nil. Requests that are being answered keep the
// behaviour they started with; a key that is taken away gets 401 from the next request on. The server keeps the maps of
// c: do not change them afterwards.
func (s *Server) Apply(c Control) error {
	if err := c.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.rules.rules)
	if c.Rules != nil {
		before = len(*c.Rules)
	}
	if before+len(c.AddRules) > rulesMax {
		return fmt.Errorf("rules: more than %d", rulesMax)
	}
	s.rules.apply(c, time.Now())
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/healthz":
		w.WriteHeader(http.StatusOK)
	case path == "/control":
		s.serveControl(w, r)
	case path == "/witness":
		s.serveWitness(w, r)
	case path == "/witness/reset" && r.Method == http.MethodPost:
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	case path == "/v1/chat/completions" && r.Method == http.MethodPost:
		s.serveAPI(w, r, EndpointChat, openAI)
	case path == "/v1/responses" && r.Method == http.MethodPost:
		s.serveAPI(w, r, EndpointResponses, openAI)
	case path == "/v1/embeddings" && r.Method == http.MethodPost:
		s.serveAPI(w, r, EndpointEmbeddings, openAI)
	case path == "/v1/messages" && r.Method == http.MethodPost:
		s.serveAPI(w, r, EndpointMessages, anthropic)
	case path == "/v1/messages/count_tokens" && r.Method == http.MethodPost:
		s.serveAPI(w, r, EndpointCountTokens, anthropic)
	case (path == "/v1/models" || strings.HasPrefix(path, "/v1/models/")) && r.Method == http.MethodGet:
		d := openAI
		if r.Header.Get("Anthropic-Version") != "" {
			d = anthropic
		}
		s.serveAPI(w, r, EndpointModels, d)
	default:
		writeJSON(w, http.StatusNotFound, openAI.errorBody("", refusal{status: 404, code: "unknown_url",
			message: "Invalid URL (" + r.Method + " " + path + ")"}))
	}
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_, _ = io.WriteString(w, body)
}

func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, controlBytesMax))
		decoder.DisallowUnknownFields()
		var c Control
		err := decoder.Decode(&c)
		if err == nil {
			err = s.Apply(c)
		}
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), status)
			return
		}
	}
	s.mu.Lock()
	current := s.rules.describe()
	s.mu.Unlock()
	writeValue(w, current)
}

func (s *Server) serveWitness(w http.ResponseWriter, r *http.Request) {
	records := recordsShown
	if text := r.URL.Query().Get("records"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			http.Error(w, "records must be a whole number", http.StatusBadRequest)
			return
		}
		records = n
	}
	writeValue(w, s.Witness(records))
}

func writeValue(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a witness value does not marshal: " + err.Error())
	}
	writeJSON(w, http.StatusOK, string(body))
}

// ruleset is what control calls change. Server.mu guards it.
type ruleset struct {
	keys     map[string]string // secret to name
	keyNames []string
	models   []string
	strict   bool
	defaults Settings
	base     Behavior // the built-in behaviour with defaults applied
	perModel map[string]Settings
	rules    []ruleState
	prices   map[string]Price
	limits   map[string]Limits
	limiters map[string]*limiter // by model that has limits
}

type ruleState struct {
	Rule
	until       time.Time // zero: no end
	seen, fired int64
}

func newRuleset(cfg Config) *ruleset {
	rs := &ruleset{}
	rs.apply(Control{Keys: &cfg.Keys, Models: &cfg.Models, StrictModels: &cfg.StrictModels, Defaults: &cfg.Defaults,
		ModelSettings: &cfg.ModelSettings, Rules: &cfg.Rules, Prices: &cfg.Prices, Limits: &cfg.Limits}, time.Now())
	return rs
}

// apply takes over a validated change.
func (rs *ruleset) apply(c Control, now time.Time) {
	if c.Keys != nil {
		rs.keys, rs.keyNames = map[string]string{}, nil
		for _, k := range *c.Keys {
			rs.keys[k.Secret] = k.Name
			rs.keyNames = append(rs.keyNames, k.Name)
		}
	}
	if c.Models != nil {
		rs.models = slices.Clone(*c.Models)
	}
	if c.StrictModels != nil {
		rs.strict = *c.StrictModels
	}
	if c.Defaults != nil {
		rs.defaults, rs.base = *c.Defaults, NewBehavior()
		if err := rs.base.Apply(rs.defaults.list()); err != nil {
			panic("BUG: validated settings do not apply: " + err.Error())
		}
	}
	if c.ModelSettings != nil {
		rs.perModel = *c.ModelSettings
	}
	if c.Rules != nil {
		rs.rules = nil
		c.AddRules = slices.Concat(*c.Rules, c.AddRules)
	}
	for _, rule := range c.AddRules {
		state := ruleState{Rule: rule}
		if rule.For > 0 {
			state.until = now.Add(time.Duration(rule.For))
		}
		rs.rules = append(rs.rules, state)
	}
	if c.Prices != nil {
		rs.prices = *c.Prices
	}
	if c.Limits != nil {
		rs.limits, rs.limiters = *c.Limits, map[string]*limiter{}
		for model, l := range rs.limits {
			rs.limiters[model] = newLimiter(l, now)
		}
	}
}

// describe is the current state as a control body, without the keys' secrets.
func (rs *ruleset) describe() Control {
	keys := make([]Key, 0, len(rs.keyNames))
	for _, name := range rs.keyNames {
		keys = append(keys, Key{Name: name})
	}
	rules := make([]Rule, 0, len(rs.rules))
	for _, state := range rs.rules {
		rules = append(rules, state.Rule)
	}
	models, strict, defaults, perModel := rs.models, rs.strict, rs.defaults, rs.perModel
	prices, limits := rs.prices, rs.limits
	return Control{Keys: &keys, Models: &models, StrictModels: &strict, Defaults: &defaults, ModelSettings: &perModel,
		Rules: &rules, Prices: &prices, Limits: &limits}
}

// fire returns the settings of the first rule that fires for a request and counts it.
func (rs *ruleset) fire(endpoint Endpoint, model, key string, now time.Time) Settings {
	for i := range rs.rules {
		rule := &rs.rules[i]
		if rule.Model != "" && rule.Model != model || rule.Key != "" && rule.Key != key ||
			rule.Endpoint != "" && rule.Endpoint != string(endpoint) {
			continue
		}
		if !rule.until.IsZero() && now.After(rule.until) || rule.Next > 0 && rule.fired == rule.Next {
			continue
		}
		rule.seen++
		if rule.Every > 1 && rule.seen%rule.Every != 0 {
			continue
		}
		rule.fired++
		return rule.Set
	}
	return nil
}

// price finds the price of a model, or nil.
func (rs *ruleset) price(model string) *Price {
	if p, ok := rs.prices[model]; ok {
		return &p
	}
	if p, ok := rs.prices["*"]; ok {
		return &p
	}
	return nil
}
