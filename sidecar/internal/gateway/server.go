package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

const (
	// BodyMax bounds a request body. Larger ones get 413.
	BodyMax = 32 << 20
	// strangerBodyMax bounds the body of a caller whose key is not known: it is read only to answer 401 in good form.
	strangerBodyMax = 1 << 20
	// pooledBodyMax bounds the buffers of bodies that are kept for the next.
	pooledBodyMax = 1 << 20

	readTimeout = 30 * time.Second
	idleTimeout = 90 * time.Second
	// settleWait bounds the end of requests that are cut: a caller that does not read may hold it up.
	settleWait = 2 * time.Second
)

// fasthttp puts a date on every response (RFC 9110, 6.6.1), and will not take one from us. It keeps it with a goroutine
// that never ends, which begins here, outside of any bubble of a test.
func init() {
	new(fasthttp.ResponseHeader).AppendBytes(nil)
	fasthttp.SetBodySizePoolLimit(pooledBodyMax, pooledBodyMax)
}

// Server is the data listener.
type Server struct {
	g    *Gateway
	http *fasthttp.Server

	mu    sync.Mutex
	fresh map[net.Conn]struct{} // accepted, no request yet: fasthttp would wait for them while draining
}

// NewServer makes the server of a gateway.
func NewServer(g *Gateway) *Server {
	s := &Server{g: g, fresh: map[net.Conn]struct{}{}}
	s.http = &fasthttp.Server{
		Handler:                      g.route,
		ErrorHandler:                 g.badHTTP,
		HeaderReceived:               g.bodyBound,
		ConnState:                    s.track,
		Name:                         "sluice",
		NoDefaultServerHeader:        true,
		ReadBufferSize:               16 << 10,
		WriteBufferSize:              1024,
		ReduceMemoryUsage:            true,
		MaxRequestBodySize:           BodyMax,
		ReadTimeout:                  readTimeout,
		IdleTimeout:                  idleTimeout,
		CloseOnShutdown:              true,
		DisablePreParseMultipartForm: true,
		Logger:                       quiet{},
	}
	return s
}

// quiet drops fasthttp's own log lines: what callers do wrong on the wire is in the metrics.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// Serve accepts until Shutdown, and returns nil then.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(lingerListener{l}) }

func (s *Server) track(c net.Conn, st fasthttp.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st == fasthttp.StateNew {
		s.fresh[c] = struct{}{}
		return
	}
	delete(s.fresh, c)
}

// Shutdown stops accepting and lets running requests end. Those that still run when ctx ends are cut; that is an
// error. It returns when all have settled.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	for c := range s.fresh {
		_ = c.Close() // has sent nothing: nothing is lost
	}
	s.mu.Unlock()
	settled, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var cut atomic.Int64
	defer context.AfterFunc(ctx, func() {
		cut.Store(int64(s.g.running.cut()))
		time.AfterFunc(settleWait, giveUp)
	})()
	err := s.http.ShutdownWithContext(settled)
	if n := cut.Load(); n > 0 {
		return errors.Join(fmt.Errorf("%d running requests were cut", n), err)
	}
	return err
}

// Drain refuses what comes from now on. What runs goes on, and Shutdown waits for it.
func (g *Gateway) Drain() { g.draining.Store(true) }

// Draining reports whether Drain has been called.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// Paths of routes that are named more than once.
const (
	pathCount     = "/v1/messages/count_tokens"
	pathResponses = "/v1/responses"
)

// route finds the handler of a request. The raw path decides: fasthttp's own decodes %2F, which model names hold.
func (g *Gateway) route(c *fasthttp.RequestCtx) {
	path := string(pathOf(c.Request.Header.RequestURI()))
	post, get := c.IsPost(), c.IsGet()
	name, isModel := strings.CutPrefix(path, "/v1/models/")
	switch {
	case g.Draining():
		g.reject(c, stopping())
		c.SetConnectionClose() // it finds whoever serves next
	case (path == "/v1/chat/completions" || path == "/v1/messages" || path == pathResponses) && post:
		g.serve(c, exchange.Chat)
	case path == pathCount && post:
		g.serve(c, exchange.CountTokens)
	case path == "/v1/embeddings" && post:
		g.serve(c, exchange.Embeddings)
	case path == "/v1/models" && get:
		g.lookup(c, g.models)
	case isModel && name != "" && get:
		g.lookup(c, func(f *flow) *refusal { return g.model(f, name) })
	case path == "/v1/usage" && get:
		g.lookup(c, g.usage)
	case serves(path):
		g.reject(c, methodNotAllowed(string(c.Method()), path))
	default:
		g.reject(c, notServed(string(c.Method()), path))
	}
}

// serves reports whether there is a route of this path, whatever the method.
func serves(path string) bool {
	switch path {
	case "/v1/chat/completions", "/v1/messages", pathCount, pathResponses, "/v1/embeddings", "/v1/models", "/v1/usage":
		return true
	}
	name, isModel := strings.CutPrefix(path, "/v1/models/")
	return isModel && name != ""
}

func pathOf(uri []byte) []byte {
	if i := bytes.IndexByte(uri, '?'); i >= 0 {
		uri = uri[:i]
	}
	return uri
}

func (g *Gateway) reject(c *fasthttp.RequestCtx, r *refusal) {
	f := &flow{c: c, speaks: dialectOf(&c.Request.Header), began: time.Now(), rules: g.Policy.Rules()}
	f.req.ID = requestID(c)
	g.refuse(f, r)
	g.access(f)
}

// bodyBound lets nobody fill the memory whose key is not known. A small body is read in any case, so that the usual
// request is looked up once.
func (g *Gateway) bodyBound(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	if n := h.ContentLength(); n >= 0 && n <= strangerBodyMax {
		return c
	}
	if _, no := g.principal(h, g.Policy.Rules(), time.Now()); no != nil {
		c.MaxRequestBodySize = strangerBodyMax
	}
	return c
}

// badHTTP answers what could not be read as a request.
func (g *Gateway) badHTTP(c *fasthttp.RequestCtx, err error) {
	var r *refusal
	var slow net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		r = tooLarge(BodyMax)
		if _, no := g.principal(&c.Request.Header, g.Policy.Rules(), time.Now()); no != nil {
			r = no
		}
		if conn, ok := c.Conn().(*lingerConn); ok {
			conn.unread.Store(true)
		}
	case errors.As(err, new(*fasthttp.ErrSmallBuffer)):
		r = &refusal{status: 431, kind: typeInvalid, code: "header_too_large", message: "the request's head is too large"}
	case errors.As(err, &slow) && slow.Timeout():
		r = &refusal{status: 408, kind: typeInvalid, code: "request_timeout", message: "the request did not arrive in time"}
	default:
		r = &refusal{status: 400, kind: typeInvalid, code: "bad_request", message: "the request is not valid HTTP"}
	}
	g.Log.Debug("unreadable request", zap.Error(err), zap.Int("status", r.status))
	g.reject(c, r)
	c.SetConnectionClose()
}
