package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// scene is one fixture, cut one way, for callers of one dialect.
type scene struct {
	f *fixture
	d *dialect
	c cut
}

func (s scene) name() string { return s.f.id() + "--" + s.d.name + "-" + string(s.c) }

// good is an answer that any adapter of the chat dialect takes: the second deployment of a chain gives it.
const good = `{"id":"good","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",` +
	`"content":"second"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

// TestFixtures plays every file, cut in every way, to callers of every dialect. A dialect or a provider that the sidecar
// does not have yet is named, and left out.
func TestFixtures(t *testing.T) {
	all := load(t)
	p := listen(t)
	var scenes []scene
	var targets []target
	chains := map[string][2]string{}
	second := target{"good", p.base("good"), deployment{"compatible", "fx-model", "", plainSecret}}
	p.will("good", play{raw: answer("200 OK", "application/json", good)})
	targets = append(targets, second)
	for _, d := range dialects() {
		for _, f := range all {
			if f.API == "models" { // see TestModels
				continue
			}
			if d.unfit(f) != "" {
				continue
			}
			for _, c := range chosenCuts() {
				s := scene{f, d, c}
				p.will(s.name(), play{raw: f.raw, cut: c, closes: f.closes})
				scenes = append(scenes, s)
				targets = append(targets, target{s.name(), p.base(s.name()) + under(f), deploymentOf(f, d)})
			}
		}
	}
	for _, s := range scenes {
		if s.d.name == "chat" && s.c == whole && s.f.API != "embeddings" && s.f.Want.Error != nil {
			first := target{"first-" + s.f.id(), p.base("first-"+s.f.id()) + under(s.f), deploymentOf(s.f, s.d)}
			p.will(first.name, play{raw: s.f.raw, cut: split, closes: s.f.closes})
			targets = append(targets, first)
			chains["chain-"+s.f.id()] = [2]string{first.name, second.name}
		}
	}
	st := launch(t, p, targets, chains)
	missing := st.missing

	t.Run("replay", func(t *testing.T) {
		for _, s := range scenes {
			t.Run(s.d.name+"/"+s.f.File+"/"+string(s.c), func(t *testing.T) {
				t.Parallel()
				skipMissing(t, missing, s.d.name, deploymentOf(s.f, s.d).provider)
				st.replay(t, p, s)
			})
		}
	})
	t.Run("chain", func(t *testing.T) {
		for _, f := range all {
			if _, there := chains["chain-"+f.id()]; there {
				t.Run(f.File, func(t *testing.T) {
					skipMissing(t, missing, deploymentOf(f, dialects()[0]).provider)
					st.chain(t, p, f)
				})
			}
		}
	})
	t.Run("books", func(t *testing.T) {
		rows := st.books(t, func(rows map[string]row) bool {
			for _, s := range scenes {
				if _, there := rows[s.name()]; !there && !s.f.refused() && !missing[s.d.name] && !missing[deploymentOf(s.f, s.d).provider] {
					return false
				}
			}
			return true
		})
		for _, s := range scenes {
			t.Run(s.d.name+"/"+s.f.File+"/"+string(s.c), func(t *testing.T) {
				skipMissing(t, missing, s.d.name, deploymentOf(s.f, s.d).provider)
				judgeBooks(t, s.f, rows[s.name()])
			})
		}
	})
}

// chosenCuts are all of them, or those that SLUICE_WIRE_CUTS names.
func chosenCuts() []cut {
	only := os.Getenv("SLUICE_WIRE_CUTS")
	return slices.DeleteFunc(cuts(), func(c cut) bool { return only != "" && !strings.Contains(only, string(c)) })
}

func skipMissing(t *testing.T, missing map[string]bool, names ...string) {
	t.Helper()
	for _, name := range names {
		if missing[name] {
			t.Skipf("the sidecar has no %s yet", name)
		}
	}
}

// replay asks for one scene and judges what comes.
func (s *stack) replay(t *testing.T, p *provider, sc scene) {
	asked := sc.c != split
	path, read := sc.d.path, sc.d.read
	if sc.f.API == "embeddings" {
		path, read = "/v1/embeddings", readEmbeddings
	}
	got := s.do(t, path, sc.d.body(sc.f, sc.name(), asked))
	requests := p.requests(sc.name())
	if len(requests) == 0 {
		t.Fatalf("the provider was not asked: %d %s", got.status, got.body)
	}
	judgeRequest(t, sc.f, deploymentOf(sc.f, sc.d), requests)
	got.own = sc.f.API == sc.d.name
	read(t, got)
	judge(t, sc.f, sc.d, got, asked)
	if t.Failed() {
		t.Logf("the caller got: %.2000s", got.body)
	}
}

// judgeRequest: the provider is asked once, in a body of its own words, without the caller's key.
func judgeRequest(t *testing.T, f *fixture, d deployment, requests []*asked) {
	t.Helper()
	if len(requests) != 1 {
		// A refused token may be renewed, once.
		if f.Want.Status != http.StatusUnauthorized || len(requests) > 2 {
			t.Errorf("the provider was asked %d times", len(requests))
		}
	}
	r := requests[0]
	if r.method != http.MethodPost || !json.Valid(r.body) || bytes.Contains(r.body, []byte(f.id()+"--")) {
		t.Errorf("%s %s %s", r.method, r.path, r.body)
	}
	path, auth := endpoint(f, d)
	if got := r.header.Get("Authorization"); r.path != path || (got != auth && r.header.Get(auth) != plainSecret) {
		t.Errorf("asked at %s with %v, want %s with %s", r.path, r.header, path, auth)
	}
	if e := r.header.Get("Accept-Encoding"); e != "" && e != "identity" {
		t.Errorf("accept-encoding %q", e)
	}
	for name, values := range r.header {
		if strings.Contains(strings.Join(values, " "), appKey) {
			t.Errorf("the provider sees the caller's key in %s", name)
		}
	}
}

// chain: a failure before anything was forwarded moves on to the second deployment if that may help, and one after that
// stays where it is.
func (s *stack) chain(t *testing.T, p *provider, f *fixture) {
	got := s.do(t, "/v1/chat/completions", chatBody(f, "chain-"+f.id(), true))
	readChat(t, got)
	moved := got.status == 200 && got.err == nil && got.choice(0).content == "second"
	w := f.Want
	switch {
	case f.broken():
		if moved || got.choice(0).content != w.Partial {
			t.Errorf("content %q", got.choice(0).content)
		}
	case w.Retryable, w.CallerStatus == http.StatusBadGateway, w.Status == 429: // it, or our account there, is at fault
		if !moved {
			t.Errorf("no second deployment was tried: %d %s", got.status, got.body)
		}
	case f.File == "anthropic/error-400-temperature.http": // the request is a good one: what one model does not take, the next does
		if !moved {
			t.Errorf("no second deployment was tried: %d %s", got.status, got.body)
		}
	case w.Status == 400 || w.Status == 413 || w.Status == 422:
		if moved || got.header.Get("X-Gw-Attempts") == "2" {
			t.Errorf("a second deployment was tried: %d %s", got.status, got.body)
		}
	}
}

// row is what quotad's books hold of an alias.
type row struct {
	Requests, Attempts, Errors, Estimated int64
	Tokens                                struct {
		Input     int64
		Read      int64 `json:"cache_read"`
		Write5m   int64 `json:"cache_write_5m"`
		Write1h   int64 `json:"cache_write_1h"`
		Output    int64
		Reasoning int64
		Drawn     int64 `json:"output_image"`
	}
	Cost int64 `json:"cost_nano"`
}

// books asks for the usage of each alias until it is complete.
func (s *stack) books(t *testing.T, complete func(map[string]row) bool) (rows map[string]row) {
	t.Helper()
	s.eventually("the books hold every answer", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/usage?group_by=alias", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+appKey)
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %s %v", resp.StatusCode, b, err)
		}
		var out struct {
			Data []struct {
				Group map[string]string
				row
			}
		}
		decode(t, string(b), &out)
		rows = map[string]row{}
		for _, r := range out.Data {
			rows[r.Group["alias"]] = r.row
		}
		return complete(rows)
	})
	return rows
}

// judgeBooks: one answered request, billed with the provider's numbers or, marked, an estimate; nothing for a refusal.
func judgeBooks(t *testing.T, f *fixture, r row) {
	t.Helper()
	if f.refused() {
		if r.Cost != 0 || r.Tokens.Output != 0 {
			t.Errorf("a refused request is billed: %+v", r)
		}
		return
	}
	w := f.Want.Usage
	// What is known of a stream that broke is not all that it used.
	if r.Requests != 1 || ((r.Estimated != 0) != (w == nil) && !f.broken()) {
		t.Errorf("%+v", r)
	}
	if w == nil {
		if r.Cost <= 0 {
			t.Errorf("an estimate costs nothing: %+v", r)
		}
		return
	}
	x := r.Tokens
	if x.Input+x.Read+x.Write5m+x.Write1h != w.Prompt || x.Read != w.Cached || x.Write5m+x.Write1h != w.Write ||
		x.Output+x.Drawn != w.Completion || x.Drawn != w.ImageOut || x.Reasoning != w.Reasoning {
		t.Errorf("tokens %+v, want %+v", x, *w)
	}
	if want := nano(t, w); r.Cost != want {
		t.Errorf("cost %d, want %d", r.Cost, want)
	}
}

func compact(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	return b.String()
}
