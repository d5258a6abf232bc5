package gemini_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// FuzzRequest: whatever a caller sends, a request that goes out is JSON, and one that does not says why.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}]}],"tools":[`+tool+`],"stop":["a"]}`), "gemini-3")
	f.Add([]byte(`{"messages":[{"role":"assistant","tool_calls":[{"id":"call_gem_1_gsig_c2ln","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_gem_1_gsig_c2ln","content":"x"}]}`), "gemini-2.5-pro")
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		if !json.Valid(body) {
			return // the gateway has seen to that
		}
		for _, ad := range []*gemini.Adapter{gemini.New(), gemini.NewVertex()} {
			for _, op := range []exchange.Operation{exchange.Chat, exchange.Embeddings} {
				r := chat(string(body), false)
				r.Operation = op
				call, fail := ad.Request(r, &exchange.Deployment{Model: model}, nil)
				if fail == nil && !json.Valid(call.Body) || fail != nil && (fail.Message == "" || len(call.Body) > 0) {
					t.Fatalf("%+v: %s", fail, call.Body)
				}
			}
		}
	})
}

// FuzzResponse: whatever the provider answers, the caller gets JSON or nothing.
func FuzzResponse(f *testing.F) {
	f.Add([]byte(twoCalls))
	f.Add([]byte(`{"predictions":[{"embeddings":{"values":[1]}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, op := range []exchange.Operation{exchange.Chat, exchange.Embeddings} {
			for _, format := range []string{"float", "base64"} {
				r := chat(`{"encoding_format":"`+format+`"}`, false)
				r.Operation = op
				out, u, fail := gemini.New().Response(r, body, note)
				if (fail == nil) != json.Valid(out) || fail != nil && out != nil || u.Total() < 0 {
					t.Fatalf("%+v, %+v: %s", fail, u, out)
				}
			}
		}
		_ = gemini.New().Failure(400, func(string) string { return "" }, body)
	})
}

// FuzzStream: whatever the events are, the caller gets whole events of JSON, and an end only after a finish.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/gemini/stream-*.http")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		f.Add(adaptertest.Body(f, adaptertest.Read(f, name)))
	}
	f.Add([]byte("data: " + twoCalls + "\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		st := gemini.New().Stream(chat("{}", true), note)
		var in sse.Reader
		in.Feed(body)
		in.End()
		var out []byte
		for {
			ev, ok, err := in.Next()
			if err != nil || !ok {
				break
			}
			before := len(out)
			next, p := adaptertest.Step(t, st, out, adaptertest.Event{Name: string(ev.Name), Data: string(ev.Data)})
			if p.Failure != nil {
				if next, end := st.End(next); end == nil || len(next) != before {
					t.Fatal("an end after a failure")
				}
				return
			}
			out = next
		}
		out, _ = st.End(out)
		adaptertest.Events(t, out)
	})
}
