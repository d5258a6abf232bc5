package api

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// actorDefault is who the audit names when nobody is known.
const actorDefault = "admin"

// callerKey is where the context holds the certificate of who calls.
type callerKey struct{}

// withCaller hands the client's certificate, which is verified, to the calls.
func withCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
			req = req.WithContext(context.WithValue(req.Context(), callerKey{}, req.TLS.PeerCertificates[0]))
		}
		next.ServeHTTP(w, req)
	})
}

// operator refuses who is known not to be one: sidecars have certificates of the same authority, and a sidecar that
// was broken into must not raise its own budget.
func (s *Service) operator(ctx context.Context) error {
	cert, ok := ctx.Value(callerKey{}).(*x509.Certificate)
	if !ok {
		return nil
	}
	if len(s.cfg.Operators) > 0 && !slices.ContainsFunc(cert.URIs, s.names) {
		return connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("the certificate of %s is not an operator's: admin.operators of the node does not name it", strings.Join(names(cert), ", ")))
	}
	var identity string
	s.node.View(func(m *replica.Machine) {
		for _, sc := range m.Registry.Sidecars() {
			if slices.Contains(names(cert), sc.ID) {
				identity = sc.ID
			}
		}
	})
	if identity != "" {
		return connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("the certificate is of the sidecar %s: it may not use the admin API", identity))
	}
	return nil
}

// names reports whether a URI is an operator's.
func (s *Service) names(u *url.URL) bool {
	return slices.ContainsFunc(s.cfg.Operators, func(pattern string) bool {
		ok, err := path.Match(pattern, u.String())
		return ok && err == nil
	})
}

// names are the names of a certificate, the one to show first.
func names(cert *x509.Certificate) []string {
	var out []string
	for _, u := range cert.URIs {
		out = append(out, u.String())
	}
	if cn := cert.Subject.CommonName; cn != "" {
		out = append(out, cn)
	}
	return out
}

// actorOf is who the audit names: the certificate, which is proved, and with it who the caller claims to be.
func actorOf(ctx context.Context, claimed string) string {
	cert, ok := ctx.Value(callerKey{}).(*x509.Certificate)
	switch {
	case ok && len(names(cert)) > 0 && claimed != "":
		return fmt.Sprintf("%s (%s)", names(cert)[0], claimed)
	case ok && len(names(cert)) > 0:
		return names(cert)[0]
	case claimed != "":
		return claimed
	}
	return actorDefault
}
