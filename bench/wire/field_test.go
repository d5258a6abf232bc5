package wire

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What users of systems of this kind report as broken, each by its number in the list of field reports. F13 is
// TestLongSilence of bench/system: it needs minutes of a clock that a test can hold.

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	chunkedTE  = "Transfer-Encoding: chunked\r\n\r\n"
)

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// piece is the data of one chunk of a chat stream whose model is named as the alias is, so that nothing of it changes.
func piece(model, rest string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"` + model + `",` + rest + `}`
}

func delta(model, text, more string) string {
	return piece(model, fmt.Sprintf(`"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]%s`, text, more))
}

func role(model, more string) string {
	return piece(model, `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`+more)
}

func finish(model, more string) string {
	return piece(model, `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`+more)
}

func total(model string, in, out int) string {
	return piece(model, fmt.Sprintf(`"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, in, out, in+out))
}

// stream is a whole chunked answer of events with these data.
func stream(data ...string) []byte {
	return []byte(streamHead + chunkedTE + chunk(lines(data)) + "0\r\n\r\n")
}

func lines(data []string) (text string) {
	for _, d := range data {
		text += "data: " + d + "\n\n"
	}
	return text
}

// field is a stack whose openai and anthropic aliases are scripted by the tests.
type field struct {
	*stack
	p *provider
}

func newField(t *testing.T, more ...target) *field {
	t.Helper()
	p := listen(t)
	openai, claude := deployment{"openai", "fx", "", plainSecret}, deployment{"anthropic", "claude-sonnet-4-5", "", plainSecret}
	targets := more
	chains := map[string][2]string{}
	for _, n := range []string{"f1", "f1-quiet", "f2", "f4", "f5", "f9", "f12", "f17", "f18", "f18-chat", "second"} {
		targets = append(targets, target{n, p.base(n), openai})
	}
	for _, n := range []string{"f10", "f14", "f15", "f30", "second-claude"} {
		targets = append(targets, target{n, p.base(n), claude})
	}
	for _, n := range []string{"f5", "f9"} {
		chains[n+"-chain"] = [2]string{n, "second"}
	}
	chains["f10-chain"] = [2]string{"f10", "second-claude"}
	p.will("second", play{raw: stream(role("m", ""), delta("m", "second", ""), finish("m", ""), total("m", 3, 1), "[DONE]")})
	p.will("second-claude", play{raw: answer("200 OK", "application/json", `{"id":"m1","type":"message","role":"assistant","model":"m",`+
		`"content":[{"type":"text","text":"second"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}`)})
	return &field{launch(t, p, targets, chains), p}
}

// ask streams from an alias as a caller of chat.
func (f *field) ask(t *testing.T, alias string, usage bool) *seen {
	t.Helper()
	got := f.do(t, "/v1/chat/completions", chatBody(&fixture{Stream: true}, alias, usage))
	readChat(t, got)
	return got
}

// row waits for what the books hold of an alias.
func (f *field) row(t *testing.T, alias string) row {
	t.Helper()
	return f.books(t, func(rows map[string]row) bool { return rows[alias].Attempts > 0 })[alias]
}

func TestFieldReports(t *testing.T) {
	f := newField(t)
	for _, tc := range []struct {
		name string
		test func(*testing.T)
	}{
		{"F1 usage chunk", f.usageChunk},
		{"F2 split and glued frames", f.frames},
		{"F4 close at DONE", f.closeAtDone},
		{"F5 cut", f.cutOff},
		{"F9 error as first frame", f.errorFirst},
		{"F10 Anthropic start, then overload", f.startThenOverload},
		{"F12 gzip stream", f.gzipped},
		{"F14 usage only on message_delta", f.lateUsage},
		{"F15 cumulative deltas", f.cumulative},
		{"F17 honest zero", f.zero},
		{"F18 nested Responses usage", f.nested},
		{"F30 byte-exact pass-through", f.exact},
	} {
		t.Run(tc.name, tc.test)
	}
}

// One usage chunk, without choices, and none for who did not ask; the provider is asked in both cases.
func (f *field) usageChunk(t *testing.T) {
	for _, alias := range []string{"f1", "f1-quiet"} {
		null := `,"usage":null`
		f.p.will(alias, play{raw: stream(role(alias, null), delta(alias, "a", null), delta(alias, "b", null), delta(alias, "c", null),
			finish(alias, null), total(alias, 31, 7), "[DONE]")})
		got := f.ask(t, alias, alias == "f1")
		if !strings.Contains(string(f.p.requests(alias)[0].body), `"include_usage":true`) {
			t.Errorf("the provider was not asked for usage: %s", f.p.requests(alias)[0].body)
		}
		told := strings.Count(string(got.body), `"usage":{`)
		switch nulls := strings.Count(string(got.body), `"usage":null`); {
		case !got.done || got.choice(0).content != "abc":
			t.Errorf("%s", got.body)
		case alias == "f1" && (told != 1 || nulls != 5 || *got.usage != wantUsage{Prompt: 31, Completion: 7, Total: 38}):
			t.Errorf("usage %d times, null %d times: %s", told, nulls, got.body)
		case alias != "f1" && (told != 0 || nulls != 0):
			t.Errorf("usage for who did not ask: %s", got.body)
		}
		if r := f.row(t, alias); r.Tokens.Input != 31 || r.Tokens.Output != 7 || r.Estimated != 0 {
			t.Errorf("books: %+v", r)
		}
	}
}

// Each event's data passes as it is, however the frames are cut and written, and none waits for the next.
func (f *field) frames(t *testing.T) {
	data := []string{role("f2", ""), delta("f2", "naïve", ""), delta("f2", " 日本", ""), delta("f2", " 🙂", ""), finish("f2", ""), "[DONE]"}
	text := lines(data)
	for name, body := range map[string]string{
		"glued": text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n"), "no space": strings.ReplaceAll(text, "data: ", "data:"),
		"comments": strings.ReplaceAll(text, "\n\n", "\n\n: hello\n\n"),
	} {
		for _, c := range cuts() {
			f.p.will("f2", play{raw: []byte(streamHead + chunkedTE + chunk(body) + "0\r\n\r\n"), cut: c})
			if got := f.ask(t, "f2", false); string(got.body) != text {
				t.Errorf("%s, %s: got %q, want %q", name, c, got.body, text)
			}
		}
	}
	// In step: the next event is sent only once the caller has this one.
	seen := make(chan bool)
	f.p.will("f2", play{script: func(c net.Conn) {
		_, _ = io.WriteString(c, streamHead+"Connection: close\r\n"+chunkedTE+chunk(lines(data[:1])))
		for _, d := range data[1:4] {
			for _, b := range []byte(chunk(lines([]string{d}))) {
				_, _ = c.Write([]byte{b})
			}
			<-seen
		}
		_, _ = io.WriteString(c, chunk(lines(data[4:]))+"0\r\n\r\n")
	}})
	resp := f.open(t, "f2")
	br := bufio.NewReader(resp.Body)
	for _, d := range data[:4] {
		if line, err := br.ReadString('\n'); err != nil || line != "data: "+d+"\n" {
			t.Fatalf("got %q, %v, want %q", line, err, d)
		}
		_, _ = br.ReadString('\n')
		if d != data[0] {
			seen <- true
		}
	}
	if rest, err := io.ReadAll(br); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("got %q, %v", rest, err)
	}
	_ = resp.Body.Close()
}

// open starts a stream and leaves it to the test.
func (f *field) open(t *testing.T, alias string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/chat/completions",
		strings.NewReader(chatBody(&fixture{Stream: true}, alias, false)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+appKey)
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// A caller that hangs up on [DONE], while the provider holds its side open, is no caller that left.
func (f *field) closeAtDone(t *testing.T) {
	over := make(chan bool)
	f.p.will("f4", play{script: func(c net.Conn) {
		data := []string{role("f4", ""), delta("f4", "hello", ""), finish("f4", ""), total("f4", 40, 9), "[DONE]"}
		_, _ = io.WriteString(c, streamHead+chunkedTE+chunk(lines(data)))
		<-over
	}})
	defer close(over)
	resp := f.open(t, "f4")
	for br := bufio.NewReader(resp.Body); ; {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("%v, after the status %d", err, resp.StatusCode)
		}
		if line == "data: [DONE]\n" {
			break
		}
	}
	_ = resp.Body.Close()
	f.client.CloseIdleConnections()
	if r := f.row(t, "f4"); r.Requests != 1 || r.Errors != 0 || r.Estimated != 0 || r.Tokens.Input != 40 || r.Tokens.Output != 9 {
		t.Errorf("books: %+v", r)
	}
}

// What came before a reset reaches the caller, then an error; there is no second attempt, and an estimate is billed.
func (f *field) cutOff(t *testing.T) {
	f.p.will("f5", play{script: func(c net.Conn) {
		_, _ = io.WriteString(c, streamHead+chunkedTE+chunk("data: "+role("f5", "")+"\n\n"))
		for i := range 12 {
			_, _ = io.WriteString(c, chunk("data: "+delta("f5", fmt.Sprintf("w%d ", i), "")+"\n\n"))
		}
		_ = c.(*net.TCPConn).CloseWrite() // so that all of it arrives: a reset may overtake it
	}})
	got := f.ask(t, "f5-chain", true)
	want := ""
	for i := range 12 {
		want += fmt.Sprintf("w%d ", i)
	}
	if c := got.choice(0); got.status != 200 || c.content != want || c.finish != "" || got.err == nil || got.done {
		t.Errorf("%d %q: %s", got.status, c.content, got.body)
	}
	if n := len(f.p.requests("second")); n != 0 {
		t.Errorf("%d further attempts", n)
	}
	if r := f.row(t, "f5-chain"); r.Requests != 1 || r.Estimated != 1 || r.Tokens.Output == 0 || r.Cost == 0 {
		t.Errorf("books: %+v", r)
	}
}

// An error in the first frame is a failed attempt, whatever follows it.
func (f *field) errorFirst(t *testing.T) {
	f.p.will("f9", play{raw: stream(`{"choices":[],"error":{"code":502,"message":"up"}}`, "[DONE]")})
	got := f.ask(t, "f9-chain", true)
	if got.status != 200 || got.err != nil || got.choice(0).content != "second" || got.header.Get("X-Gw-Attempts") != "2" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func anthropicEvents(data ...string) []byte {
	text := ""
	for _, d := range data {
		name, _, _ := strings.Cut(strings.TrimPrefix(d, `{"type":"`), `"`)
		text += "event: " + name + "\ndata: " + d + "\n\n"
	}
	return []byte(streamHead + chunkedTE + chunk(text) + "0\r\n\r\n")
}

func messageStart(usage string) string {
	return `{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],` +
		`"stop_reason":null,"stop_sequence":null,"usage":` + usage + `}}`
}

// A start that is followed by an error is no answer: another deployment gives it, or the caller gets a plain error.
func (f *field) startThenOverload(t *testing.T) {
	f.p.will("f10", play{raw: anthropicEvents(messageStart(`{"input_tokens":9,"output_tokens":1}`), `{"type":"ping"}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)})
	alone := f.do(t, "/v1/messages", messagesBody(&fixture{Stream: true}, "f10", false))
	readMessages(t, alone)
	if (alone.status != 503 && alone.status != 529) || alone.err == nil || alone.err.Type != "overloaded_error" || alone.streamed() {
		t.Errorf("%d %s", alone.status, alone.body)
	}
	moved := f.do(t, "/v1/messages", messagesBody(&fixture{Stream: true}, "f10-chain", false))
	readMessages(t, moved)
	if moved.status != 200 || moved.err != nil || !moved.done || moved.choice(0).content != "second" {
		t.Errorf("%d %s", moved.status, moved.body)
	}
}

// Nobody asks for gzip; who sends it all the same is understood, and the caller does not see it.
func (f *field) gzipped(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, lines([]string{role("f12", ""), delta("f12", "squeezed", ""), finish("f12", ""), total("f12", 5, 2), "[DONE]"}))
	_ = w.Close()
	f.p.will("f12", play{raw: []byte(streamHead + "Content-Encoding: gzip\r\n" + chunkedTE + chunk(b.String()) + "0\r\n\r\n"), cut: bytewise})
	got := f.ask(t, "f12", true)
	if got.choice(0).content != "squeezed" || !got.done || got.header.Get("Content-Encoding") != "" || got.usage == nil || got.usage.Prompt != 5 {
		t.Errorf("%v %s", got.header, got.body)
	}
	if e := f.p.requests("f12")[0].header.Get("Accept-Encoding"); e != "identity" {
		t.Errorf("accept-encoding %q", e)
	}
}

func anthropicAnswer(start string, deltas ...string) []byte {
	data := []string{
		messageStart(start), `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`,
		`{"type":"content_block_stop","index":0}`,
	}
	for i, u := range deltas {
		reason := "null"
		if i == len(deltas)-1 {
			reason = `"end_turn"`
		}
		data = append(data, `{"type":"message_delta","delta":{"stop_reason":`+reason+`,"stop_sequence":null},"usage":`+u+`}`)
	}
	return anthropicEvents(append(data, `{"type":"message_stop"}`)...)
}

// Usage that comes only at the end is all in the books, at its own prices.
func (f *field) lateUsage(t *testing.T) {
	f.p.will("f14", play{raw: anthropicAnswer(`{"input_tokens":0,"output_tokens":0}`,
		`{"input_tokens":11,"cache_creation_input_tokens":2000,"cache_read_input_tokens":500,"output_tokens":40}`)})
	if got := f.ask(t, "f14", true); got.usage == nil || got.usage.Prompt != 2511 || got.usage.Completion != 40 || got.gateway.Cost != "0.008283" {
		t.Errorf("%s", got.body)
	}
	if r := f.row(t, "f14"); r.Tokens.Input != 11 || r.Tokens.Write5m != 2000 || r.Tokens.Read != 500 || r.Tokens.Output != 40 || r.Cost != 8_283_000 {
		t.Errorf("books: %+v", r)
	}
}

// Counts that grow replace each other.
func (f *field) cumulative(t *testing.T) {
	f.p.will("f15", play{raw: anthropicAnswer(`{"input_tokens":100,"output_tokens":1}`, `{"output_tokens":20}`, `{"output_tokens":55}`)})
	if got := f.ask(t, "f15", true); got.usage == nil || got.usage.Prompt != 100 || got.usage.Completion != 55 {
		t.Errorf("%s", got.body)
	}
	if r := f.row(t, "f15"); r.Tokens.Input != 100 || r.Tokens.Output != 55 {
		t.Errorf("books: %+v", r)
	}
}

// A zero that the provider states is a zero, not a gap to be estimated.
func (f *field) zero(t *testing.T) {
	f.p.will("f17", play{raw: stream(role("f17", ""), delta("f17", "a", ""), delta("f17", "b", ""), delta("f17", "c", ""), delta("f17", "d", ""),
		finish("f17", ""), total("f17", 0, 0), "[DONE]")})
	if got := f.ask(t, "f17", true); got.usage == nil || *got.usage != (wantUsage{}) || got.gateway.Estimated || got.gateway.Cost != "0" {
		t.Errorf("%s", got.body)
	}
	if r := f.row(t, "f17"); r.Requests != 1 || r.Estimated != 0 || r.Tokens.Input+r.Tokens.Output+r.Cost != 0 {
		t.Errorf("books: %+v", r)
	}
}

// Usage that the Responses API nests is the same row as chat's.
func (f *field) nested(t *testing.T) {
	if f.missing["responses"] {
		t.Skip("the sidecar has no responses yet")
	}
	created := `{"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","status":"in_progress","output":[],"model":"m"}}`
	item := `{"type":"message","id":"i1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hello","annotations":[]}]}`
	f.p.will("f18", play{raw: anthropicEvents(created,
		`{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"message","id":"i1","role":"assistant","status":"in_progress","content":[]}}`,
		`{"type":"response.output_text.delta","sequence_number":2,"item_id":"i1","output_index":0,"content_index":0,"delta":"hello"}`,
		`{"type":"response.completed","sequence_number":3,"response":{"id":"r1","object":"response","status":"completed","model":"m","output":[`+item+`],`+
			`"usage":{"input_tokens":700,"input_tokens_details":{"cached_tokens":600},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":750}}}`)})
	got := f.do(t, "/v1/responses", responsesBody(&fixture{Stream: true}, "f18", false))
	readResponses(t, got)
	if !got.done || got.usage == nil || got.usage.Prompt != 700 || got.usage.Cached != 600 {
		t.Errorf("%s", got.body)
	}
	f.p.will("f18-chat", play{raw: stream(role("f18-chat", ""), delta("f18-chat", "hello", ""), finish("f18-chat", ""),
		piece("f18-chat", `"choices":[],"usage":{"prompt_tokens":700,"completion_tokens":50,"total_tokens":750,"prompt_tokens_details":{"cached_tokens":600}}`), "[DONE]")})
	f.ask(t, "f18-chat", true)
	if a, b := f.row(t, "f18"), f.row(t, "f18-chat"); a != b || a.Tokens.Read != 600 || a.Tokens.Input != 100 || a.Tokens.Output != 50 {
		t.Errorf("responses %+v, chat %+v", a, b)
	}
}

// A body of the provider's own dialect passes as it is, the model's name aside.
func (f *field) exact(t *testing.T) {
	f.p.will("f30", play{raw: anthropicAnswer(`{"input_tokens":9,"output_tokens":1}`, `{"output_tokens":5}`)})
	body := `{"model": "f30",  "stream":true,"max_tokens":64, "x_unknown" : {"deep":[1, 2.50,1e+2]},` +
		`"system":[{"type":"text","text":"One."},{"type":"text","text":"Two \u003c\/b>","cache_control":{"type":"ephemeral","ttl":"1h"}}],` +
		`"messages":[{"role":"user","content":"hi  there"},{"role":"assistant","content":[` +
		`{"type":"thinking","thinking":"hm \u003cb\u003e 🙂","signature":"Ab+/cd=="},` +
		`{"type":"tool_use","id":"toolu_1","name":"look","input":{"big":12345678901234567890,"huge":1e400,"tiny":-0.0,"a":1,"a":2}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok"}]}],` +
		`"tools":[{"name":"look","input_schema":{"type":"object"}}]}`
	got := f.do(t, "/v1/messages", body)
	readMessages(t, got)
	if got.status != 200 || !got.done {
		t.Fatalf("%d %s", got.status, got.body)
	}
	want := strings.Replace(body, `"f30"`, `"claude-sonnet-4-5"`, 1)
	if sent := string(f.p.requests("f30")[0].body); sent != want {
		t.Errorf("sent\n%s\nwant\n%s", sent, want)
	}
}

// F20: a deployment without a price is refused when it is configured, with its line; one that may be unpriced is
// counted where it is used.
func TestNoPrice(t *testing.T) {
	f := newField(t)
	org, _ := organisation([]target{{"bare", "http://127.0.0.1:1", deployment{"openai", "fx", "", plainSecret}}}, nil)
	org = strings.Replace(org, ", price: fx", "", 1)
	file := filepath.Join(t.TempDir(), "org.yaml")
	if err := os.WriteFile(file, []byte(org), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(binaries, "quotad"), "apply", "-f", file, "--addr", "http://"+f.admin).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "org.yaml:") || !strings.Contains(string(out), "price") {
		t.Errorf("%v: %s", err, out)
	}
}
