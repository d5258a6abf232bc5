package openai

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// The chunks of BenchmarkChunk differ from one to the next in what real ones differ in.
var benchChunks = map[string]func(i int) string{
	"text": func(i int) string {
		return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796018863,"model":"gpt-large-2026","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" amber` + strconv.Itoa(i) + `"},"logprobs":null,"finish_reason":null}],"usage":null}`
	},
	"obfuscated": func(i int) string {
		return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796018863,"model":"gpt-large-2026","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" amber"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"` + "x9QkT71bZ"[:1+i%9] + `"}`
	},
	"arguments": func(i int) string {
		return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796018863,"model":"gpt-large-2026","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a` + strconv.Itoa(i) + `\":"}}]},"logprobs":null,"finish_reason":null}],"usage":null}`
	},
	"logprobs": func(i int) string {
		return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796018863,"model":"gpt-large-2026","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" amber"},"logprobs":{"content":[{"token":" amber","logprob":-0.1` + strconv.Itoa(i) + `,"bytes":[32,97],"top_logprobs":[]}],"refusal":null},"finish_reason":null}],"usage":null}`
	},
	"running usage": func(i int) string {
		return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796018863,"model":"gpt-large-2026","choices":[{"index":0,"delta":{"content":" amber"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":11,"completion_tokens":` + strconv.Itoa(i) + `,"total_tokens":` + strconv.Itoa(i+11) + `}}`
	},
}

const benchOpening = `{"id":"chatcmpl-1","created":1796018863,"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[` +
	`{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}}]}`

// BenchmarkChunk translates one chunk in the middle of a stream whose caller did not ask for usage.
func BenchmarkChunk(b *testing.B) {
	for name, chunk := range benchChunks {
		b.Run(name, func(b *testing.B) {
			var list [256][]byte
			for i := range list {
				list[i] = []byte(chunk(i))
			}
			s := New().Stream(&exchange.Request{Model: "alias"}, nil)
			var buf []byte
			buf, _ = s.Event(buf, nil, []byte(benchOpening))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				buf, _ = s.Event(buf[:0], nil, list[i%len(list)])
				i++
			}
		})
	}
}

// BenchmarkEmbeddings converts answers of growing size; the time a vector must not grow with their number.
func BenchmarkEmbeddings(b *testing.B) {
	for _, to := range []string{"base64", "float"} {
		for _, n := range []int{8, 64, 512} {
			b.Run(to+"/"+strconv.Itoa(n), func(b *testing.B) {
				r := &exchange.Request{Operation: exchange.Embeddings, Model: "alias", Body: []byte(`{"encoding_format":"` + to + `"}`)}
				body := vectorsAnswer(n, 1536, to == "float")
				b.ReportAllocs()
				for b.Loop() {
					if _, _, f := New().Response(r, body, note); f != nil {
						b.Fatal(f)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/vector")
			})
		}
	}
}

// vectorsAnswer is an answer with n vectors of size numbers.
func vectorsAnswer(n, size int, coded bool) []byte {
	vector := strings.Repeat("0.0021277403,", size-1) + "-0.25"
	if coded {
		vector = `"` + strings.Repeat("cQs7PwAA", size/2) + `"`
	} else {
		vector = "[" + vector + "]"
	}
	item := `{"object":"embedding","index":0,"embedding":` + vector + `}`
	return []byte(`{"object":"list","data":[` + strings.Repeat(item+",", n-1) + item + `],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}`)
}
