package credential

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// AWS's own example of keys and time.
const (
	exampleKey    = "AKIDEXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

var exampleTime = time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)

func field(c *adapter.Call, name string) string {
	for _, f := range c.Header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// TestKnownVector: post-vanilla of the test suite that AWS published with the algorithm.
func TestKnownVector(t *testing.T) {
	s := &signature{signer: v4.NewSigner(), service: "service", keys: aws.Credentials{AccessKeyID: exampleKey, SecretAccessKey: exampleSecret}}
	d := &exchange.Deployment{BaseURL: "https://example.amazonaws.com", Region: "us-east-1"}
	c := &adapter.Call{Path: "/"}
	if f := s.authorize(t.Context(), exampleTime, d, c, "example.amazonaws.com"); f != nil {
		t.Fatal(f)
	}
	want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, " +
		"Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
	if got := field(c, "Authorization"); got != want || field(c, "X-Amz-Date") != "20150830T123600Z" {
		t.Errorf("got %s", got)
	}
}

// TestSignature: a call's signature, computed here step by step as AWS describes it. The colon of a model id is %3A on the
// wire and %253A in what is signed.
func TestSignature(t *testing.T) {
	for _, session := range []string{"", "session/+=="} {
		secret := fmt.Sprintf(`{"access_key_id":%q,"secret_access_key":%q,"session_token":%q}`, exampleKey, exampleSecret, session)
		m, err := readBedrock(nil, nil, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		const host = "bedrock-runtime.eu-west-1.amazonaws.com"
		d := &exchange.Deployment{BaseURL: "https://" + host + "/proxy/", Region: "eu-west-1"}
		body := `{"messages":[]}`
		c := &adapter.Call{
			Path: "/model/amazon.nova-pro-v1%3A0/converse", Body: []byte(body),
			Header: []adapter.Field{{Name: "content-type", Value: "application/json"}, {Name: "x-other", Value: "not signed"}},
		}
		if f := m.authorize(t.Context(), exampleTime, d, c, host); f != nil {
			t.Fatal(f)
		}
		signed, fields := "content-length;content-type;host;x-amz-date", "content-length:15\ncontent-type:application/json\nhost:"+host+"\nx-amz-date:20150830T123600Z\n"
		if session != "" {
			signed += ";x-amz-security-token"
			fields += "x-amz-security-token:" + session + "\n"
		}
		canonical := strings.Join([]string{
			"POST", "/proxy/model/amazon.nova-pro-v1%253A0/converse", "", fields, signed, hexSum(body),
		}, "\n")
		scope := "20150830/eu-west-1/bedrock/aws4_request"
		toSign := "AWS4-HMAC-SHA256\n20150830T123600Z\n" + scope + "\n" + hexSum(canonical)
		key := []byte("AWS4" + exampleSecret)
		for part := range strings.SplitSeq(scope, "/") {
			key = mac(key, part)
		}
		want := "AWS4-HMAC-SHA256 Credential=" + exampleKey + "/" + scope + ", SignedHeaders=" + signed +
			", Signature=" + hex.EncodeToString(mac(key, toSign))
		if got := field(c, "Authorization"); got != want || field(c, "x-amz-security-token") != session {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

// TestSignatureIsOfTheTime: another second is another signature, and another call another one too.
func TestSignatureIsOfTheTime(t *testing.T) {
	m, err := readBedrock(nil, nil, []byte(`{"access_key_id":"a","secret_access_key":"b"}`))
	if err != nil {
		t.Fatal(err)
	}
	d := &exchange.Deployment{BaseURL: "https://h", Region: "us-east-1"}
	seen := map[string]string{}
	for what, call := range map[string]struct {
		at   time.Time
		path string
		body string
	}{
		"the call": {exampleTime, "/model/m/converse", "{}"}, "a second later": {exampleTime.Add(time.Second), "/model/m/converse", "{}"},
		"the next day": {exampleTime.Add(24 * time.Hour), "/model/m/converse", "{}"},
		"another path": {exampleTime, "/model/n/converse", "{}"}, "another body": {exampleTime, "/model/m/converse", "[]"},
	} {
		c := &adapter.Call{Path: call.path, Body: []byte(call.body)}
		if f := m.authorize(t.Context(), call.at, d, c, "h"); f != nil {
			t.Fatal(f)
		}
		_, got, _ := strings.Cut(field(c, "Authorization"), "Signature=")
		if other, ok := seen[got]; ok || got == "" {
			t.Errorf("%s is signed like %s", what, other)
		}
		seen[got] = what
	}
	if f := m.authorize(t.Context(), exampleTime, &exchange.Deployment{BaseURL: "https://h"}, &adapter.Call{Path: "/"}, "h"); f == nil || f.Kind != exchange.FailCredential {
		t.Errorf("no region: %+v", f)
	}
}

func TestBedrockSecrets(t *testing.T) {
	for secret, want := range map[string]string{
		"bedrock-api-key-1\n":                                "",
		`{"access_key_id":"a","secret_access_key":"hush"}`:   "",
		`{"access_key_id":"a"}`:                              "must have access_key_id and secret_access_key",
		`{"secret_access_key":"hush"}`:                       "must have access_key_id and secret_access_key",
		`{"access_key_id":"a b","secret_access_key":"hush"}`: "cannot be sent",
		`{"access_key_id":"a","secret_access_key":"hush"`:    "is no JSON object of texts",
		`{"access_key_id":"a","secret_access_key":["hush"]}`: "is no JSON object of texts",
		"   ": "is no key",
	} {
		m, err := readBedrock(nil, nil, []byte(secret))
		if want == "" && (err != nil || m == nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", secret, err)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
	m, _ := readBedrock(nil, nil, []byte("bedrock-api-key-1\n"))
	c := &adapter.Call{}
	if f := m.authorize(t.Context(), exampleTime, &exchange.Deployment{}, c, "h"); f != nil || field(c, "Authorization") != "Bearer bedrock-api-key-1" {
		t.Errorf("got %+v, %+v", c, f)
	}
}
