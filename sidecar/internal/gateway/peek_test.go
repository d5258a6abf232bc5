package gateway

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestPeekChat(t *testing.T) {
	r := exchange.Request{Operation: exchange.Chat, Body: []byte(`{
		"model":"chat-large","stream":true,"stream_options":{"include_usage":true},"max_tokens":50,
		"max_completion_tokens":20,"n":2,"metadata":{"feature":"search","user":"u1"},"unknown":{"kept":true},
		"tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_schema"},
		"messages":[{"role":"system","content":"be brief"},
			{"role":"user","content":[{"type":"text","text":"what is it"},{"type":"image_url","image_url":{"url":"data:"}}]}]}`)}
	if bad := peek(&r); bad != nil {
		t.Fatalf("%+v", *bad)
	}
	if r.Model != "chat-large" || !r.Stream || !r.IncludeUsage || r.MaxOutput != 20 || r.Choices != 2 ||
		r.Feature != "search" || r.UserSHA256 != hashUser("u1") || !r.Tools || !r.JSONSchema || !r.Vision ||
		r.Messages != 2 || r.InputExtra != imageTokens || r.InputBytes < 60 {
		t.Errorf("%+v", r)
	}
}

// TestPeekUser: the order of members does not decide who the end user is.
func TestPeekUser(t *testing.T) {
	const rest = `"model":"a","messages":[{"role":"user","content":"x"}]`
	for body, want := range map[string]string{
		`{"metadata":{"user":"m"},"user":"u","safety_identifier":"s",` + rest + `}`:  "s",
		`{"safety_identifier":"s",` + rest + `,"user":"u"}`:                          "s",
		`{"metadata":{"user":"m"},` + rest + `,"user":"u","safety_identifier":null}`: "u",
		`{"metadata":{"user":"m"},` + rest + `,"user":5}`:                            "m",
		`{` + rest + `}`: "",
	} {
		r := exchange.Request{Operation: exchange.Chat, Body: []byte(body)}
		if bad := peek(&r); bad != nil || r.UserSHA256 != hashUser(want) {
			t.Errorf("%s: %v %s", body, bad, r.UserSHA256)
		}
		r = exchange.Request{Operation: exchange.Chat, Body: []byte(body), UserSHA256: "header"}
		if peek(&r); r.UserSHA256 != "header" {
			t.Errorf("%s: the header must win", body)
		}
	}
}

func TestPeekRefuses(t *testing.T) {
	const ok = `"messages":[{"role":"user","content":"x"}]`
	for name, c := range map[string]struct{ body, param string }{
		"not JSON":            {`{"model":`, ""},
		"not an object":       {`["model"]`, ""},
		"empty":               {``, ""},
		"trailing text":       {`{} {}`, ""},
		"endless nesting":     {strings.Repeat("[", 4<<20), ""}, // a recursive check would end the process
		"no model":            {`{` + ok + `}`, "model"},
		"model of a number":   {`{"model":1,` + ok + `}`, "model"},
		"model twice":         {`{"model":"a","model":"b",` + ok + `}`, "model"},
		"model, escaped":      {`{"model":"a","mod\u0065l":"b",` + ok + `}`, "model"},
		"another case":        {`{"model":"a","max_tokens":5,"Max_Tokens":9,` + ok + `}`, "Max_Tokens"},
		"another case, alone": {`{"model":"a","MAX_TOKENS":9,` + ok + `}`, "MAX_TOKENS"},
		"folded to ASCII":     {`{"model":"a","max_to\u212Aens":9,"\u017ftream":true,` + ok + `}`, "max_to\u212aens"},
		"a long s":            {`{"model":"a","\u017ftream":true,` + ok + `}`, "\u017ftream"},
		"unknown twice":       {`{"model":"a","top_p":1,"top_p":2,` + ok + `}`, "top_p"},
		"no messages":         {`{"model":"a"}`, "messages"},
		"messages of a text":  {`{"model":"a","messages":"x"}`, "messages"},
		"no message":          {`{"model":"a","messages":[]}`, "messages"},
		"message of a text":   {`{"model":"a","messages":["x"]}`, "messages[0]"},
		"negative max_tokens": {`{"model":"a","max_tokens":-1,` + ok + `}`, "max_tokens"},
		"zero max_tokens":     {`{"model":"a","max_tokens":0,` + ok + `}`, "max_tokens"},
		"max_tokens of text":  {`{"model":"a","max_tokens":"5",` + ok + `}`, "max_tokens"},
		"half a token":        {`{"model":"a","max_completion_tokens":1.5,` + ok + `}`, "max_completion_tokens"},
		"absurd max_tokens":   {`{"model":"a","max_tokens":1e300,` + ok + `}`, "max_tokens"},
		"n of 0":              {`{"model":"a","n":0,` + ok + `}`, "n"},
		"n of 129":            {`{"model":"a","n":129,` + ok + `}`, "n"},
		"stream of a text":    {`{"model":"a","stream":"yes",` + ok + `}`, "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := peek(&exchange.Request{Operation: exchange.Chat, Body: []byte(c.body)})
			if bad == nil {
				t.Fatal("accepted")
			}
			if bad.param != c.param {
				t.Errorf("param %q, want %q (%s)", bad.param, c.param, bad.message)
			}
		})
	}
}

// TestPeekTwice: who sends a member twice is told of what was sent.
func TestPeekTwice(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a","model":"b"}`: `the member "model" appears twice`,
		`{"model":"a","Model":"b"}`: `"model" and "Model" are one member to some providers: send it once`,
		`{"Top_P":1,"top_p":2}`:     `"Top_P" and "top_p" are one member to some providers: send it once`,
		`{"":1,"":2}`:               `the member "" appears twice`,
	} {
		if bad := peek(&exchange.Request{Operation: exchange.Chat, Body: []byte(body)}); bad == nil || bad.message != want {
			t.Errorf("%s: %v, want %s", body, bad, want)
		}
	}
}

func TestPeekEmbeddings(t *testing.T) {
	for body, want := range map[string]struct{ bytes, extra int64 }{
		`{"model":"e","input":"four"}`:          {6, 0},
		`{"model":"e","input":["ab","c"]}`:      {7, 0},
		`{"model":"e","input":[1,2,3]}`:         {0, 3},
		`{"model":"e","input":[[1,2],[3,4,5]]}`: {0, 5},
	} {
		r := exchange.Request{Operation: exchange.Embeddings, Body: []byte(body)}
		if bad := peek(&r); bad != nil || r.InputBytes != want.bytes || r.InputExtra != want.extra {
			t.Errorf("%s: %v %d %d, want %+v", body, bad, r.InputBytes, r.InputExtra, want)
		}
	}
	if bad := peek(&exchange.Request{Operation: exchange.Embeddings, Body: []byte(`{"model":"e"}`)}); bad == nil || bad.param != "input" {
		t.Errorf("no input: %v", bad)
	}
}

func FuzzPeek(f *testing.F) {
	f.Add(`{"model":"a","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`)
	f.Add(`{"model":"a","input":[[1],[2]]}`)
	f.Add(strings.Repeat(`[`, 100))
	f.Add(`{"model":"a","max_tokens":1,"thinking":{"budget_tokens":-5},"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"image"}]}},{"type":"tool_result","content":"x"}]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, op := range [...]exchange.Operation{exchange.Chat, exchange.Embeddings} {
			r := exchange.Request{Operation: op, Body: []byte(body)}
			if peek(&r) == nil && (r.Model == "" || r.Choices < 1 || r.MaxOutput < 0 || r.InputBytes < 0) {
				t.Errorf("accepted with %+v", r)
			}
		}
		for _, op := range [...]exchange.Operation{exchange.Chat, exchange.CountTokens} {
			r := exchange.Request{Operation: op, Dialect: exchange.MessagesDialect, Native: []byte(body)}
			if peek(&r) == nil && (r.Model == "" || r.Choices < 1 || r.MaxOutput < 0 || r.InputBytes < 0 || r.InputExtra < 0 || r.Thinking < 0) {
				t.Errorf("accepted with %+v", r)
			}
		}
	})
}

func TestUSD(t *testing.T) {
	for n, want := range map[exchange.NanoUSD]string{
		0: "0", 1: "0.000000001", 1_000_000_000: "1", 1_500_000_000: "1.5", -250_000_000: "-0.25", 100_000_000_001: "100.000000001",
	} {
		if got := usd(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

// TestDocumentsAreMeasured: a PDF is taken for its pages, in callers' words of either of OpenAI's APIs.
func TestDocumentsAreMeasured(t *testing.T) {
	pdf := "data:application/pdf;base64," + base64.StdEncoding.EncodeToString([]byte("%PDF-1.4 << /Type /Page >> << /Type /Page >> "))
	for name, r := range map[string]exchange.Request{
		"chat": {Operation: exchange.Chat, Body: []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"` + pdf + `"}}]}]}`)},
		"responses": {Operation: exchange.Chat, Dialect: exchange.ResponsesDialect,
			Native: []byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":"` + strings.ReplaceAll(pdf, "/", `\/`) + `"}]}]}`)},
	} {
		if bad := peek(&r); bad != nil || r.InputExtra != 6_000 || r.InputBytes > 100 {
			t.Errorf("%s: %+v, %d tokens, %d bytes", name, bad, r.InputExtra, r.InputBytes)
		}
	}
}

// TestDrawnImagesAreMeasured: an image that comes back in the history is taken for one, not for the text of its base64.
func TestDrawnImagesAreMeasured(t *testing.T) {
	data := strings.Repeat("QUJD", 10_000)
	for name, r := range map[string]exchange.Request{
		"chat": {Operation: exchange.Chat, Body: []byte(`{"model":"m","messages":[{"role":"assistant","content":"a","images":[{"image_url":{"url":"data:image/png;base64,` + data + `"}}]}]}`)},
		"messages": {Operation: exchange.Chat, Dialect: exchange.MessagesDialect,
			Native: []byte(`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"image","source":{"type":"base64","data":"` + data + `"}}]}]}`)},
		"responses": {Operation: exchange.Chat, Dialect: exchange.ResponsesDialect, Native: []byte(`{"model":"m","input":[{"type":"image_generation_call","result":"` + data + `"}]}`)},
	} {
		if bad := peek(&r); bad != nil || r.InputExtra != imageTokens || r.InputBytes > 100 || !r.Vision {
			t.Errorf("%s: %+v, %d tokens, %d bytes, vision %v", name, bad, r.InputExtra, r.InputBytes, r.Vision)
		}
	}
}
