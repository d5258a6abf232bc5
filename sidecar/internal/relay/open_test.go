package relay

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// once answers each request of each connection with the same bytes, then closes if the answer needs that.
func once(answer string, closes bool) func(p *peer) {
	return func(p *peer) {
		for p.request() != nil {
			p.send(answer)
			if closes {
				return
			}
		}
	}
}

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func TestOpenComplete(t *testing.T) {
	const good = `{"text":"hi","usage":{"completion_tokens":5}}`
	for _, tc := range []struct {
		name, answer string
		closes       bool
		want         string
		kind         exchange.FailureKind
		text         string
	}{
		{"content length", plain(200, "application/json", good), false, good, 0, ""},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + part(good[:9]) + part(good[9:]) + lastPart,
			false, good, 0, ""},
		{"until close", "HTTP/1.1 200 OK\r\n\r\n" + good, true, good, 0, ""},
		{"http 1.0", "HTTP/1.0 200 OK\r\n\r\n" + good, true, good, 0, ""},
		{"interim answers", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" +
			plain(200, "application/json", good), false, good, 0, ""},
		{"blank lines first", plain(200, "application/json", "\r\n\n  \n"+good), false, good, 0, ""},
		{"byte order mark", plain(200, "application/json", "\xef\xbb\xbf"+good), false, good, 0, ""},
		{"gzip", strings.Replace(plain(200, "application/json", zipped(good)), "\r\nX-Code", "\r\nContent-Encoding: gzip\r\nX-Code", 1),
			false, good, 0, ""},
		{"long head", "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 20<<10) + "\r\nContent-Length: 45\r\n\r\n" + good,
			false, good, 0, ""},

		{"empty", plain(200, "application/json", ""), false, "", exchange.FailInvalid, "empty"},
		{"blank", plain(200, "application/json", " \r\n\r\n"), false, "", exchange.FailInvalid, "empty"},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", false, "", exchange.FailInvalid, "empty"},
		{"html", plain(200, "text/html", "<html>"), false, "", exchange.FailInvalid, "web page"},
		{"html labelled as json", plain(200, "application/json", "\n<!doctype html>"), false, "", exchange.FailInvalid, "web page"},
		{"not json", plain(200, "application/json", "{"), false, "", exchange.FailInvalid, "not JSON"},
		{"error in a 200", plain(200, "application/json", `{"error":"busy"}`), false, "", exchange.FailOverloaded, "busy"},
		{"unknown encoding", "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx", false, "",
			exchange.FailInvalid, "encoding"},
		{"broken gzip", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n01234567890123456789", false, "",
			exchange.FailInvalid, "gzip"},
		{"short content length", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", true, "", exchange.FailCut, "early"},
		{"cut in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{}", true, "", exchange.FailCut, "early"},
		{"cut between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + part("{}"), true, "", exchange.FailCut, "early"},
		{"malformed chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", false, "", exchange.FailInvalid, "framing"},
		{"not http", "SSH-2.0-OpenSSH_9\r\n\r\n", true, "", exchange.FailInvalid, "not HTTP"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", true, "", exchange.FailInvalid, "not HTTP"},
		{"endless head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", headBytesMax+100), true, "", exchange.FailInvalid, "not HTTP"},
		{"interim without end", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20), true, "", exchange.FailInvalid, "interim"},
		{"switched protocols", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", true, "", exchange.FailInvalid, "status"},
		{"closed before the answer", "", true, "", exchange.FailConnect, "before its answer"},
		{"closed inside the head", "HTTP/1.1 200 OK\r\nContent-", true, "", exchange.FailConnect, "before its answer"},

		{"server error", plain(503, "application/json", `{"m":1}`), false, "", exchange.FailOverloaded, `{"m":1}`},
		{"request error", plain(400, "application/json", "bad"), false, "", exchange.FailRequest, "bad"},
		{"error without body", plain(500, "application/json", ""), false, "", exchange.FailOverloaded, ""},
		{"error cut short", "HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\nhalf", true, "", exchange.FailOverloaded, "half"},
		{"gzipped error", "HTTP/1.1 500 X\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + zipped("why"), true, "",
			exchange.FailOverloaded, "why"},
		{"redirect", "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", false, "",
			exchange.FailRequest, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(tc.answer, tc.closes))
			c := newClient(t, Config{})
			ans, f := open(c, nil, u.url, false)
			if tc.kind != exchange.FailNone {
				wantKind(t, f, tc.kind, tc.text)
				if ans == nil || ans.Body != nil || ans.Stream != nil || !ans.Sent {
					t.Fatalf("got answer %+v beside the failure", ans)
				}
				return
			}
			if f != nil {
				t.Fatalf("got failure %+v", f)
			}
			if string(ans.Body) != tc.want || ans.Status != 200 || ans.Usage.Output != 5 || ans.FirstToken <= 0 {
				t.Fatalf("got %q, %+v", ans.Body, ans)
			}
		})
	}
}

func TestFailureCarriesStatusAndHeaders(t *testing.T) {
	u := serve(t, once(strings.Replace(plain(429, "application/json", "slow"), "\r\nX-Code", "\r\nrequest-id: r9\r\nX-Code", 1), false))
	ans, f := open(newClient(t, Config{}), nil, u.url, true)
	wantKind(t, f, exchange.FailRequest, "slow")
	if f.Status != 429 || f.Code != "c7" || ans.Status != 429 || ans.UpstreamRequestID != "r9" {
		t.Fatalf("got %+v, %+v", f, ans)
	}
}

func TestRequestOnTheWire(t *testing.T) {
	got := make(chan string, 1)
	u := serve(t, func(p *peer) {
		r := p.request()
		if r == nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		got <- strings.Join([]string{
			r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"), r.Header.Get("Accept-Encoding"),
			r.Header.Get("Content-Type"), r.Header.Get("User-Agent"), r.Header.Get("Connection"), string(body[:10]),
		}, "|")
		p.send(plain(200, "application/json", `{"n":1}`))
	})
	c := newClient(t, Config{})
	call := adapter.Call{
		Path: "/chat/completions?api-version=1", Body: bytes.Repeat([]byte("0123456789"), 5000),
		Header: []adapter.Field{
			{Name: "Authorization", Value: "Bearer k"}, {Name: "host", Value: "evil"}, {Name: "Connection", Value: "close"},
			{Name: "Content-Length", Value: "3"}, {Name: "transfer-encoding", Value: "chunked"},
		},
	}
	base := strings.Replace(u.url, "/v1", "/open%2Fai/v1/", 1)
	_, f := c.Open(&Canceller{}, Upstream{BaseURL: base, Timeouts: testTimeouts}, call, false, dialect{}, &exchange.Request{}, noNote)
	if f != nil {
		t.Fatalf("got %+v", f)
	}
	host := strings.TrimPrefix(strings.TrimSuffix(u.url, "/v1"), "http://")
	want := "POST|/open%2Fai/v1/chat/completions?api-version=1|" + host + "|Bearer k|identity|application/json|sluice||0123456789"
	if s := <-got; s != want {
		t.Fatalf("got  %s\nwant %s", s, want)
	}
}

func TestUnsendable(t *testing.T) {
	for _, tc := range []struct {
		name, base string
		call       adapter.Call
		kind       exchange.FailureKind
	}{
		{"value with a line end", "http://127.0.0.1:1", adapter.Call{Path: "/x", Header: []adapter.Field{{Name: "A", Value: "b\r\nC: d"}}}, exchange.FailRequest},
		{"name with a colon", "http://127.0.0.1:1", adapter.Call{Path: "/x", Header: []adapter.Field{{Name: "A:", Value: "b"}}}, exchange.FailRequest},
		{"path with a space", "http://127.0.0.1:1", adapter.Call{Path: "/x HTTP/1.1"}, exchange.FailRequest},
		{"path without a slash", "http://127.0.0.1:1", adapter.Call{Path: "x"}, exchange.FailRequest},
		{"scheme", "ftp://h", adapter.Call{Path: "/x"}, exchange.FailNotFound},
		{"no host", "http:///v1", adapter.Call{Path: "/x"}, exchange.FailNotFound},
		{"user", "http://u:p@h/v1", adapter.Call{Path: "/x"}, exchange.FailNotFound},
		{"not a URL", "http://h:x:y", adapter.Call{Path: "/x"}, exchange.FailNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ans, f := newClient(t, Config{}).Open(&Canceller{}, Upstream{BaseURL: tc.base, Timeouts: testTimeouts}, tc.call,
				false, dialect{}, &exchange.Request{}, noNote)
			wantKind(t, f, tc.kind, "")
			if ans.Sent {
				t.Fatal("something was sent")
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	u := serve(t, func(*peer) {})
	u.ln.Close()
	ans, f := open(newClient(t, Config{}), nil, u.url, false)
	wantKind(t, f, exchange.FailConnect, "no connection")
	if ans.Sent {
		t.Fatal("something was sent")
	}
}

func TestBodyCap(t *testing.T) {
	for name, answer := range map[string]string{
		"plain": plain(200, "application/json", `{"a":"`+strings.Repeat("x", 100)+`"}`),
		"gzip": "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\n\r\n" +
			zipped(`{"a":"`+strings.Repeat("x", 100)+`"}`),
		"a claim alone": "HTTP/1.1 200 OK\r\nContent-Length: 900000000000\r\n\r\n" + strings.Repeat("x", 101),
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, once(answer, name == "gzip"))
			_, f := open(newClient(t, Config{BodyBytesMax: 100}), nil, u.url, false)
			wantKind(t, f, exchange.FailInvalid, "larger than 100")
		})
	}
}

func TestLargeErrorIsCut(t *testing.T) {
	u := serve(t, once(plain(500, "text/plain", strings.Repeat("x", errorBytesMax+10)), false))
	_, f := open(newClient(t, Config{}), nil, u.url, false)
	wantKind(t, f, exchange.FailOverloaded, "xxx")
	if len(f.Message) != errorBytesMax {
		t.Fatalf("got %d bytes", len(f.Message))
	}
}

// What a stream request may be answered with, up to the first token.
func TestOpenStream(t *testing.T) {
	text := role + hello + finish + usage + done
	want := role + hello + finish + event(`{"usage":7}`) + done
	label := func(ct, body string) string {
		return "HTTP/1.1 200 OK\r\nContent-Type: " + ct + "\r\nTransfer-Encoding: chunked\r\n\r\n" + part(body) + lastPart
	}
	for _, tc := range []struct {
		name, answer string
		closes       bool
		want         string
		kind         exchange.FailureKind
		text         string
	}{
		{"labelled", label("text/event-stream; charset=utf-8", text), false, want, 0, ""},
		{"labelled text", label("text/plain", text), false, want, 0, ""},
		{"labelled octets", label("application/octet-stream", text), false, want, 0, ""},
		{"labelled json", label("application/json", text), false, want, 0, ""},
		{"no label", "HTTP/1.1 200 OK\r\n\r\n" + text, true, want, 0, ""},
		{"byte order mark", label("text/plain", "\xef\xbb\xbf"+text), false, want, 0, ""},
		{"crlf and comments", label("text/event-stream", ": hi\r\n\r\n"+strings.ReplaceAll(text, "\n", "\r\n")), false, want, 0, ""},
		{"blank lines first", label("application/octet-stream", "\n\n\n: c\n\n"+text), false, want, 0, ""},
		{"done without blank line", label("text/event-stream", strings.TrimRight(text, "\n")), false, want, 0, ""},
		{"no done", label("text/event-stream", role+hello+finish+usage), false, want, 0, ""},
		{"no token at all", label("text/event-stream", role+finish+usage+done), false, role + finish + event(`{"usage":7}`) + done, 0, ""},
		{"gzip", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" +
			part(zipped(text)) + lastPart, false, want, 0, ""},
		{"json", plain(200, "application/json", `{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},`+
			`"finish_reason":"length"}],"usage":{"completion_tokens":3}}`), false,
			event(`{"object":"chat.completion.chunk","id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}],"usage":null}`) +
				event(`{"object":"chat.completion.chunk","id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}`) +
				event(`{"object":"chat.completion.chunk","id":"c1","model":"m","choices":[],"usage":{"completion_tokens":3}}`) + done, 0, ""},

		{"json error", plain(200, "application/json", "\n{\"error\":\"busy\"}"), false, "", exchange.FailOverloaded, "busy"},
		{"broken json", plain(200, "application/json", "{"), false, "", exchange.FailInvalid, "not JSON"},
		{"html", plain(200, "text/html", "<html>"), false, "", exchange.FailInvalid, "web page"},
		{"html labelled as text", plain(200, "text/plain", "<html>"), false, "", exchange.FailInvalid, "web page"},
		{"zero bytes", label2("text/event-stream"), false, "", exchange.FailInvalid, "empty"},
		{"zero bytes, no label", "HTTP/1.1 200 OK\r\n\r\n", true, "", exchange.FailInvalid, "empty"},
		{"comments alone", label("text/event-stream", ": a\n\n: b\n\n"), false, "", exchange.FailInvalid, "empty"},
		{"error first", label("text/event-stream", event(`{"error":"busy"}`)+done), false, "", exchange.FailOverloaded, "busy"},
		{"named error first", label("text/event-stream", "event: error\ndata: {\"error\":\"busy\"}\n\n"), false, "", exchange.FailOverloaded, "busy"},
		{"error after the role", label("text/event-stream", role+event(`{"error":"busy"}`)), false, "", exchange.FailOverloaded, "busy"},
		{"bare error line", label("text/event-stream", role+`{"error":"busy"}`+"\n"), false, "", exchange.FailOverloaded, "busy"},
		{"end after the role", label("text/event-stream", role), false, "", exchange.FailCut, "no finish"},
		{"cut after the role", sseHead + part(role), true, "", exchange.FailCut, "early"},
		{"malformed after the role", sseHead + part(role) + "zz\r\n", false, "", exchange.FailInvalid, "framing"},
		{"rate limited", plain(429, "application/json", "slow"), false, "", exchange.FailRequest, "slow"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := serve(t, once(tc.answer, tc.closes))
			ans, f := open(newClient(t, Config{}), nil, u.url, true)
			if tc.kind != exchange.FailNone {
				wantKind(t, f, tc.kind, tc.text)
				if ans.Stream != nil || ans.Body != nil {
					t.Fatalf("got answer %+v beside the failure", ans)
				}
				return
			}
			if f != nil {
				t.Fatalf("got failure %+v", f)
			}
			if ans.FirstToken <= 0 {
				t.Fatal("no first-token time")
			}
			got := play(ans.Stream)
			if got.text != tc.want || got.err != nil {
				t.Fatalf("got %q, %v\nwant %q", got.text, got.err, tc.want)
			}
			if len(got.ends) != 1 || got.final.Status != StatusOK || got.final.Failure != nil {
				t.Fatalf("got outcomes %+v", got.ends)
			}
		})
	}
}

// label2 is an empty chunked stream.
func label2(ct string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: " + ct + "\r\nTransfer-Encoding: chunked\r\n\r\n" + lastPart
}

func TestHeldBytesAreBounded(t *testing.T) {
	u := serve(t, func(p *peer) {
		if p.request() == nil {
			return
		}
		p.send(sseHead)
		for {
			if _, err := io.WriteString(p, part(strings.Repeat(role, 1000))); err != nil {
				return
			}
		}
	})
	_, f := open(newClient(t, Config{}), nil, u.url, true)
	wantKind(t, f, exchange.FailInvalid, "no token")
}

func TestEventCap(t *testing.T) {
	u := serve(t, once(whole(event(`{"t":"`+strings.Repeat("x", 200)+`"}`)), false))
	_, f := open(newClient(t, Config{EventBytesMax: 100}), nil, u.url, true)
	wantKind(t, f, exchange.FailInvalid, "too large")
}

func TestUsageOfAFailedStreamIsKept(t *testing.T) {
	u := serve(t, once(whole(usage, role, event(`{"error":"busy"}`)), false))
	ans, f := open(newClient(t, Config{}), nil, u.url, true)
	wantKind(t, f, exchange.FailOverloaded, "busy")
	if ans.Usage.Output != 7 {
		t.Fatalf("got usage %+v", ans.Usage)
	}
}

func TestPanicOfAnAdapterInOpen(t *testing.T) {
	gone := make(chan error, 1)
	u := serve(t, func(p *peer) {
		if p.request() != nil {
			p.send(sseHead, part(event("panic")))
			gone <- p.gone()
		}
	})
	c := newClient(t, Config{})
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("no panic")
			}
		}()
		open(c, nil, u.url, true)
	}()
	if err := <-gone; err == nil {
		t.Fatal("the connection is still there")
	}
}

// An adapter that panics over a complete answer must not take the connection with it: it may serve another by then.
func TestPanicAfterTheAnswerLeavesThePoolAlone(t *testing.T) {
	u := serve(t, once(plain(200, "application/json", `{"panic":1}`), false))
	c := newClient(t, Config{})
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			open(c, nil, u.url, false)
		}()
	}
	if n := u.accepted(); n != 1 {
		t.Fatalf("got %d connections, want 1", n)
	}
}
