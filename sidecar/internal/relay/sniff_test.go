package relay

import (
	"io"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestSniffing: what the answer to a stream request is shows in its bytes, however they are cut, where no label tells.
func TestSniffing(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	events := strings.ReplaceAll(role+hello+finish+usage+done, "\r", "")
	array := `[{"role":"assistant"}` + "\n,\r\n" + `{"t":"hello"},{"finish":"stop"},{"usage":7}]` + "\n"
	lines := `{"role":"assistant"}` + "\n" + `{"t":"hello"}` + "\r\n" + `{"finish":"stop"}` + "\n\n" + `{"usage":7}`
	const answer = `{"id":"c1","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`
	streamed := role + hello + finish + event(`{"usage":7}`) + done
	replayed := event(`{"object":"chat.completion.chunk","id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}],"usage":null}`) +
		event(`{"object":"chat.completion.chunk","id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`) + done
	for _, tc := range []struct {
		name, label, body string
		want              string
		kind              exchange.FailureKind
		text              string
	}{
		{"array", "application/json; charset=UTF-8", array, streamed, 0, ""},
		{"array behind a mark", "application/json", " " + mark + "\n" + array, streamed, 0, ""},
		{"array that is not closed", "application/json", strings.TrimRight(array, "]\n"), streamed, 0, ""},
		{"lines", "application/x-ndjson", lines, streamed, 0, ""},
		{"lines behind a mark", "application/x-ndjson", mark + lines, streamed, 0, ""},
		{"lines labelled as one document", "application/json", lines, streamed, 0, ""},
		{"lines without a label", "text/plain", mark + lines, streamed, 0, ""},
		{"one document", "application/json", "\n\n" + answer + "\n", replayed, 0, ""},
		{"one document behind a mark", "application/json", mark + answer, replayed, 0, ""},
		{"one document labelled as text", "text/plain", answer, replayed, 0, ""},
		{"bare CR", "text/event-stream", strings.ReplaceAll(events, "\n", "\r"), streamed, 0, ""},
		{"bare CR behind a mark, no label", "text/plain", mark + strings.ReplaceAll(events, "\n", "\r"), streamed, 0, ""},
		{"CRLF", "application/octet-stream", strings.ReplaceAll(events, "\n", "\r\n"), streamed, 0, ""},
		{"labelled events behind a mark", "text/event-stream", mark + events, streamed, 0, ""},

		{"error in an array", "application/json", `[{"error":"busy"}]`, "", exchange.FailOverloaded, "busy"},
		{"error in a line", "application/x-ndjson", `{"error":"busy"}`, "", exchange.FailOverloaded, "busy"},
		{"error behind a mark", "application/json", mark + `{"error":"busy"}`, "", exchange.FailOverloaded, "busy"},
		{"empty array", "application/json", "[]", "", exchange.FailInvalid, "empty"},
		{"array cut in an object", "application/json", `[{"role":"assistant"},{"t"`, "", exchange.FailCut, "inside an event"},
		{"array without a finish", "application/json", `[{"role":"assistant"}]`, "", exchange.FailCut, "no finish"},
		{"no objects", "application/json", `["hello"]`, "", exchange.FailInvalid, "no sequence"},
		{"object and text", "application/json", answer + "\nOK", "", exchange.FailInvalid, "no sequence"},
		{"web page behind a mark", "text/plain", mark + "<html>", "", exchange.FailInvalid, "web page"},
		{"a mark alone", "text/plain", mark, "", exchange.FailInvalid, "empty"},
	} {
		for cut, parts := range map[string][]string{"whole": {tc.body}, "bytes": bytewise(tc.body)} {
			t.Run(tc.name+"/"+cut, func(t *testing.T) {
				u := serve(t, func(p *peer) {
					if p.request() == nil {
						return
					}
					p.send("HTTP/1.1 200 OK\r\nContent-Type: " + tc.label + "\r\nTransfer-Encoding: chunked\r\n\r\n")
					for _, s := range parts {
						p.send(part(s))
					}
					p.send(lastPart)
					p.gone()
				})
				ans, f := open(newClient(t, Config{}), nil, u.url, true)
				if tc.kind != exchange.FailNone {
					wantKind(t, f, tc.kind, tc.text)
					return
				}
				if f != nil {
					t.Fatalf("got failure %+v", f)
				}
				if got := play(ans.Stream); got.text != tc.want || got.err != nil || got.final.Status != StatusOK {
					t.Fatalf("got %q, %+v\nwant %q", got.text, got.final, tc.want)
				}
			})
		}
	}
}

// bytewise cuts a text into its bytes.
func bytewise(s string) []string {
	out := make([]string, len(s))
	for i := range out {
		out[i] = s[i : i+1]
	}
	return out
}

// TestObjectsAreNotHeldBack: an element of an array and a line reach the caller before the next one exists.
func TestObjectsAreNotHeldBack(t *testing.T) {
	for label, parts := range map[string][]string{
		"application/json":     {`[{"t":"hello"}`, `,{"t":"world"}`, `,{"finish":"stop"}]`},
		"application/x-ndjson": {`{"t":"hello"}`, "\n" + `{"t":"world"}`, "\n" + `{"finish":"stop"}` + "\n"},
	} {
		t.Run(label, func(t *testing.T) {
			seen := make(chan bool)
			u := serve(t, func(p *peer) {
				if p.request() == nil {
					return
				}
				p.send("HTTP/1.1 200 OK\r\nContent-Type: " + label + "\r\nTransfer-Encoding: chunked\r\n\r\n")
				for i, s := range parts {
					if p.send(part(s)); i < 2 {
						<-seen
					}
				}
				p.send(lastPart)
				p.gone()
			})
			s := mustStream(t, newClient(t, Config{}), u.url)
			buf := make([]byte, len(hello))
			for range 2 {
				if _, err := io.ReadFull(s, buf); err != nil {
					t.Fatal(err)
				}
				seen <- true
			}
			if rest, err := io.ReadAll(s); err != nil || !strings.HasSuffix(string(rest), done) {
				t.Fatalf("got %q, %v", rest, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCapOfObjects: the cap of one event holds for objects too, and that of an answer for what may be one.
func TestCapOfObjects(t *testing.T) {
	for label, body := range map[string]string{
		"application/x-ndjson": `{"t":"` + strings.Repeat("x", 200) + `"}`,
		"application/json":     `{"role":"a"}{"t":"` + strings.Repeat("x", 200) + `"}`,
	} {
		t.Run(label, func(t *testing.T) {
			u := serve(t, once(plain(200, label, body), false))
			_, f := open(newClient(t, Config{EventBytesMax: 100}), nil, u.url, true)
			wantKind(t, f, exchange.FailInvalid, "too large")
		})
	}
	u := serve(t, once(plain(200, "application/json", `{"t":"`+strings.Repeat("x", 200)+`"}`), false))
	_, f := open(newClient(t, Config{BodyBytesMax: 100}), nil, u.url, true)
	wantKind(t, f, exchange.FailInvalid, "too large")
}
