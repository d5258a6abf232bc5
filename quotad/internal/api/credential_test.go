package api

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
)

// TestCredentialDocuments: what providers hand out as files of several lines is taken, and becomes one line; a key that
// stands in a header is a line already. What no provider would take is refused while the operator looks, without a word
// of the secret.
func TestCredentialDocuments(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})))
	account := `{"type":"service_account","client_email":"hush@b","private_key":` + string(text) + `}`
	const broken = `"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"`
	for name, c := range map[string]struct{ provider, secret, want, fault string }{
		"an app registration": {"azure", "{\n  \"tenant_id\": \"a b\",\n  \"client_id\": \"é\", \"client_secret\":\"s\"\n}\n", `{"tenant_id":"a b","client_id":"é","client_secret":"s"}`, ""},
		"half of one":         {"azure", `{"tenant_id":"hush","client_id":"c"}`, "", "must have the texts api_key; or tenant_id, client_id, client_secret"},
		"a key in a document": {"azure", `{"api_key":"k"}`, `{"api_key":"k"}`, ""},
		"a service account":   {"vertex", account, account, ""},
		"another key file":    {"vertex", strings.Replace(account, "service_account", "authorized_user", 1), "", "type must be service_account"},
		"a broken key":        {"vertex", `{"type":"service_account","client_email":"hush","private_key":` + broken + `}`, "", "private_key is no RSA key in PEM"},
		"a token":             {"vertex", `{"access_token":"k"}`, `{"access_token":"k"}`, ""},
		"no text":             {"vertex", `{"access_token":["hush"]}`, "", "must have the texts access_token; or client_email, private_key"},
		"a key, vertex":       {"vertex", "hush", "", "must be a JSON object"},
		"a pair":              {"bedrock", `{"access_key_id":"a","secret_access_key":"b","session_token":"c"}`, `{"access_key_id":"a","secret_access_key":"b","session_token":"c"}`, ""},
		"half a pair":         {"bedrock", `{"access_key_id":"hush"}`, "", "must have the texts access_key_id, secret_access_key"},
		"half a document":     {"bedrock", `{"access_key_id":"hush`, "", "is no JSON object"},
		"a key, bedrock":      {"bedrock", "bedrock-api-key-1", "bedrock-api-key-1", ""},
		"a document, openai":  {"openai", `{"api_key":"hush"}`, "", "provider openai has plain keys"},
		"a document, gemini":  {"gemini", account, "", "provider gemini has plain keys"},
		"a key":               {"azure", " k1\n", "k1", ""},
		"over two lines":      {"azure", "k\n1", "", "byte 2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readCredential(c.provider, []byte(c.secret))
			if string(got) != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the error quotes the secret: %v", err)
			}
		})
	}
}
