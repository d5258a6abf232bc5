package bedrock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/credential"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

// TestSignedAsSent: what arrives at the provider is what was signed: the signature is made here once more, from the
// request as it came over a socket.
func TestSignedAsSent(t *testing.T) {
	const answer = `{"output":{"message":{"content":[{"text":"hi"}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":1}}`
	var fault string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault = unsigned(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	secret := []byte(`{"access_key_id":"AKIDEXAMPLE","secret_access_key":"` + signKey + `","session_token":"t"}`)
	room := credential.New(nil)
	defer room.Close()
	for _, model := range []string{nova, "arn:aws:bedrock:us-east-1:1:inference-profile/" + nova, "anthropic.claude-opus-4-6-v1"} {
		d := &exchange.Deployment{Provider: "bedrock", Model: model, Region: "us-east-1", BaseURL: srv.URL + "/through"}
		r := ask(hi)
		call, f := New().Request(r, d, secret)
		if f != nil {
			t.Fatal(f)
		}
		if f := room.Authorize(t.Context(), time.Now(), d, secret, &call, strings.TrimPrefix(srv.URL, "http://")); f != nil {
			t.Fatal(f)
		}
		fault = "no request came"
		_, f = relay.NewClient(relay.Config{}).Open(&relay.Canceller{}, relay.Upstream{BaseURL: d.BaseURL}, call, false, New(), r, note)
		if f != nil || fault != "" {
			t.Errorf("%s: %v, %+v", model, fault, f)
		}
	}
}

const signKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

// unsigned says why AWS would refuse a request, empty when it would not.
func unsigned(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	_, names, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	names, signature, _ := strings.Cut(names, ", Signature=")
	var fields strings.Builder
	for name := range strings.SplitSeq(names, ";") {
		v := r.Header.Get(name)
		switch name {
		case "host":
			v = r.Host
		case "content-length":
			v = r.Header.Get("Content-Length")
		}
		fields.WriteString(name + ":" + v + "\n")
	}
	for _, must := range []string{"host", "x-amz-date", "x-amz-security-token", "content-type", "content-length"} {
		if !slices.Contains(strings.Split(names, ";"), must) {
			return must + " is not signed"
		}
	}
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	// On the wire a path is escaped once; what is signed is that, escaped again.
	path := strings.ReplaceAll(r.RequestURI, "%", "%25")
	canonical := strings.Join([]string{r.Method, path, "", fields.String(), names, sum(string(body))}, "\n")
	date := r.Header.Get("X-Amz-Date")
	scope := date[:8] + "/us-east-1/bedrock/aws4_request"
	key := []byte("AWS4" + signKey)
	mac := func(s string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(s))
		return h.Sum(nil)
	}
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(part)
	}
	if want := hex.EncodeToString(mac("AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + sum(canonical))); signature != want {
		return "the signature is of something else:\n" + canonical
	}
	return ""
}
