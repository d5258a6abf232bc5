package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// restPaths are all REST paths, with names that exist, and a body that is good where one is needed.
var restPaths = []struct{ method, path, body string }{
	{"POST", "/admin/v1/config:apply", `{"yaml":"version: 1\n"}`},
	{"GET", "/admin/v1/config", ""},
	{"GET", "/admin/v1/history", ""},
	{"POST", "/admin/v1/config:rollback", `{"version":"1"}`},
	{"POST", "/admin/v1/keys", `{"id":"k","team":"red"}`},
	{"GET", "/admin/v1/keys", ""},
	{"POST", "/admin/v1/keys/red-app:revoke", `{}`},
	{"GET", "/admin/v1/credentials", ""},
	{"GET", "/admin/v1/budgets", ""},
	{"GET", "/admin/v1/budgets/red/runs", ""},
	{"GET", "/admin/v1/pools", ""},
	{"POST", "/admin/v1/budgets/red:credit", `{"amount_nano":"1","reason":"r"}`},
	{"PUT", "/admin/v1/budgets/red", `{"monthly":1}`},
	{"PUT", "/admin/v1/aliases/chat", `{"targets":[{"deployment":"d"}]}`},
	{"PUT", "/admin/v1/prices/p2", `{"valid_from":"2027-01-01","per_million_usd":{"mid":{"input":1,"output":2}}}`},
	{"GET", "/admin/v1/usage", ""},
	{"GET", "/admin/v1/status", ""},
	{"GET", "/admin/v1/members", ""},
	{"POST", "/admin/v1/members", `{"id":"b","raft_address":"b:1","sidecar_address":"b:2","admin_address":"b:3"}`},
	{"POST", "/admin/v1/members/b:remove", `{}`},
}

func TestRESTPathsAreAll(t *testing.T) {
	r := newREST(nil)
	if len(r.rules) != len(restPaths) {
		t.Errorf("the service has %d paths, the tests know %d", len(r.rules), len(restPaths))
	}
	for _, p := range restPaths {
		req := httptest.NewRequest(p.method, p.path, nil)
		if rule, _ := r.find(req); rule == nil {
			t.Errorf("%s %s is not a path of the service", p.method, p.path)
		}
	}
}

// odd makes a call, and checks that its refusal has the shape of all others and names one of want. It
// returns the headers.
func (p *plane) odd(method, path, body string, header map[string]string, status int, want ...string) http.Header {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctxFor(p.t), method, p.url+path, strings.NewReader(body))
	must(p.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(p.t, err)
	if resp.StatusCode != status {
		p.t.Errorf("%s %s: status %d, want %d: %.200s", method, path, resp.StatusCode, status, b)
	}
	var v struct {
		Number  uint32 `json:"code"`
		Message string `json:"message"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.Number == 0 || v.Message == "" || resp.Header.Get("Content-Type") != "application/json" {
		p.t.Errorf("%s %s: not a refusal as JSON (%s): %.200s", method, path, resp.Header.Get("Content-Type"), b)
	}
	if len(want) > 0 && !slices.ContainsFunc(want, func(w string) bool { return strings.Contains(v.Message, w) }) {
		p.t.Errorf("%s %s: the message names none of %q: %s", method, path, want, v.Message)
	}
	return resp.Header
}

// TestRESTWithOddInput walks every path with what callers get wrong: each time they are told so.
func TestRESTWithOddInput(t *testing.T) {
	p := newPlane(t)
	version := p.apply(orgYAML).GetVersion()
	huge := `{"x":"` + strings.Repeat("x", readMax) + `"}`
	for _, r := range restPaths {
		t.Run(r.method+" "+r.path, func(t *testing.T) {
			p := &plane{t: t, url: p.url}
			for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
				other := slices.ContainsFunc(restPaths, func(o struct{ method, path, body string }) bool {
					return o.path == r.path && o.method == method
				})
				if !other {
					got := p.odd(method, r.path, "", nil, http.StatusMethodNotAllowed, r.method)
					if allow := got.Get("Allow"); !strings.Contains(allow, r.method) {
						t.Errorf("Allow: %q", allow)
					}
				}
			}
			if strings.Contains(r.path, "/aliases/") { // its name may hold slashes
				p.odd(r.method, r.path+"/", r.body, nil, http.StatusBadRequest, "chat/")
			} else {
				p.odd(r.method, r.path+"/", r.body, nil, http.StatusNotFound, r.path+"/")
				p.odd(r.method, r.path+"x/y", r.body, nil, http.StatusNotFound)
			}
			p.odd(r.method, strings.Replace(r.path, "v1", "v2", 1), r.body, nil, http.StatusNotFound)
			p.odd(r.method, r.path+"?teem=red", r.body, nil, http.StatusBadRequest, "teem")
			p.odd(r.method, r.path+"?connect=v1", r.body, nil, http.StatusBadRequest, "connect")
			p.odd(r.method, r.path+"?a=%zz", r.body, nil, http.StatusBadRequest, "query")
			if r.body == "" {
				p.odd(r.method, r.path, `{}`, nil, http.StatusBadRequest, "body")
				p.odd(r.method, r.path, huge, nil, http.StatusBadRequest, "body")
				return
			}
			for _, kind := range []string{
				"text/plain", "application/x-www-form-urlencoded", "application/grpc", "application/proto", "application/json; charset=latin1", "?",
			} {
				p.odd(r.method, r.path, r.body, map[string]string{"Content-Type": kind}, http.StatusUnsupportedMediaType, "application/json")
			}
			p.odd(r.method, r.path, r.body, map[string]string{"Content-Encoding": "gzip"}, http.StatusUnsupportedMediaType, "compressed")
			p.odd(r.method, r.path, huge, nil, http.StatusRequestEntityTooLarge, "longer than")
			for _, body := range []string{`{`, `[]`, `"x"`, `7`, `{"x":1}{`, `nil`, "\x00\xff", `{"no_such_field":1}`, strings.Repeat("[", 20_000)} {
				p.odd(r.method, r.path, body, nil, http.StatusBadRequest)
			}
		})
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 404, "/"},
		{"GET", "/admin/v1", "", 404, "/admin/v1"},
		{"POST", "/admin/v1/keys:revoke", `{}`, 404, "keys:revoke"},
		{"POST", "/admin/v1/keys/a/b:revoke", `{}`, 404, "a/b"},
		{"POST", "/admin/v1/keys/a%2Fb:revoke", `{}`, 404, "a/b"},
		{"POST", "/admin/v1/keys/:revoke", `{}`, 404, ":revoke"},
		{"POST", "/admin/v1/keys/red-app:revive", `{}`, 404, "revive"},
		{"POST", "/admin/v1/keys/%7Bid%7D:revoke", `{}`, 404, `no key "{id}"`},
		{"POST", "/admin/v1/keys/*:revoke", `{}`, 404, `no key "*"`},
		{"POST", "/admin/v1/keys/%20:revoke", `{}`, 404, `no key " "`},
		{"GET", "/admin/v1/keys?team=red&team=blue", "", 400, "team is there twice"},
		{"GET", "/admin/v1/usage?group_by=team&groupBy=team", "", 400, "group_by is there twice"},
		{"GET", "/admin/v1/history?limit=many", "", 400, "limit"},
		{"GET", "/admin/v1/history?limit=-1", "", 400, "limit"},
		{"GET", "/admin/v1/history?limit=99999999999", "", 400, "limit"},
		{"GET", "/admin/v1/history?limit=1.5", "", 400, "limit"},
		{"GET", "/admin/v1/config?kind=teams", "", 400, "teams"},
		{"GET", "/admin/v1/config?kind=team&id=x", "", 404, "x"},
		{"GET", "/admin/v1/usage?from=-1", "", 400, "from"},
		{"GET", "/admin/v1/usage?to=yesterday", "", 400, "to"},
		{"POST", "/admin/v1/keys", "", 400, "id: required"},
		{"POST", "/admin/v1/keys", `{"id":5}`, 400, "body: (line 1:7): invalid value for string field id: 5"},
		{"POST", "/admin/v1/keys", `{"id":null}`, 400, "id: required"},
		{"POST", "/admin/v1/keys", `{"id":"k","team":["red"]}`, 400, "team"},
		{"POST", "/admin/v1/keys", `{"id":"k","team":"red","rotate":"yes"}`, 400, "rotate"},
		{"POST", "/admin/v1/keys", `{"id":"k","id":"l"}`, 400, "id"},
		{"POST", "/admin/v1/config:apply", "", 400, "org.yaml"},
		{"POST", "/admin/v1/config:apply", `{"yaml":{}}`, 400, "yaml"},
		{"POST", "/admin/v1/config:rollback", "", 404, "version 0"},
		{"POST", "/admin/v1/config:rollback", `{"version":-1}`, 400, "version"},
		{"POST", "/admin/v1/config:rollback", `{"version":"x"}`, 400, "version"},
		{"POST", "/admin/v1/config:rollback", `{"version":1e99}`, 400, "version"},
		{"POST", "/admin/v1/budgets/red:credit", "", 400, "reason"},
		{"POST", "/admin/v1/budgets/red:credit", `{"amount_nano":0.5,"reason":"r"}`, 400, "amount"},
		{"POST", "/admin/v1/budgets/red:credit", `{"amount_nano":"-9223372036854775808","reason":"r"}`, 400, "amount"},
		{"PUT", "/admin/v1/budgets/red", "", 400, "monthly"},
		{"PUT", "/admin/v1/budgets/red", `null`, 400, ""},
		{"PUT", "/admin/v1/budgets/red", `{"monthly":-1}`, 400, "monthly"},
		{"PUT", "/admin/v1/budgets/red", `{"monthly":"much"}`, 400, "monthly"},
		{"PUT", "/admin/v1/budgets/red", `{"monthly":1e300}`, 400, "monthly"},
		{"PUT", "/admin/v1/budgets/red", `{"monthly":1,"hard":"sometimes"}`, 400, "hard"},
		{"PUT", "/admin/v1/aliases/chat", `{"targets":[{"deployment":"d","weight":-1}]}`, 400, "weight"},
		{"PUT", "/admin/v1/aliases/chat", `{"targets":[{"deployment":"d"}],"reserve":"sometimes"}`, 400, "reserve"},
		{"PUT", "/admin/v1/aliases/chat", `{"targets":"d"}`, 400, "targets"},
		{"PUT", "/admin/v1/prices/p2", `{"valid_from":5,"per_million_usd":{}}`, 400, "valid_from"},
		{"PUT", "/admin/v1/prices/p2", `{"valid_from":"2027-01-01","per_million_usd":{"mid":{"input":-1}}}`, 400, "input"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", tc.method, tc.path, tc.body), func(t *testing.T) {
			(&plane{t: t, url: p.url}).odd(tc.method, tc.path, tc.body, nil, tc.status, tc.want)
		})
	}
	if v := p.node.Status().ConfigVersion; v != version {
		t.Errorf("the configuration changed: version %d, was %d", v, version)
	}
}

// TestRESTTakesWhatIsMeantWell: spellings that differ and mean the same.
func TestRESTTakesWhatIsMeantWell(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	for _, tc := range []struct {
		method, path, body string
		header             map[string]string
	}{
		{"GET", "/admin/v1/usage?groupBy=team", "", nil},
		{"GET", "/admin/v1/status", "", map[string]string{"Content-Type": "text/plain"}}, // there is no content
		{"GET", "/admin/v1/status", "", map[string]string{"Connect-Protocol-Version": "1"}},
		{"GET", "/admin/v1/status", "", map[string]string{"X-Server-Timeout": "soon"}},
		{"PUT", "/admin/v1/budgets/red?actor=ann", `{"monthly":1}`, map[string]string{"Content-Type": "Application/JSON;charset=UTF-8"}},
		{"PUT", "/admin/v1/budgets/red", `{"monthly":2}`, map[string]string{"Content-Encoding": "identity", "Connect-Protocol-Version": "1"}},
		{"POST", "/admin/v1/keys/red-app:revoke", "", nil},
	} {
		t.Run(tc.path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(ctxFor(t), tc.method, p.url+tc.path, strings.NewReader(tc.body))
			must(t, err)
			for k, v := range tc.header {
				req.Header.Set(k, v)
			}
			resp, err := http.DefaultClient.Do(req)
			must(t, err)
			defer func() { _ = resp.Body.Close() }()
			if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || !json.Valid(b) {
				t.Errorf("status %d: %s", resp.StatusCode, b)
			}
		})
	}
}
