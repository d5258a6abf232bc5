package openai

import (
	"encoding/json"
	"testing"

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
			strict, exchange.Request{Operation: exchange.Chat, MaxOutput: 5},
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
			strict, exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
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
			strict, exchange.Request{Operation: exchange.Chat, MaxOutput: 7},
			`{"model":"a","max_tokens":7,"max_completion_tokens":9}`, `{"model":"real","max_completion_tokens":7}`,
		},
		"a cap of the caller's own": {
			strict, exchange.Request{Operation: exchange.Chat, MaxOutput: 7, DefaultOutput: 64},
			`{"model":"a","max_completion_tokens":7}`, `{"model":"real","max_completion_tokens":7}`,
		},
		"no cap, OpenAI": {
			strict, exchange.Request{Operation: exchange.Chat, DefaultOutput: 64},
			`{"model":"a"}`, `{"model":"real","max_completion_tokens":64}`,
		},
		"no cap, compatible": {
			"compatible", exchange.Request{Operation: exchange.Chat, DefaultOutput: 64},
			`{"model":"a"}`, `{"model":"real","max_tokens":64}`,
		},
		"embeddings": {
			strict, exchange.Request{Operation: exchange.Embeddings, DefaultOutput: 64},
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
