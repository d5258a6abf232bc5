package system

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// tap stands between the sidecar and the model server and keeps what the server truly said.
type tap struct {
	*httptest.Server
	mu    sync.Mutex
	heard []*heard
}

// heard is one call. mu of its tap guards it.
type heard struct {
	path   string
	status int
	body   bytes.Buffer
	bytes  int
	left   time.Time // when the sidecar hung up before the end; zero when it did not
}

func newTap(t *testing.T, upstream *url.URL) *tap {
	p := &tap{}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: upstream.Scheme, Host: upstream.Host})
		},
		ModifyResponse: func(r *http.Response) error {
			h := r.Request.Context().Value(heardKey{}).(*heard)
			h.status = r.StatusCode
			r.Body = &listening{r.Body, p, h}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &heard{path: r.URL.Path}
		p.mu.Lock()
		p.heard = append(p.heard, h)
		p.mu.Unlock()
		ended := context.AfterFunc(r.Context(), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			h.left = time.Now()
		})
		defer ended()
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), heardKey{}, h)))
	}))
	t.Cleanup(p.Close)
	return p
}

type heardKey struct{}

// listening keeps what is read of an answer.
type listening struct {
	io.ReadCloser
	p *tap
	h *heard
}

func (l *listening) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.h.body.Write(b[:n])
	l.h.bytes += n
	return n, err
}

// last is the newest call.
func (p *tap) last() (h *heard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heard) > 0 {
		h = p.heard[len(p.heard)-1]
	}
	return h
}

// said is a count of tokens.
type said struct{ in, out int64 }

// stated is the usage that the server stated in its newest answer; ok is false when it stated none.
func (p *tap) stated() (u said, cached int64, ok bool) {
	h := p.last()
	p.mu.Lock()
	defer p.mu.Unlock()
	v := gjson.Get(h.body.String(), "usage")
	for line := range strings.Lines(h.body.String()) {
		if data, found := strings.CutPrefix(line, "data:"); found {
			if in := gjson.Get(data, "usage"); in.IsObject() {
				v = in
			}
		}
	}
	return said{v.Get("prompt_tokens").Int(), v.Get("completion_tokens").Int()}, v.Get("prompt_tokens_details.cached_tokens").Int(), v.IsObject()
}
