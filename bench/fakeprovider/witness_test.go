package fakeprovider

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

func TestWitnessCountsAndPrices(t *testing.T) {
	s, url := start(t, Config{
		Keys: []Key{{"main", "secret"}},
		Prices: map[string]Price{
			"fake-large": {Input: 2_000_000_000, Output: 10_000_000_000},
			"*":          {Input: 1},
		},
	})
	// 4 + 3 prompt tokens each: the text is 16 bytes.
	const prompt = "[[tokens=10]]abc"
	for range 3 {
		post(t, url+"/v1/chat/completions", chatBody(prompt, `,"max_tokens":50`))
	}
	post(t, url+"/v1/chat/completions", chatBody("[[status=429]]ab", `,"max_tokens":50`))
	post(t, url+"/v1/chat/completions", `{`)
	post(t, url+"/v1/embeddings", `{"model":"fake-embed","input":"x"}`)

	_, w := ended(t, s)
	large := w.Models["fake-large"]
	wantLarge := Counts{Received: 4, Completed: 3, Failed: 1, ByFault: map[string]int64{"429": 1}, PromptTokens: 21, OutputTokens: 30,
		Served: Usage{Input: 21, Output: 30}, CostNano: 3 * (7*2000 + 10*10_000)}
	if !reflect.DeepEqual(large, wantLarge) {
		t.Errorf("fake-large = %+v, want %+v", large, wantLarge)
	}
	wantTotals := wantLarge
	wantTotals.Received, wantTotals.Invalid, wantTotals.Completed = 6, 1, 4
	wantTotals.PromptTokens++
	wantTotals.Served.Input++
	if !reflect.DeepEqual(w.Totals, wantTotals) || !reflect.DeepEqual(w.Keys["main"], wantTotals) {
		t.Errorf("totals = %+v, key = %+v, want %+v", w.Totals, w.Keys["main"], wantTotals)
	}
	if w.Open != 0 || w.OpenPeak != 1 || len(w.Records) != 6 {
		t.Errorf("open %d peak %d records %d", w.Open, w.OpenPeak, len(w.Records))
	}
	var sum Second
	for _, second := range w.Timeline {
		sum.Received += second.Received
		sum.Admitted += second.Admitted
		sum.Refused += second.Refused
		sum.ReservedTokens += second.ReservedTokens
		sum.PromptTokens += second.PromptTokens
		sum.Ended += second.Ended
		sum.OutputTokens += second.OutputTokens
	}
	want := Second{Received: 6, Admitted: 4, Refused: 1, PromptTokens: 22, ReservedTokens: 3*(7+50) + 1, Ended: 6, OutputTokens: 30}
	if sum != want {
		t.Errorf("timeline sums to %+v, want %+v", sum, want)
	}
	last := w.Records[5]
	if last.MaxTokens != 50 || last.PromptTokens != 7 || last.CostNano != 114_000 || last.FirstTokenNS < last.StartedNS || last.EndedNS < last.FirstTokenNS {
		t.Errorf("first record %+v", last)
	}
}

func TestUnpricedIsCounted(t *testing.T) {
	s, url := start(t, Config{})
	post(t, url+"/v1/chat/completions", chatBody("hi", ""))
	post(t, url+"/v1/chat/completions", chatBody("[[fault=500]]", ""))
	if _, w := ended(t, s); w.Totals.Unpriced != 1 || w.Totals.CostNano != 0 {
		t.Errorf("totals %+v", w.Totals)
	}
}

func TestRules(t *testing.T) {
	set := func(setting string) Settings { return Settings{"status": setting} }
	tests := []struct {
		name  string
		rules []Rule
		want  string // statuses of six requests, by first digit
	}{
		{"none", nil, "222222"},
		{"always", []Rule{{Set: set("500")}}, "555555"},
		{"next two", []Rule{{Next: 2, Set: set("429")}}, "442222"},
		{"every third", []Rule{{Every: 3, Set: set("500")}}, "225225"},
		{"every second, once", []Rule{{Every: 2, Next: 1, Set: set("500")}}, "252222"},
		{"one after the other", []Rule{{Next: 1, Set: set("500")}, {Next: 2, Set: set("429")}}, "544222"},
		{"another model", []Rule{{Model: "x", Set: set("500")}}, "222222"},
		{"this model and key and endpoint", []Rule{{Model: "fake-large", Key: "main", Endpoint: "chat", Next: 1, Set: set("500")}}, "522222"},
		{"another endpoint", []Rule{{Endpoint: "embeddings", Set: set("500")}}, "222222"},
		{"already over", []Rule{{For: 1, Set: set("500")}}, "222222"},
		{"not over", []Rule{{For: Duration(durationMax), Set: set("500")}}, "555555"},
	}
	s, url := start(t, Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := s.Apply(Control{Rules: &tt.rules}); err != nil {
				t.Fatal(err)
			}
			got := ""
			for range tt.want {
				got += string(rune('0' + post(t, url+"/v1/chat/completions", chatBody("hi", "")).status/100))
			}
			if got != tt.want {
				t.Errorf("statuses %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLayers(t *testing.T) {
	_, url := start(t, Config{
		Defaults:      Settings{"tokens": "1", "cache-read": "1"},
		ModelSettings: map[string]Settings{"fake-large": {"tokens": "2", "reasoning": "1"}},
		Rules:         []Rule{{Every: 2, Set: Settings{"tokens": "3"}}},
	})
	for i, want := range []struct {
		prompt string
		text   int64
	}{{"hi", 2}, {"hi", 3}, {"[[tokens=4]]", 4}, {"[[tokens=4]]", 4}} {
		got := post(t, url+"/v1/chat/completions", chatBody(want.prompt, "")).json()
		if text := got.Get("choices.0.message.content").String(); text != Text(want.text, false) {
			t.Errorf("request %d: text %q, want %d tokens", i, text, want.text)
		}
		if got.Get("usage.completion_tokens_details.reasoning_tokens").Int() != 1 || got.Get("usage.prompt_tokens_details.cached_tokens").Int() != 1 {
			t.Errorf("request %d: usage %s", i, got.Get("usage").Raw)
		}
	}
	// A request that is refused for its directive uses up no rule: the next one is the fifth, not the sixth.
	post(t, url+"/v1/chat/completions", chatBody("[[nonsense=4]]", ""))
	if got := post(t, url+"/v1/chat/completions", chatBody("hi", "")).json().Get("choices.0.message.content").String(); got != Text(2, false) {
		t.Errorf("text %q, want two tokens", got)
	}
}

func TestControlOverHTTP(t *testing.T) {
	s, url := start(t, Config{})
	r := post(t, url+"/control", `{"defaults":{"tokens":2,"fault":"no-usage"},"model_settings":{"fake-small":{"tokens":"7"}},
		"keys":[{"name":"a","secret":"secret"},{"name":"b","secret":"zzz"}],
		"add_rules":[{"model":"fake-large","next":1,"for":"30s","set":{"status":503}}],"prices":{"*":{"input":5}}}`)
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if strings.Contains(r.body, "zzz") {
		t.Errorf("a secret is shown: %s", r.body)
	}
	for path, want := range map[string]string{"defaults.tokens": "2", "keys.1.name": "b", "rules.0.for": "30s",
		"rules.0.set.status": "503", "prices.*.input": "", "model_settings.fake-small.tokens": "7"} {
		if got := r.json().Get(path).String(); got != want && want != "" {
			t.Errorf("%s = %q, want %q", path, got, want)
		}
	}
	if r := post(t, url+"/v1/chat/completions", chatBody("hi", "")); r.status != 503 {
		t.Errorf("status %d, want 503", r.status)
	}
	if r := post(t, url+"/v1/chat/completions", chatBody("hi", "")).json(); r.Get("usage").Exists() || r.Get("choices.0.message.content").String() != Text(2, false) {
		t.Errorf("answer %s", r.Raw)
	}
	for _, bad := range []string{`{`, `{"unknown":1}`, `{"defaults":{"tokens":"many"}}`, `{"defaults":{"tokens":{}}}`,
		`{"rules":[{"set":{"x":"1"}}]}`, `{"rules":[{"every":-1,"set":{}}]}`, `{"rules":[{"endpoint":"x","set":{}}]}`,
		`{"keys":[{"name":"a"}]}`, `{"keys":[{"name":"a","secret":"1"},{"name":"b","secret":"1"}]}`,
		`{"prices":{"m":{"input":-1}}}`, `{"rules":[{"for":"soon","set":{}}]}`} {
		if r := post(t, url+"/control", bad); r.status != 400 {
			t.Errorf("%s: status %d, want 400", bad, r.status)
		}
	}
	ended(t, s)
	get := func(path string) (int, gjson.Result) {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, gjson.ParseBytes(body)
	}
	var shown Snapshot
	if _, w := get("/witness?records=1"); json.Unmarshal([]byte(w.Raw), &shown) != nil || len(shown.Records) != 1 || shown.Totals.Received != 2 || shown.Keys["a"].Failed != 1 {
		t.Errorf("witness %s", w.Raw)
	}
	if status, _ := get("/witness?records=x"); status != 400 {
		t.Errorf("status %d, want 400", status)
	}
	if r := post(t, url+"/witness/reset", ""); r.status != 204 {
		t.Errorf("reset: %d", r.status)
	}
	if _, w := get("/witness"); w.Get("totals.received").Int() != 0 || w.Get("records.#").Int() != 0 || w.Get("models.fake-large").Exists() {
		t.Errorf("after the reset: %s", w.Raw)
	}
	if status, _ := get("/v1/nothing"); status != 404 {
		t.Errorf("unknown path: %d", status)
	}
}

func TestResetWhileOpen(t *testing.T) {
	s, url := start(t, Config{})
	var client sync.WaitGroup
	client.Go(func() { _, _ = try(t.Context(), url+"/v1/chat/completions", chatBody("[[tokens=2 gap=1h]]", streamOn)) })
	waitFor(t, s, func(w Snapshot) bool { return w.OpenStreams == 1 && w.Records[0].TokensSent == 1 })
	s.Reset()
	if w := s.Witness(10); w.Open != 1 || w.OpenStreams != 1 || w.OpenPeak != 1 || w.Totals.Received != 0 || len(w.Records) != 0 {
		t.Errorf("after the reset: %+v", w)
	}
	s.Close()
	client.Wait()
	if w := s.Witness(10); w.Open != 0 || w.OpenStreams != 0 || w.Totals.Failed != 0 || w.Totals.OutputTokens != 0 {
		t.Errorf("after the end: %+v", w)
	}
	if r := post(t, url+"/v1/chat/completions", chatBody("hi", "")); r.status != 503 {
		t.Errorf("closed server: %d", r.status)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	s, url := start(t, Config{RecordsMax: 3, Detail: true})
	for _, prompt := range []string{"one", "two", "three", "four"} {
		post(t, url+"/v1/chat/completions", chatBody(prompt, ""))
	}
	_, w := ended(t, s)
	if len(w.Records) != 3 || w.Totals.Received != 4 {
		t.Fatalf("%d records of %d", len(w.Records), w.Totals.Received)
	}
	ids := map[string]bool{}
	for i, prompt := range []string{"four", "three", "two"} {
		r := w.Records[i]
		ids[r.ID] = true
		if r.Body != chatBody(prompt, "") || !strings.Contains(strings.Join(r.HeaderNames, " "), "authorization content-length content-type") {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if len(ids) != 3 {
		t.Errorf("ids %v", ids)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	in := map[string]*Counts{}
	for i := range groupsMax + 10 {
		group(in, strings.Repeat("x", i)).Received++
	}
	if len(in) != groupsMax+1 || in["other"].Received != 10 {
		t.Errorf("%d groups, %d under other", len(in), in["other"].Received)
	}
}

// TestEveryChangeWakesAWaiter makes each change in turn while somebody waits for just that one.
func TestEveryChangeWakesAWaiter(t *testing.T) {
	now := time.Now()
	w := newWitness(4)
	var e *entry
	req := &request{model: "m", stream: true, maxTokens: 5, choices: 1}
	changes := []struct {
		name string
		make func()
		seen func(s Snapshot) bool
	}{
		{"begin", func() { e = w.begin(Record{}, now) }, func(s Snapshot) bool { return s.Open == 1 }},
		{"identify", func() { w.identify(e, "k") }, func(s Snapshot) bool { return s.Records[0].Key == "k" }},
		{"describe", func() { w.describe(e, req) }, func(s Snapshot) bool { return s.Records[0].Model == "m" }},
		{"refuse", func() { w.admit(e, req, "500", true, now) }, func(s Snapshot) bool { return s.Timeline[0].Refused == 1 }},
		{"admit", func() { w.admit(e, req, "", false, now) }, func(s Snapshot) bool { return s.OpenStreams == 1 }},
		{"head", func() { w.headed(e, 200) }, func(s Snapshot) bool { return s.Records[0].Status == 200 }},
		{"token", func() { w.progress(e, 1) }, func(s Snapshot) bool { return s.Records[0].TokensSent == 1 }},
		{"finish", func() { w.finish(e, result{outcome: OutcomeCompleted}, nil, now) }, func(s Snapshot) bool { return s.Open == 0 }},
		{"reset", func() { w.reset(now) }, func(s Snapshot) bool { return len(s.Records) == 0 }},
	}
	for _, change := range changes {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		looked := make(chan struct{})
		var first sync.Once
		woken := make(chan error)
		go func() {
			_, err := w.wait(ctx, 1, func(s Snapshot) bool {
				early := false
				first.Do(func() { early = true; close(looked) })
				if early {
					return false // the first look is before the change
				}
				return change.seen(s)
			})
			woken <- err
		}()
		<-looked
		change.make()
		if err := <-woken; err != nil {
			t.Errorf("%s: %v", change.name, err)
		}
		cancel()
	}
}
