package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestRefusalsInTheCallersDialect: what no route serves is refused in the words of the client that asked.
func TestRefusalsInTheCallersDialect(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, nil)
	r.key = ""
	anthropic := []string{"anthropic-version", "2023-06-01"}
	for name, c := range map[string]struct {
		method, path string
		header       []string
		status       int
		kind         string // Anthropic's; "" for OpenAI's dialect
	}{
		"batches":                      {"POST", "/v1/messages/batches", nil, 404, "not_found_error"},
		"batches, by version":          {"GET", "/v1/files", anthropic, 404, "not_found_error"},
		"by key":                       {"GET", "/v1/files", []string{"x-api-key", appKey}, 404, "not_found_error"},
		"stored responses":             {"GET", "/v1/responses/resp_1", []string{"x-api-key", appKey}, 404, ""},
		"responses, not posted":        {"GET", "/v1/responses", anthropic, 405, ""},
		"no hint":                      {"GET", "/", nil, 404, ""},
		"nearly messages":              {"GET", "/v1/messagesx", nil, 404, ""},
		"a wrong method is the path's": {"GET", "/v1/chat/completions", anthropic, 405, ""},
		"no model's name":              {"GET", "/v1/models/", nil, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.send(c.method, c.path, `{}`, c.header...)
			if a.status != c.status || a.header.Get("x-should-retry") != "false" || a.header.Get("x-request-id") == "" {
				t.Errorf("%d %v", a.status, a.header)
			}
			message := a.get("error.message").Str
			path, _, _ := strings.Cut(c.path, "?")
			if !strings.Contains(message, "not served") || !strings.Contains(message, path) || !strings.Contains(message, c.method) {
				t.Errorf("message %q", message)
			}
			if c.kind == "" {
				if a.get("type").Exists() || a.get("error.type").Str != "invalid_request_error" || a.get("error.code").Str == "" ||
					!a.get("error.param").Exists() {
					t.Errorf("not OpenAI's: %s", a.body)
				}
				return
			}
			if a.get("type").Str != "error" || a.get("error.type").Str != c.kind || a.get("error.details.error_code").Str != "unknown_route" ||
				a.get("request_id").Str != a.header.Get("x-request-id") || a.header.Get("request-id") != a.header.Get("x-request-id") {
				t.Errorf("not Anthropic's: %s", a.body)
			}
		})
	}
}

// TestWrongBaseURL: a base URL with /v1 once too often, or not at all, is told of; no other unknown path is.
func TestWrongBaseURL(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/v1/messages":     ": the base URL of Anthropic's SDKs has no /v1, which they add themselves",
		"/chat/completions":   ": the base URL ends in /v1",
		"/models/gpt":         ": the base URL ends in /v1",
		"/v1/v1/v1/messages":  "",
		"/v1/completions":     "",
		"/v2/chat/completion": "",
	} {
		no := notServed("POST", path)
		if got := "POST " + path + " is not served by this gateway" + want; no.message != got {
			t.Errorf("%q, want %q", no.message, got)
		}
	}
}

func TestAnthropicTypes(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		405: "invalid_request_error", 408: "timeout_error", 413: "request_too_large", 429: "rate_limit_error",
		431: "invalid_request_error", 500: "api_error", 503: "api_error", 504: "timeout_error",
	} {
		if got := (&refusal{status: status}).anthropicType(); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
}

// TestKeyBeforeBody: a stranger learns nothing from what it sends.
func TestKeyBeforeBody(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, nil)
	for name, body := range map[string]string{
		"no JSON": `{`, "no model": `{}`, "unknown alias": `{"model":"x","messages":[{"role":"user","content":"a"}]}`, "good": hello,
	} {
		t.Run(name, func(t *testing.T) {
			r.key = "sk-wrong"
			if a := r.chat(body); a.status != 401 || a.get("error.code").Str != "invalid_api_key" {
				t.Errorf("wrong key: %d %s", a.status, a.body)
			}
			r.key = ""
			if a := r.chat(body, "Content-Encoding", "br"); a.status != 401 {
				t.Errorf("no key: %d %s", a.status, a.body)
			}
			r.key = appKey
			want := map[string]int{"no JSON": 400, "no model": 400, "unknown alias": 404, "good": 200}[name]
			if a := r.chat(body); a.status != want {
				t.Errorf("good key: %d %s", a.status, a.body)
			}
		})
	}
}

// TestStrangersFillNoMemory: the body of a caller whose key is not known is read up to 1 MiB. The rest need not come for
// the answer.
func TestStrangersFillNoMemory(t *testing.T) {
	r := newRig(t, []*provider{{id: "a", answer: fine}}, nil)
	part := strings.Repeat("x", strangerBodyMax+1)
	for name, rest := range map[string]string{
		"said to be long": "Content-Length: 30000000\r\n\r\n",
		"chunked":         fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(part), part),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			r.must(err)
			defer func() { _ = c.Close() }()
			_, err = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-nobody\r\n"+rest)
			r.must(err)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			r.must(err)
			_ = resp.Body.Close()
			if resp.StatusCode != 401 {
				t.Errorf("status %d, want 401", resp.StatusCode)
			}
		})
	}
	body := strings.Replace(hello, "{", `{"metadata":{"pad":"`+part+`"},`, 1)
	if a := r.chat(body); a.status != 200 {
		t.Errorf("with a good key: %d %s", a.status, a.body)
	}
}
