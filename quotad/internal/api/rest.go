package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// specMax bounds the body of a PUT: one object.
const specMax = 1 << 20

// rest checks REST calls before they are transcoded. The transcoder answers what it does not understand in plain text,
// or with 500: here it is refused in the words of the rest of the API.
type rest struct {
	next  http.Handler
	rules []rule
}

// rule is one REST path of the service.
type rule struct {
	method  string
	path    *regexp.Regexp
	params  []string // query parameters it takes, sorted; each also in its JSON spelling, such as groupBy
	bodyMax int64    // 0: it takes no body
}

// newREST reads the paths out of the service's own description.
func newREST(next http.Handler) *rest {
	r := &rest{next: next}
	methods := adminv1.File_admin_v1_admin_proto.Services().ByName("AdminService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		if http, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule); ok && http != nil {
			r.rules = append(r.rules, ruleOf(m.Input(), http))
		}
	}
	return r
}

var (
	variable = regexp.MustCompile(`\{(\w+)\}`)
	capital  = regexp.MustCompile(`[A-Z]`)
)

func ruleOf(input protoreflect.MessageDescriptor, h *annotations.HttpRule) rule {
	out := rule{}
	var path string
	switch p := h.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		out.method, path = http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		out.method, path = http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		out.method, path = http.MethodPut, p.Put
	default:
		panic(fmt.Sprintf("BUG: api: REST pattern %T of %s is not understood", p, input.FullName()))
	}
	elsewhere := map[string]bool{h.GetBody(): true}
	for _, name := range variable.FindAllStringSubmatch(path, -1) {
		elsewhere[name[1]] = true
	}
	out.path = regexp.MustCompile("^" + variable.ReplaceAllString(path, `[^/:]+`) + "$")
	switch h.GetBody() {
	case "":
	case "*":
		out.bodyMax = readMax
		return out
	default:
		out.bodyMax = specMax
	}
	for i := range input.Fields().Len() {
		if f := input.Fields().Get(i); !elsewhere[f.TextName()] {
			out.params = append(out.params, f.TextName())
		}
	}
	slices.Sort(out.params)
	return out
}

// ServeHTTP implements http.Handler.
func (r *rest) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.URL.Path, "/"+adminv1connect.AdminServiceName+"/") { // connect and gRPC
		r.next.ServeHTTP(w, req)
		return
	}
	rule, allowed := r.find(req)
	switch {
	case len(allowed) > 0:
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuseREST(w, http.StatusMethodNotAllowed, connect.CodeUnimplemented, "%s %s: the method is %s",
			req.Method, req.URL.Path, strings.Join(allowed, " or "))
	case rule == nil:
		refuseREST(w, http.StatusNotFound, connect.CodeNotFound, "nothing is at %.128q", req.URL.Path)
	default:
		if rule.admits(w, req) {
			r.next.ServeHTTP(jsonWriter{w}, req)
		}
	}
}

// jsonWriter says that answers are JSON: the transcoder calls some refusals something else.
type jsonWriter struct{ http.ResponseWriter }

func (w jsonWriter) WriteHeader(status int) {
	w.Header().Set("Content-Type", "application/json")
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, which the transcoder demands.
func (w jsonWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// find looks up the rule of a request. Without one, allowed lists the methods that its path takes.
func (r *rest) find(req *http.Request) (found *rule, allowed []string) {
	methods := map[string]bool{}
	for i := range r.rules {
		if !r.rules[i].path.MatchString(req.URL.Path) {
			continue
		}
		if r.rules[i].method == req.Method {
			return &r.rules[i], nil
		}
		methods[r.rules[i].method] = true
	}
	return nil, slices.Sorted(maps.Keys(methods))
}

// admits checks a request and answers it when it is not to be passed on.
func (r *rule) admits(w http.ResponseWriter, req *http.Request) bool {
	if what := r.wrongQuery(req.URL.RawQuery); what != "" {
		refuseREST(w, http.StatusBadRequest, connect.CodeInvalidArgument, "%s", what)
		return false
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, r.bodyMax+1))
	switch {
	case err != nil:
		refuseREST(w, http.StatusBadRequest, connect.CodeInvalidArgument, "body: it ends too early")
		return false
	case r.bodyMax == 0 && len(body) > 0:
		refuseREST(w, http.StatusBadRequest, connect.CodeInvalidArgument, "body: %s takes none", req.Method)
		return false
	case int64(len(body)) > r.bodyMax:
		refuseREST(w, http.StatusRequestEntityTooLarge, connect.CodeInvalidArgument, "body: longer than %d bytes", r.bodyMax)
		return false
	}
	if len(body) > 0 && !isJSON(req.Header) {
		refuseREST(w, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument,
			"Content-Type: must be application/json, in UTF-8 and not compressed")
		return false
	}
	// What the transcoder would take for another protocol, or not take at all.
	for _, name := range [...]string{"Connect-Protocol-Version", "Content-Encoding", "X-Server-Timeout"} {
		req.Header.Del(name)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return true
}

// wrongQuery says what is wrong with a query; empty when nothing is.
func (r *rule) wrongQuery(raw string) string {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return "query: " + err.Error()
	}
	given := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		param := strings.ToLower(capital.ReplaceAllString(name, "_$0"))
		switch {
		case len(r.params) == 0:
			return fmt.Sprintf("query: unknown parameter %.64q: there are none here", name)
		case !slices.Contains(r.params, param):
			return fmt.Sprintf("query: unknown parameter %.64q (allowed: %s)", name, strings.Join(r.params, ", "))
		case len(q[name]) > 1 || given[param]:
			return fmt.Sprintf("query: %s is there twice", param)
		}
		given[param] = true
	}
	return ""
}

func isJSON(h http.Header) bool {
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return false
	}
	if h.Get("Content-Type") == "" {
		return true // as curl -T sends it
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	return err == nil && kind == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8"))
}

// refuseREST answers in the shape of the service's own refusals.
func refuseREST(w http.ResponseWriter, status int, code connect.Code, format string, args ...any) {
	b, err := json.Marshal(struct {
		Code    uint32 `json:"code"`
		Message string `json:"message"`
	}{uint32(code), fmt.Sprintf(format, args...)})
	if err != nil {
		panic(fmt.Sprintf("BUG: api: a refusal cannot be encoded: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a caller who left does not read it
}
