package api

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"
)

// keyFile is a service account's key file, as Google hands it out: over several lines.
func keyFile(t *testing.T) string {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	b, err := json.MarshalIndent(map[string]string{
		"type": "service_account", "client_email": "é@x.iam", "private_key_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	}, "", "  ")
	must(t, err)
	return string(b)
}

// TestCredentialForms: a secret is taken in the forms that its provider has. A file of several lines becomes one line.
// What is wrong with another one is told, and nothing of it.
func TestCredentialForms(t *testing.T) {
	google := keyFile(t)
	for name, c := range map[string]struct{ provider, secret, want string }{
		"a key":                  {"azure", " k1\n", "k1"},
		"a key, openai":          {"openai", "sk-1", "sk-1"},
		"a key, bedrock":         {"bedrock", "ABSK1", "ABSK1"},
		"a registration":         {"azure", "{\n \"tenant_id\": \"a\", \"client_id\": \"b\", \"client_secret\": \"ü c\"\n}\n", `{"tenant_id":"a","client_id":"b","client_secret":"ü c"}`},
		"keys of an account":     {"bedrock", `{"access_key_id":"A","secret_access_key":"b"}`, `{"access_key_id":"A","secret_access_key":"b"}`},
		"a token":                {"vertex", `{"access_token": "ya29"}`, `{"access_token":"ya29"}`},
		"a key file":             {"vertex", google, strings.NewReplacer("\n  ", "", "\n", "", `": "`, `":"`).Replace(google)},
		"a key over two lines":   {"azure", "hush\nhush", "!is no key: byte 5 cannot stand"},
		"no text":                {"compatible", " \n", "!is no key: it is empty"},
		"half a document":        {"bedrock", `{"access_key_id":"hush`, "!is no JSON object of texts"},
		"half an account":        {"bedrock", `{"access_key_id":"hush"}`, "!must have access_key_id and secret_access_key"},
		"half a registration":    {"azure", `{"tenant_id":"hush","client_id":"hush"}`, "!must have api_key, or tenant_id, client_id and client_secret"},
		"a key, vertex":          {"vertex", "AIza-hush", "!must be a JSON object: a service account's key file, or access_token"},
		"a user's file":          {"vertex", strings.Replace(google, "service_account", "authorized_user", 1), `!or be a key file of type "service_account"`},
		"a cut key file":         {"vertex", strings.Replace(google, "BEGIN", "hush", 1), "!has a private_key that is no RSA key in PEM"},
		"a document, openai":     {"openai", `{"api_key":"hush"}`, "!is a JSON object: provider openai has a key alone"},
		"an account for Azure":   {"azure", `{"access_key_id":"hush","secret_access_key":"hush"}`, "!must have api_key, or tenant_id"},
		"a key file for bedrock": {"bedrock", google, "!must have access_key_id and secret_access_key"},
		"a token of two lines":   {"vertex", `{"access_token":"hush\nhush"}`, "!is no key: byte 5"},
		"a session":              {"bedrock", `{"access_key_id":"A","secret_access_key":"b","session_token":"c"}`, `{"access_key_id":"A","secret_access_key":"b","session_token":"c"}`},
		"a misspelt session":     {"bedrock", `{"access_key_id":"A","secret_access_key":"b","hush":"c"}`, "!its member 3 is none of access_key_id, secret_access_key, session_token"},
		"in another case":        {"bedrock", `{"access_key_id":"A","secret_access_key":"b","Session_Token":"c"}`, "!its member 3 is none of"},
		"two forms in one":       {"azure", `{"api_key":"hush","tenant_id":"a"}`, "!its member 2 is none of api_key"},
		"a token and more":       {"vertex", `{"access_token":"hush","expires":"a"}`, "!its member 2 is none of access_token"},
		"a member twice":         {"azure", `{"api_key":"hush","api_key":"b"}`, "!its member 2 stands there a second time"},
		"a list":                 {"bedrock", `["hush"]`, "!is JSON and no object"},
		"a key in quotes":        {"openai", `"hush"`, "!is JSON and no object"},
		"a key with spaces":      {"anthropic", "hush b c", "!there is a space in it"},
		"a token with spaces":    {"vertex", `{"access_token":"hush b"}`, "!there is a space in it"},
		"another tenant":         {"azure", `{"tenant_id":"../hush","client_id":"b","client_secret":"c"}`, "!has a tenant_id that is neither"},
		"tokens by FTP":          {"azure", `{"tenant_id":"a","client_id":"b","client_secret":"c","token_uri":"ftp://hush/x"}`, "!has a token_uri that is no URL of http or https"},
		"tokens from a place":    {"azure", `{"tenant_id":"a.b","client_id":"b","client_secret":"c","scope":"d","token_uri":"https://x/y"}`, `{"tenant_id":"a.b","client_id":"b","client_secret":"c","scope":"d","token_uri":"https://x/y"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readCredential(c.provider, []byte(c.secret))
			if fault, wrong := strings.CutPrefix(c.want, "!"); wrong {
				if err == nil || !strings.Contains(err.Error(), "secret: ") || !strings.Contains(err.Error(), fault) {
					t.Errorf("got %q, %v, want %q", got, err, fault)
				} else if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "x.iam") {
					t.Errorf("the error quotes the secret: %v", err)
				}
			} else if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// TestPageSecretsAreTaken: the secrets that docs/org.md shows under a provider's name can be set.
func TestPageSecretsAreTaken(t *testing.T) {
	b, err := os.ReadFile("../../../docs/org.md")
	must(t, err)
	count := 0
	for part := range strings.SplitSeq(string(b), "\n### ") {
		provider, text, _ := strings.Cut(part, "\n")
		for _, block := range strings.Split(text, "```json\n")[1:] {
			count++
			secret, _, _ := strings.Cut(block, "```")
			if _, err := readCredential(provider, []byte(strings.ReplaceAll(secret, "…", "x"))); err != nil {
				t.Errorf("%s: %v: %s", provider, err, secret)
			}
		}
	}
	if count < 4 {
		t.Errorf("found only %d secrets: the pattern has gone blind", count)
	}
}
