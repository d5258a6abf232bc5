package credential

import (
	"net/url"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// The audiences of Azure's tokens: what its resources were called, and are.
const (
	azureClassic = "https://cognitiveservices.azure.com/.default"
	azureNow     = "https://ai.azure.com/.default"
)

// audience is whom a deployment's token is for, empty where there is but one.
func audience(d *exchange.Deployment) string {
	switch {
	case d.Provider != "azure":
		return ""
	case strings.Contains(d.BaseURL, "/openai/deployments"):
		return azureClassic
	}
	return azureNow
}

// readAzure takes an API key, plain or {"api_key"}, or an app registration of Entra: {"tenant_id", "client_id",
// "client_secret"}, and "scope" or "token_uri" where they are not Azure's own.
func readAzure(r *Room, d *exchange.Deployment, secret []byte) (method, error) {
	doc, err := readSecret("azure", secret)
	if err != nil {
		return nil, err
	}
	if doc.key != "" {
		return key{"api-key", doc.key}, nil
	}
	cfg := clientcredentials.Config{
		ClientID: doc.ClientID, ClientSecret: doc.ClientSecret, AuthStyle: oauth2.AuthStyleInParams,
		TokenURL: "https://login.microsoftonline.com/" + url.PathEscape(doc.TenantID) + "/oauth2/v2.0/token",
		Scopes:   []string{audience(d)},
	}
	if doc.Scope != "" {
		cfg.Scopes = []string{doc.Scope}
	}
	if doc.TokenURI != "" {
		cfg.TokenURL = doc.TokenURI
	}
	return newBearer(r, cfg.Token), nil
}
