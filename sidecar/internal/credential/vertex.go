package credential

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"

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
	var doc struct {
		AccessToken  string `json:"access_token"`
		Type         string `json:"type"`
		ClientEmail  string `json:"client_email"`
		PrivateKeyID string `json:"private_key_id"`
		PrivateKey   string `json:"private_key"`
		TokenURI     string `json:"token_uri"`
	}
	is, err := document(secret, &doc)
	switch {
	case err != nil:
		return nil, err
	case !is:
		return nil, errors.New("must be a JSON object: a service account's key file, or access_token")
	case doc.AccessToken != "":
		return newKey("Authorization", "Bearer ", doc.AccessToken)
	case doc.Type != "service_account":
		return nil, errors.New(`must have access_token, or be a key file of type "service_account"`)
	case doc.ClientEmail == "":
		return nil, errors.New("has no client_email")
	case !isRSA(doc.PrivateKey):
		return nil, errors.New("has a private_key that is no RSA key in PEM")
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

func isRSA(text string) bool {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return false
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return true
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	_, ok := key.(*rsa.PrivateKey)
	return err == nil && ok
}
