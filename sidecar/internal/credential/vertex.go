package credential

import (
	"context"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

const (
	vertexScope    = "https://www.googleapis.com/auth/cloud-platform"
	vertexTokenURL = "https://oauth2.googleapis.com/token"
)

// readVertex takes a service account's key file as Google gives it out, or an access token that somebody else renews:
// {"access_token"}.
func readVertex(r *Room, _ *exchange.Deployment, secret []byte) (method, error) {
	doc, err := readSecret("vertex", secret)
	if err != nil {
		return nil, err
	}
	if doc.key != "" {
		return key{"Authorization", "Bearer " + doc.key}, nil
	}
	cfg := &jwt.Config{
		Email: doc.ClientEmail, PrivateKey: []byte(doc.PrivateKey), PrivateKeyID: doc.PrivateKeyID,
		Scopes: []string{vertexScope}, TokenURL: vertexTokenURL,
	}
	if doc.TokenURI != "" {
		cfg.TokenURL = doc.TokenURI
	}
	return newBearer(r, func(ctx context.Context) (*oauth2.Token, error) { return cfg.TokenSource(ctx).Token() }), nil
}
