package openai

import (
	"encoding/json"
	"reflect"
	"runtime"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestRequest(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		r        exchange.Request
		body     string
		want     string
	}{
		"the model alone changes": {
			"openai", exchange.Request{Operation: exchange.Chat, MaxOutput: 5},
			`{ "n":1,  "model" : "alias","max_completion_tokens":5,"messages":[{"model":"kept","x":1e400,"big":12345678901234567890}]}`,
			`{ "n":1,  "model" : "real","max_completion_tokens":5,"messages":[{"model":"kept","x":1e400,"big":12345678901234567890}]}`,
		},
		"usage is asked for": {
			"compatible", exchange.Request{Operation: exchange.Chat, Stream: true, MaxOutput: 5},
			`{"model":"a","stream":true,"max_tokens":5,"stream_options":{"include_obfuscation":false}}`,
			`{"model":"real","stream":true,"max_tokens":5,"stream_options":{"include_obfuscation":false,"include_usage":true}}`,
		},
		"stream_options without stream": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 5},
			`{"model":"a","stream_options":{"include_usage":true},"max_tokens":5}`,
			`{"model":"real","max_tokens":5}`,
		},
		"OpenAI knows the new name": {
			"openai", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_tokens":7}`, `{"model":"real","max_completion_tokens":7}`,
		},
		"usage is asked for, whatever the caller said": {
			"compatible", exchange.Request{Operation: exchange.Chat, Stream: true, MaxOutput: 5},
			`{"model":"a","stream":true,"max_tokens":5,"stream_options":{"include_usage":false}}`,
			`{"model":"real","stream":true,"max_tokens":5,"stream_options":{"include_usage":true}}`,
		},
		"stream_options is null": {
			"compatible", exchange.Request{Operation: exchange.Chat, Stream: true, MaxOutput: 5},
			`{"model":"a","stream_options":null,"max_tokens":5}`,
			`{"model":"real","stream_options":{"include_usage":true},"max_tokens":5}`,
		},
		"others may know only the old name": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_tokens":7}`, `{"model":"real","max_tokens":7}`,
		},
		"both names, OpenAI": {
			"openai", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_tokens":7,"max_completion_tokens":9}`, `{"model":"real","max_completion_tokens":7}`,
		},
		"both names, the lower one counts": {
			"openai", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"max_completion_tokens":7,"model":"a","max_tokens":9}`, `{"max_completion_tokens":7,"model":"real"}`,
		},
		"both names, compatible": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"max_completion_tokens":9,"model":"a","max_tokens":7}`, `{"max_tokens":7,"model":"real"}`,
		},
		"one is null": {
			"openai", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_completion_tokens":null,"max_tokens":7}`, `{"model":"real","max_completion_tokens":7}`,
		},
		"the other is null": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_tokens":null,"max_completion_tokens":7}`, `{"model":"real","max_tokens":7}`,
		},
		"both are null": {
			"compatible", exchange.Request{Operation: exchange.Chat, DefaultOutput: 64},
			`{"max_tokens":null,"model":"a","max_completion_tokens":null}`, `{"max_tokens":64,"model":"real"}`,
		},
		"null, and no default": {
			"openai", exchange.Request{Operation: exchange.Chat},
			`{"max_tokens":null,"model":"a"}`, `{"max_tokens":null,"model":"real"}`,
		},
		"the new name, to who may know only the old one": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_completion_tokens" : 7}`, `{"model":"real","max_tokens" : 7}`,
		},
		"escaped names": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 7, Stream: true},
			`{"mod\u0065l":"a","max\u005ftokens":7,"stream_options":{"include\u005fusage":null}}`,
			`{"mod\u0065l":"real","max\u005ftokens":7,"stream_options":{"include\u005fusage":true}}`,
		},
		"odd names and texts": {
			"compatible", exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			"\n{\"\\\"\":\"}\\\\\",\"\":{},\t\"model\":\"a\",\"max_tokens\":7}\n", "{\"\\\"\":\"}\\\\\",\"\":{},\t\"model\":\"real\",\"max_tokens\":7}",
		},
		"usage has been asked for": {
			"compatible", exchange.Request{Operation: exchange.Chat, Stream: true, MaxOutput: 5},
			`{"model":"a","stream_options":{"include_usage" :true , "x":1},"max_tokens":5}`,
			`{"model":"real","stream_options":{"include_usage" :true , "x":1},"max_tokens":5}`,
		},
		"empty stream_options": {
			"compatible", exchange.Request{Operation: exchange.Chat, Stream: true, MaxOutput: 5},
			`{"model":"a","stream_options":{},"max_tokens":5}`, `{"model":"real","stream_options":{"include_usage":true},"max_tokens":5}`,
		},
		"no stream_options": {
			"openai", exchange.Request{Operation: exchange.Chat, Stream: true, DefaultOutput: 64},
			`{"stream":true,"model":"a"}`, `{"stream":true,"model":"real","stream_options":{"include_usage":true},"max_completion_tokens":64}`,
		},
		"stream_options alone, without stream": {
			"openai", exchange.Request{Operation: exchange.Chat},
			`{"stream_options":{"a":1},"model":"a"}`, `{"model":"real"}`,
		},
		"a cap of the caller's own": {
			"openai", exchange.Request{Operation: exchange.Chat, MaxOutput: 7, DefaultOutput: 64},
			`{"model":"a","max_completion_tokens":7}`, `{"model":"real","max_completion_tokens":7}`,
		},
		"no cap, OpenAI": {
			"openai", exchange.Request{Operation: exchange.Chat, DefaultOutput: 64},
			`{"model":"a"}`, `{"model":"real","max_completion_tokens":64}`,
		},
		"no cap, compatible": {
			"compatible", exchange.Request{Operation: exchange.Chat, DefaultOutput: 64},
			`{"model":"a"}`, `{"model":"real","max_tokens":64}`,
		},
		"embeddings": {
			"openai", exchange.Request{Operation: exchange.Embeddings, DefaultOutput: 64},
			`{"model":"a","input":"x"}`, `{"model":"real","input":"x"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.Body = []byte(c.body)
			call, f := New().Request(&c.r, &exchange.Deployment{Provider: c.provider, Model: "real"}, []byte("s3cret"))
			if f != nil || string(call.Body) != c.want {
				t.Errorf("got %s (%v), want %s", call.Body, f, c.want)
			}
			if string(c.r.Body) != c.body {
				t.Error("the caller's body was changed")
			}
			if last := call.Header[len(call.Header)-1]; last.Name != "Authorization" || last.Value != "Bearer s3cret" {
				t.Errorf("got header %+v", last)
			}
		})
	}
}

// FuzzRequest: of a request only the members named change, and it stays JSON.
func FuzzRequest(f *testing.F) {
	f.Add(`{"model":"a","max_tokens":7,"stream_options":{"x":[1,{}]}}`, true, true)
	f.Add(`{ "mod\u0065l" : "\"}" ,"max_completion_tokens":null,"max_tokens":9,"messages":[]}`, false, true)
	f.Add(`{"stream_options":null,"a":"\\","model":1}`, true, false)
	f.Fuzz(func(t *testing.T, body string, stream, toOpenAI bool) {
		var before, after map[string]json.RawMessage
		if !adapter.Valid([]byte(body)) || json.Unmarshal([]byte(body), &before) != nil || before == nil {
			return
		}
		r := &exchange.Request{Operation: exchange.Chat, Stream: stream, Body: []byte(body), MaxOutput: 7}
		d := &exchange.Deployment{Model: "real", Provider: "compatible"}
		if toOpenAI {
			d.Provider = "openai"
		}
		call, no := New().Request(r, d, nil)
		if no != nil || json.Unmarshal(call.Body, &after) != nil {
			t.Fatalf("%v: %s", no, call.Body)
		}
		name, other := oldCap, newCap
		if toOpenAI {
			name, other = newCap, oldCap
		}
		_, twice := after[other]
		if string(after["model"]) != `"real"` || string(after[name]) != "7" || twice || (after["stream_options"] != nil) != stream {
			t.Fatalf("%s became %s", body, call.Body)
		}
		for _, m := range []map[string]json.RawMessage{before, after} {
			for _, n := range []string{"model", oldCap, newCap, "stream_options"} {
				delete(m, n)
			}
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s", body, call.Body)
		}
	})
}

func TestEmbeddingsInTheEncodingAskedFor(t *testing.T) {
	const floats, coded = `[1,-2.5,0.0021277403]`, `"AACAPwAAIMCPcQs7"`
	for name, c := range map[string]struct{ request, answer, want string }{
		"float to float":   {`{}`, floats, floats},
		"float to base64":  {`{"encoding_format":"base64"}`, floats, coded},
		"base64 to float":  {`{"encoding_format":"float"}`, coded, floats},
		"base64 to base64": {`{"encoding_format":"base64"}`, coded, coded},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Embeddings, Model: "alias", Body: []byte(c.request)}
			body := `{"object":"list","data":[{"index":0,"embedding":` + c.answer + `}],"usage":{"prompt_tokens":3,"total_tokens":3}}`
			out, u, f := New().Response(r, []byte(body), note)
			var doc struct {
				Data []struct{ Embedding json.RawMessage }
			}
			if f != nil || json.Unmarshal(out, &doc) != nil || string(doc.Data[0].Embedding) != c.want || u.Input != 3 {
				t.Errorf("got %s %+v %v, want %s", out, u, f, c.want)
			}
		})
	}
}

// TestEmbeddingsStayLinear: what a vector costs does not grow with their number.
func TestEmbeddingsStayLinear(t *testing.T) {
	for _, to := range []string{"base64", "float"} {
		r := &exchange.Request{Operation: exchange.Embeddings, Model: "alias", Body: []byte(`{"encoding_format":"` + to + `"}`)}
		bytesFor := func(n int) uint64 {
			body := vectorsAnswer(n, 64, to == "float")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, _, f := New().Response(r, body, note); f != nil {
				t.Fatal(f)
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		few, many := bytesFor(64), bytesFor(64*16)
		if many > few*16*3 {
			t.Errorf("to %s: %d bytes for 64 vectors, %d for 16 times as many", to, few, many)
		}
	}
}

func TestVectorsThatAreNone(t *testing.T) {
	for name, c := range map[string]struct{ to, vector string }{
		"not base64":     {"float", `"*"`},
		"half a number":  {"float", `"AAA="`},
		"not a number":   {"float", `"AADAfw=="`},
		"infinite":       {"float", `"AACAfw=="`},
		"text in it":     {"base64", `["a"]`},
		"beyond float32": {"base64", `[1e300]`},
	} {
		t.Run(name, func(t *testing.T) {
			r := &exchange.Request{Operation: exchange.Embeddings, Body: []byte(`{"encoding_format":"` + c.to + `"}`)}
			if _, _, f := New().Response(r, []byte(`{"data":[{"embedding":`+c.vector+`}]}`), note); f == nil || f.Kind != exchange.FailInvalid {
				t.Errorf("%+v", f)
			}
		})
	}
}
