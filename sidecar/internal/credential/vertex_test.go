package credential

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

var vertex = &exchange.Deployment{Provider: "vertex", Project: "p", Region: "global", Credential: "main"}

// keyFile is a service account's, whose tokens come from uri.
func keyFile(t *testing.T, uri string) (*rsa.PrivateKey, map[string]string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, map[string]string{
		"type": "service_account", "client_email": "hush@p.iam", "private_key_id": "k1", "token_uri": uri,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	}
}

func encoded(t *testing.T, v map[string]string) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestServiceAccount: its key signs for whom the token is, and the provider gets the token. A refused one is replaced.
func TestServiceAccount(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	key, file := keyFile(t, s.URL)
	secret, now := encoded(t, file), time.Now()
	got, call := header(t, r, now, vertex, secret)
	if got != "Authorization: Bearer t1" {
		t.Fatalf("got %q", got)
	}
	form, err := url.ParseQuery(s.form.Load().(string))
	if err != nil {
		t.Fatal(err)
	}
	assertion := form.Get("assertion")
	part := strings.Split(assertion, ".")
	if form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || len(part) != 3 {
		t.Fatalf("form %v", form)
	}
	decode := func(s string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sum := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err := rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], decode(part[2])); err != nil {
		t.Error(err)
	}
	var claims struct {
		Iss, Scope, Aud string
		Exp, Iat        int64
	}
	if err := json.Unmarshal(decode(part[1]), &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Iss != file["client_email"] || claims.Scope != vertexScope || claims.Aud != s.URL || claims.Exp-claims.Iat != 3600 {
		t.Errorf("claims %+v", claims)
	}
	if !r.Refused(now, vertex, secret, call) {
		t.Error("a refused token is worth another try")
	}
	if got, _ := header(t, r, now, vertex, secret); got != "Authorization: Bearer t2" {
		t.Errorf("got %q", got)
	}
}

func TestServiceAccountRefused(t *testing.T) {
	s, r := newIssuer(t), newRoom(t)
	s.status.Store(400)
	_, file := keyFile(t, s.URL)
	f := r.Authorize(t.Context(), time.Now(), vertex, encoded(t, file), &adapter.Call{}, "x")
	if f == nil || f.Kind != exchange.FailCredential || f.Code != "invalid_client" || strings.Contains(f.Message, "hush") {
		t.Errorf("%+v", f)
	}
}

// TestWrongKeyFiles: what a key file lacks is said, and nothing of it.
func TestWrongKeyFiles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(file map[string]string)
		want   string
	}{
		"of a user": {func(f map[string]string) { f["type"] = "authorized_user" }, `must have access_token, or be a key file of type "service_account"`},
		"no email":  {func(f map[string]string) { delete(f, "client_email") }, "has no client_email"},
		"cut key":   {func(f map[string]string) { f["private_key"] = f["private_key"][:300] + "hush" }, "private_key that is no RSA key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, file := keyFile(t, "http://127.0.0.1:1")
			c.change(file)
			f := newRoom(t).Authorize(t.Context(), time.Now(), vertex, encoded(t, file), &adapter.Call{}, "x")
			if f == nil || f.Kind != exchange.FailCredential || !strings.Contains(f.Message, c.want) || strings.Contains(f.Message, "hush") {
				t.Errorf("got %+v, want %q", f, c.want)
			}
		})
	}
	f := newRoom(t).Authorize(t.Context(), time.Now(), vertex, []byte("AIza-plain"), &adapter.Call{}, "x")
	if f == nil || f.Kind != exchange.FailCredential || !strings.Contains(f.Message, "must be a JSON object") {
		t.Errorf("%+v", f)
	}
}
