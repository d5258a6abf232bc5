package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestUsageBases: providers count from different bases; one basis is settled, and the caller is told the same.
func TestUsageBases(t *testing.T) {
	for name, c := range map[string]struct {
		usage string
		want  exchange.Tokens
	}{
		"OpenAI": {
			`{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":6,"audio_tokens":1},"completion_tokens_details":{"reasoning_tokens":3,"rejected_prediction_tokens":2}}`,
			exchange.Tokens{Input: 9, CacheRead: 4, CacheWrite5m: 6, InputAudio: 1, Output: 9, Reasoning: 3},
		},
		"speech": {
			`{"prompt_tokens":100,"completion_tokens":80,"total_tokens":180,"prompt_tokens_details":{"audio_tokens":60,"image_tokens":10,"cached_tokens":0},"completion_tokens_details":{"audio_tokens":70,"reasoning_tokens":20}}`,
			exchange.Tokens{Input: 30, InputAudio: 60, InputImage: 10, Output: 10, OutputAudio: 70, Reasoning: 10},
		},
		"OpenRouter, with searches": {
			`{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"server_tool_use":{"web_search_requests":3}}`,
			exchange.Tokens{Input: 5, Output: 2, WebSearches: 3},
		},
		"xAI, reasoning on top": {
			`{"prompt_tokens":119,"completion_tokens":9,"total_tokens":226,"prompt_tokens_details":{"cached_tokens":112},"completion_tokens_details":{"reasoning_tokens":98}}`,
			exchange.Tokens{Input: 7, CacheRead: 112, Output: 107, Reasoning: 98},
		},
		"xAI, reasoning on top and not in the total": {
			`{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"completion_tokens_details":{"reasoning_tokens":98}}`,
			exchange.Tokens{Input: 30, Output: 107, Reasoning: 98},
		},
		"xAI, cached on top": {
			`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":100}}`,
			exchange.Tokens{Input: 10, CacheRead: 100, Output: 5},
		},
		"xAI, both on top": {
			`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":100},"completion_tokens_details":{"reasoning_tokens":3}}`,
			exchange.Tokens{Input: 10, CacheRead: 100, Output: 8, Reasoning: 3},
		},
		"xAI, both on top and in the total": {
			`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":118,"prompt_tokens_details":{"cached_tokens":100},"completion_tokens_details":{"reasoning_tokens":3}}`,
			exchange.Tokens{Input: 10, CacheRead: 100, Output: 8, Reasoning: 3},
		},
		"Gemini, hidden thinking":      {`{"prompt_tokens":50,"completion_tokens":20,"total_tokens":85}`, exchange.Tokens{Input: 50, Output: 35}},
		"DeepSeek":                     {`{"prompt_tokens":50,"completion_tokens":2,"total_tokens":52,"prompt_cache_hit_tokens":30,"prompt_cache_miss_tokens":20}`, exchange.Tokens{Input: 20, CacheRead: 30, Output: 2}},
		"Mistral":                      {`{"prompt_tokens":50,"completion_tokens":2,"total_tokens":52,"num_cached_tokens":30}`, exchange.Tokens{Input: 20, CacheRead: 30, Output: 2}},
		"Mistral, the other spelling":  {`{"prompt_tokens":50,"completion_tokens":2,"total_tokens":52,"prompt_token_details":{"cached_tokens":30}}`, exchange.Tokens{Input: 20, CacheRead: 30, Output: 2}},
		"SGLang":                       {`{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"reasoning_tokens":4,"prompt_tokens_details":null}`, exchange.Tokens{Input: 5, Output: 9, Reasoning: 4}},
		"texts and fractions":          {`{"prompt_tokens":"5","completion_tokens":2.0,"total_tokens":null}`, exchange.Tokens{Input: 5, Output: 2}},
		"an explicit zero":             {`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, exchange.Tokens{}},
		"out of the total":             {`{"prompt_tokens":5,"total_tokens":9}`, exchange.Tokens{Input: 5, Output: 4}},
		"more written than there was":  {`{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":2,"cache_write_tokens":9}}`, exchange.Tokens{CacheRead: 2, CacheWrite5m: 3, Output: 1}},
		"costs and times beside":       {`{"queue_time":0.1,"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"cost":0.00123,"cost_in_usd_ticks":99}`, exchange.Tokens{Input: 5, Output: 2}},
		"details that are no object":   {`{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":[],"num_cached_tokens":1}`, exchange.Tokens{Input: 4, CacheRead: 1, Output: 2}},
		"details that are an old null": {`{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":null,"num_cached_tokens":1}`, exchange.Tokens{Input: 4, CacheRead: 1, Output: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			want := exchange.Usage{Tokens: c.want, Source: exchange.FromProvider}
			got, ok := stated(gjson.Parse(c.usage), ask(false))
			if !ok || got != want {
				t.Fatalf("got %+v, %v, want %+v", got, ok, want)
			}
			told := mendUsage([]byte(c.usage), got, exchange.Chat)
			var u adaptertest.Told
			if err := json.Unmarshal(told, &u); err != nil || u.Prompt != c.want.Prompt() || u.Completion != c.want.Completion() ||
				u.Total != c.want.Total() || u.In.Cached != c.want.CacheRead || u.Out.Reasoning != c.want.Reasoning {
				t.Errorf("told %s (%v)", told, err)
			}
			again, ok := stated(gjson.ParseBytes(told), ask(false))
			if !ok || again != got {
				t.Errorf("what was told reads as %+v", again)
			}
			gjson.Parse(c.usage).ForEach(func(k, v gjson.Result) bool {
				if n := k.Str; !strings.HasPrefix(n, "prompt_tokens") && !strings.HasPrefix(n, "completion_tokens") && n != "total_tokens" &&
					gjson.GetBytes(told, n).Raw != v.Raw {
					t.Errorf("%s is lost: %s", n, told)
				}
				return true
			})
		})
	}
}

// TestUsageNotStated: what is no statement is estimated, the caller is told the estimate, and that it is one.
func TestUsageNotStated(t *testing.T) {
	for name, usage := range map[string]string{
		"none": ``, "null": `"usage":null,`, "empty": `"usage":{},`, "a text": `"usage":"5",`,
		"half": `"usage":{"prompt_tokens":5},`, "negative": `"usage":{"prompt_tokens":-5,"completion_tokens":1},`,
		"absurd": `"usage":{"prompt_tokens":1e300,"completion_tokens":1},`, "unreadable": `"usage":{"prompt_tokens":"many","completion_tokens":[]},`,
	} {
		t.Run(name, func(t *testing.T) {
			got := translate(t, true, delta(`"content":"abc"`), finished, `{`+usage+`"id":"c1","choices":[]}`, done)
			const want = `"usage":{"prompt_tokens":40,"completion_tokens":3,"total_tokens":43},"x_gateway":{"estimated":true}}` + "\n\ndata: [DONE]\n\n"
			if got.failure != nil || !strings.HasSuffix(string(got.out), want) {
				t.Errorf("%+v: %s", got.failure, got.out)
			}
			if u := got.Usage(); u.Source != exchange.FromEstimate || u.Input != 40 || u.Output != 3 {
				t.Errorf("settled %+v", u)
			}
			out, u, f := New().Response(ask(false), []byte(`{`+usage+`"id":"c1","object":"chat.completion","choices":[{"message":{"content":"abc"},"finish_reason":"stop"}]}`), note)
			if f != nil || u.Output != 3 || u.Source != exchange.FromEstimate {
				t.Fatalf("%+v, %+v", u, f)
			}
			if s := adaptertest.ReadAnswer(t, out); s.Usage.Total != 43 {
				t.Errorf("%s", out)
			}
		})
	}
}

// TestSearchesAlways: a model with web_search_options searches once for each answer, which nobody but OpenRouter states,
// and which is settled. What delivered nothing is not charged for it.
func TestSearchesAlways(t *testing.T) {
	const told = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7%s},`
	for name, c := range map[string]struct {
		usage string
		want  int64
	}{
		"usage": {strings.Replace(told, "%s", "", 1), 1}, "none": {"", 1},
		"counted":       {strings.Replace(told, "%s", `,"server_tool_use":{"web_search_requests":3}`, 1), 3},
		"counted, none": {strings.Replace(told, "%s", `,"server_tool_use":{"web_search_requests":0}`, 1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(false)
			r.SearchesAlways = true
			keep := func(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
				return append(dst, "{}"...), u
			}
			_, u, f := New().Response(r, []byte(`{`+c.usage+`"choices":[{"message":{"content":"abc"},"finish_reason":"stop"}]}`), keep)
			if f != nil || u.WebSearches != c.want {
				t.Errorf("%d searches of an answer, want %d (%v)", u.WebSearches, c.want, f)
			}
			s := New().Stream(r, keep)
			if got := s.Usage().WebSearches; got != 0 {
				t.Errorf("%d searches before anything came", got)
			}
			_, f = adaptertest.Translate(t, s, delta(`"content":"abc"`), finished, `{`+c.usage+`"id":"c1","choices":[]}`, done)
			if got := s.Usage().WebSearches; f != nil || got != c.want {
				t.Errorf("%d searches of a stream, want %d (%v)", got, c.want, f)
			}
		})
	}
	if u := usageOf(gjson.Parse(`{}`), ask(false)); u.WebSearches != 0 {
		t.Errorf("%d searches that nobody asked for", u.WebSearches)
	}
}
