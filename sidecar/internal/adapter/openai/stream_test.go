package openai

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// delta is a chunk of the first choice.
func delta(members string) string {
	return `{"id":"c1","created":7,"choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}]}`
}

const (
	finished = `{"id":"c1","created":7,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	counted  = `{"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
	done     = `[DONE]`
)

// TestStreamBytes: of a healthy chunk nothing changes but the model, and the usage as the caller asked for it.
func TestStreamBytes(t *testing.T) {
	const (
		head  = `{"id":"c1","object":"chat.completion.chunk","created":7,"model":"real","system_fingerprint":"fp","choices":`
		first = head + `[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]`
		text  = head + `[{"index":0,"delta":{ "content" : "a\u00e9"},"new":[1, 2.50],"finish_reason":null}]`
		tool  = head + `[{"delta":{"tool_calls":[{"function":{"arguments":"","name":"f"},"new":1,"id":"t","type":"function","index":0}]},"index":0,"finish_reason":null}]`
		args  = head + `[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]},"finish_reason":null}]`
		last  = head + `[{"index":0,"delta":{},"finish_reason":"tool_calls"}]`
		usage = `{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29,"prompt_tokens_details":{"audio_tokens":3,"cached_tokens":0},` +
			`"completion_tokens_details":{"accepted_prediction_tokens":1,"reasoning_tokens":0},"cost":0.00123,"cost_details":{"x":[1,2]}}`
		own = `,"x_gateway":{"estimated":false}}`
	)
	renamed := func(list ...string) string {
		var b strings.Builder
		for _, c := range list {
			b.WriteString("data: " + strings.Replace(c, `"model":"real"`, `"model":"smart"`, 1) + "\n\n")
		}
		return b.String() + "data: [DONE]\n\n"
	}
	chunks := []string{first, text, text, tool, args, args, last}
	with := func(end string) (list []string) {
		for _, c := range chunks {
			list = append(list, c+end)
		}
		return list
	}
	const null, pad = `,"usage":null}`, `,"usage":null,"obfuscation":"x9"}`
	closing := head + `[],"timings":{"n":1},"usage":` + usage
	onFinish := append(with(null)[:len(chunks)-1], last+`,"usage":`+usage+"}")
	for name, c := range map[string]struct {
		list  []string
		asked bool
		want  string
	}{
		"asked":               {append(with(null), closing+"}"), true, renamed(append(with(null), closing+own)...)},
		"asked, padded":       {append(with(pad), closing+"}"), true, renamed(append(with(pad), closing+own)...)},
		"asked, no null":      {append(with("}"), closing+"}"), true, renamed(append(with(null), closing+own)...)},
		"not asked":           {append(with(null), closing+"}"), false, renamed(with("}")...)},
		"on the finish chunk": {onFinish, true, renamed(append(with(null), `{"id":"c1","object":"chat.completion.chunk","created":7,"model":"real","choices":[],"usage":`+usage+own)...)},
		"the same, not asked": {onFinish, false, renamed(with("}")...)},
	} {
		t.Run(name, func(t *testing.T) {
			got := translate(t, c.asked, append(c.list, done)...)
			if u := got.Usage(); got.failure != nil || string(got.out) != c.want || u.Prompt() != 20 || u.InputAudio != 3 || u.Output != 9 {
				t.Errorf("%+v, usage %+v\n%s\nwant\n%s", got.failure, u, got.out, c.want)
			}
		})
	}
}

// TestStreamStatesNothing: a server without id and time gets the request's own, the same in every chunk.
func TestStreamStatesNothing(t *testing.T) {
	for name, id := range map[string]string{"none": `{`, "empty": `{"id":"","created":0,`} {
		got := translate(t, true, id+`"choices":[{"delta":{"content":"x"}}]}`, finished, done)
		got.seen(t)
		for _, member := range []string{`"id":"req_test"`, `"object":"chat.completion.chunk"`, `"created":1700000000`, `"model":"smart"`} {
			if n := bytes.Count(got.out, []byte(member)); n != 3 {
				t.Errorf("%s: %s stands %d times in %s", name, member, n, got.out)
			}
		}
	}
}

func TestStreamOddities(t *testing.T) {
	call := func(members string) string { return delta(`"tool_calls":[{` + members + `}]`) }
	const begin = `"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}`
	for name, c := range map[string]struct {
		list []string
		want adaptertest.Choice
	}{
		"null delta":          {[]string{strings.Replace(delta(""), "{}", "null", 1), delta(`"content":"x"`), finished}, adaptertest.Choice{Content: "x", Finish: "stop"}},
		"a delta over lines":  {[]string{delta("\"content\":\"x\",\n\"extra\":{\n\"a\":[1,\n2]}"), finished}, adaptertest.Choice{Content: "x", Finish: "stop"}},
		"odd member names":    {[]string{delta(`"a\"b":1,"content":"x"`), finished}, adaptertest.Choice{Content: "x", Finish: "stop"}},
		"odd finish":          {[]string{delta(`"content":"x"`), strings.Replace(finished, "stop", `a\"b`, 1)}, adaptertest.Choice{Content: "x", Finish: "stop"}},
		"content parts":       {[]string{delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"x"}]`), finished}, adaptertest.Choice{Content: "x", Reasoning: "hm", Finish: "stop"}},
		"reasoning":           {[]string{delta(`"reasoning":"hm"`), delta(`"content":"x"`), finished}, adaptertest.Choice{Content: "x", Reasoning: "hm", Finish: "stop"}},
		"a finish again":      {[]string{delta(`"content":"x"`), finished, finished, strings.Replace(delta(`"content":"y"`), "null", `"stop"`, 1)}, adaptertest.Choice{Content: "xy", Finish: "stop"}},
		"reasoning, null too": {[]string{delta(`"reasoning":"h","reasoning_content":null`), delta(`"reasoning_content":"","reasoning":"m"`), delta(`"content":"x"`), finished}, adaptertest.Choice{Content: "x", Reasoning: "hm", Finish: "stop"}},
		"reasoning details":   {[]string{delta(`"reasoning":null,"reasoning_details":[{"type":"reasoning.text","text":"hm"}]`), delta(`"content":"x"`), finished}, adaptertest.Choice{Content: "x", Reasoning: "hm", Finish: "stop"}},
		"reasoning twice":     {[]string{delta(`"reasoning_details":[{"type":"reasoning.text","text":"hm"}],"reasoning":"hm"`), delta(`"content":"x"`), finished}, adaptertest.Choice{Content: "x", Reasoning: "hm", Finish: "stop"}},
		"foreign finish":      {[]string{delta(`"content":"x"`), strings.Replace(finished, "stop", "MAX_TOKENS", 1)}, adaptertest.Choice{Content: "x", Finish: "length"}},
		"arguments in pieces": {
			[]string{call(begin), call(`"index":0,"function":{"arguments":"{\"a\""}`), call(`"index":0,"function":{"arguments":":1}"}`), finished},
			adaptertest.Choice{Finish: "tool_calls", Calls: []adaptertest.Call{{"t1", "f", `{"a":1}`}}},
		},
		"id and name again": {
			[]string{call(begin), call(`"index":0,"id":"t1","function":{"name":"f","arguments":"{}"}`), finished},
			adaptertest.Choice{Finish: "tool_calls", Calls: []adaptertest.Call{{"t1", "f", `{}`}}},
		},
		"two calls at one index": {
			[]string{call(begin), call(strings.Replace(begin, "t1", "t2", 1)), finished},
			adaptertest.Choice{Finish: "tool_calls", Calls: []adaptertest.Call{{"t1", "f", ""}, {"t2", "f", ""}}},
		},
		"indexes with gaps": {
			[]string{call(strings.Replace(begin, `"index":0`, `"index":3`, 1)), call(`"index":7,"id":"t2","function":{"name":"g","arguments":"{}"}`), finished},
			adaptertest.Choice{Finish: "tool_calls", Calls: []adaptertest.Call{{"t1", "f", ""}, {"t2", "g", "{}"}}},
		},
		"no index": {
			[]string{call(`"id":"t1","function":{"name":"f","arguments":"{"}`), call(`"function":{"arguments":"}"}`), finished},
			adaptertest.Choice{Finish: "tool_calls", Calls: []adaptertest.Call{{"t1", "f", "{}"}}},
		},
		"no id, arguments as an object": {
			[]string{call(`"index":0,"id":null,"function":{"name":"f","arguments":{ "a": "é" }}`), finished},
			adaptertest.Choice{Finish: "tool_calls", Calls: []adaptertest.Call{{adapter.CallID(`"c1"`, 0, 0), "f", `{"a":"é"}`}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			res := translate(t, true, append(c.list, done)...)
			if bytes.Contains(res.out, []byte(`{"":`)) {
				t.Errorf("a member without a name: %s", res.out)
			}
			got := res.seen(t).First()
			if !slices.Equal(got.Calls, c.want.Calls) {
				t.Errorf("calls %+v, want %+v", got.Calls, c.want.Calls)
			}
			if got.Content != c.want.Content || got.Reasoning != c.want.Reasoning || got.Finish != c.want.Finish {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestStreamFailures(t *testing.T) {
	text := delta(`"content":"x"`)
	for name, c := range map[string]struct {
		list []string
		kind exchange.FailureKind
	}{
		"empty":             {nil, exchange.FailCut},
		"cut":               {[]string{text}, exchange.FailCut},
		"an end of nothing": {[]string{counted, done}, exchange.FailCut},
		"one choice of two": {[]string{text, `{"choices":[{"index":1,"delta":{"content":"y"}}]}`, finished}, exchange.FailCut},
		"not JSON":          {[]string{text, `{"choices":`}, exchange.FailInvalid},
		"too deep":          {[]string{text, strings.Repeat("[", 16<<20)}, exchange.FailInvalid},
		"error":             {[]string{text, `{"error":{"message":"m","type":"server_error"}}`, done}, exchange.FailOverloaded},
		"[DONE] alone":      {[]string{text, done}, exchange.FailCut},
		"error by status":   {[]string{`{"error":{"message":"m","code":429}}`}, exchange.FailRateLimited},
		"error by finish":   {[]string{text, strings.Replace(finished, "stop", "error", 1)}, exchange.FailInvalid},
		"too many choices":  {append(manyChoices(), done), exchange.FailInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			got := translate(t, true, c.list...)
			if got.failure == nil || got.failure.Kind != c.kind || got.failure.Message == "" {
				t.Fatalf("%+v", got.failure)
			}
			for _, choice := range adaptertest.ReadBroken(t, got.out, true).Choices {
				if choice.Finish != "" && name != "one choice of two" {
					t.Errorf("a broken stream looks finished: %s", got.out)
				}
			}
		})
	}
}

func manyChoices() []string {
	var list []string
	for i := range choicesMax + 1 {
		list = append(list, `{"id":"c1","choices":[{"index":`+itoa(i)+`,"delta":{"content":"x"}}]}`)
	}
	return list
}

// slowly makes every chunk take the long way.
func (s *stream) slowly(dst, name, data []byte) ([]byte, adapter.Progress) {
	s.templates = templates{}
	return s.Event(dst, name, data)
}

// TestFastEqualsSlow: a chunk gives the same bytes, the same count and the same state whether a template is found for
// it or not.
func TestFastEqualsSlow(t *testing.T) {
	arguments := func(index, text string) string {
		return delta(`"tool_calls":[{` + index + `"function":{"arguments":"` + text + `"}}]`)
	}
	begin := func(members string) string { return delta(`"tool_calls":[{` + members + `}]`) }
	padded := func(text, pad string) string {
		return strings.TrimSuffix(delta(`"content":"`+text+`"`), "}") + `,"obfuscation":"` + pad + `"}`
	}
	at := func(i, text string) string {
		return strings.Replace(delta(`"content":"`+text+`"`), `"index":0`, `"index":`+i, 1)
	}
	for name, list := range map[string][]string{
		"text":          {delta(`"content":"a"`), delta(`"content":"b é😀"`)},
		"usual escapes": {delta(`"content":"a"`), delta(`"content":"\"\\\/\b\f\n\r\t"`)},
		"code points":   {delta(`"content":"a"`), delta(`"content":"\u00e9\ud83d\ude00\ud83d"`)},
		"empty":         {delta(`"content":"a"`), delta(`"content":""`)},
		"a finish":      {delta(`"content":"a"`), strings.Replace(delta(`"content":"b"`), "null", `"stop"`, 1)},
		"two texts": {
			`{"choices":[{"index":0,"delta":{"content":"a"}}],"also":{"delta":{"content":"a"}}}`,
			`{"choices":[{"index":0,"delta":{"content":"b"}}],"also":{"delta":{"content":"a"}}}`,
		},
		"padded":        {padded("a", "x"), padded("b", "long"), padded("", "")},
		"choices":       {at("0", "a"), at("1", "b"), at("0", "c"), at("1", "d"), at("2", "e"), at("0", "f")},
		"reasoning":     {delta(`"reasoning":"a"`), delta(`"reasoning":"b"`), delta(`"reasoning":"b","reasoning_content":null`)},
		"arguments":     {begin(`"index":0,"id":"t","function":{"name":"f","arguments":""}`), arguments(`"index":0,`, `{\"a`), arguments(`"index":0,`, `\":1}`)},
		"the next call": {begin(`"index":0,"id":"t","function":{"name":"f","arguments":""}`), arguments(`"index":0,`, `{`), arguments(`"index":0,`, `}`), begin(`"index":0,"id":"u","function":{"name":"g","arguments":""}`), arguments(`"index":0,`, `{`), arguments(`"index":0,`, `}`)},
		"by name":       {begin(`"function":{"name":"f","arguments":""}`), arguments(``, `{`), arguments(``, `}`), begin(`"function":{"name":"f","arguments":"{"}`), arguments(``, `}`)},
		"after the end": {delta(`"content":"a"`), delta(`"content":"b"`), finished, delta(`"content":""`), delta(`"content":"c"`)},
	} {
		t.Run(name, func(t *testing.T) {
			made := func() *stream { return New().Stream(ask(true), note).(*stream) }
			fast, slow := made(), made()
			for _, chunk := range append([]string{delta(`"content":""`)}, list...) {
				x, px := fast.Event(nil, nil, []byte(chunk))
				y, py := slow.slowly(nil, nil, []byte(chunk))
				if !bytes.Equal(x, y) || px != py || fast.delivered != slow.delivered {
					t.Errorf("fast %+v %d %s\nslow %+v %d %s", px, fast.delivered, x, py, slow.delivered, y)
				}
			}
		})
	}
}

// TestTemplatesAreUsed: the chunks that make up streams take the fast path.
func TestTemplatesAreUsed(t *testing.T) {
	// Chunks with logprobs or a running usage differ in more than a text.
	bytes := map[string]int{"text": 7, "obfuscated": 6, "arguments": 5, "logprobs": 0, "running usage": 0}
	for name, chunk := range benchChunks {
		t.Run(name, func(t *testing.T) {
			want, known := bytes[name]
			if !known {
				t.Fatal("say which path its chunks take")
			}
			s := New().Stream(ask(true), note).(*stream)
			s.Event(nil, nil, []byte(benchOpening))
			s.Event(nil, nil, []byte(chunk(1)))
			_, got, ok := s.templates.translate(nil, nil, []byte(chunk(2)))
			if ok != (want > 0) || got.text != want {
				t.Errorf("%d bytes, %v, want %d", got.text, ok, want)
			}
		})
	}
}

// FuzzEvent: whatever comes, the caller gets whole events of one line of valid JSON, and the count never falls.
func FuzzEvent(f *testing.F) {
	f.Add("", `{"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}`, `{"id":"c","choices":[{"index":0,"delta":{"content":"y\n"}}]}`)
	f.Add("", `{"choices":[{"delta":{"tool_calls":[{"id":null,"function":{"name":"f","arguments":{"a":1}}}]}}]}`, `[DONE]`)
	f.Add("", "{\"choices\":[{\"delta\":{\"a\\\"b\":{\n\"c\":1}},\r\"finish_reason\":\"a\\\"b\"}]}", delta(`"content":["x"]`))
	f.Add("", strings.Replace(delta(""), "{}", "null", 1), counted)
	f.Add("", delta(`"tool_calls":[{"index":0,"id":"t","custom":{"name":"n","input":"x"}}]`), finished)
	f.Add("error", `{"error":"x"}`, ``)
	f.Add("", "{\"choices\":[{\"delta\":null}]}\nA", "0")
	f.Fuzz(func(t *testing.T, name, first, second string) {
		s := New().Stream(ask(true), note)
		var out []byte
		for _, data := range []string{first, second, second} {
			before, count := len(out), s.Delivered().Bytes
			next, p := s.Event(out, []byte(name), []byte(data))
			if s.Delivered().Bytes < count || p.Real != (s.Delivered().Bytes > count) ||
				p.Failure != nil && len(next) > before && !strings.Contains(data, "\n") { // what is glued before it came whole
				t.Fatalf("%+v, %d after %d, with %q", p, s.Delivered().Bytes, count, next[before:])
			}
			if out = next; p.Failure != nil {
				out = s.Abort(out, p.Failure)
				break
			}
		}
		out, _ = s.End(out)
		adaptertest.Events(t, out)
	})
}
