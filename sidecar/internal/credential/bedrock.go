package credential

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// readBedrock takes a plain Bedrock API key, or the keys of an AWS account: {"access_key_id", "secret_access_key"}, and
// "session_token" where they are of a session.
func readBedrock(_ *Room, _ *exchange.Deployment, secret []byte) (method, error) {
	doc, err := readSecret("bedrock", secret)
	if err != nil {
		return nil, err
	}
	if doc.key != "" {
		return key{"Authorization", "Bearer " + doc.key}, nil
	}
	return &signature{signer: v4.NewSigner(), service: "bedrock", keys: aws.Credentials{
		AccessKeyID: doc.AccessKeyID, SecretAccessKey: doc.SecretAccessKey, SessionToken: doc.SessionToken,
	}}, nil
}

// signature is the method of AWS, Signature Version 4. It is about the time, the host, the path and the body.
type signature struct {
	signer  *v4.Signer // keeps the key of the day
	service string
	keys    aws.Credentials
}

func (s *signature) authorize(_ Caller, now time.Time, d *exchange.Deployment, c *adapter.Call, host string) *exchange.Failure {
	base, err := url.Parse(d.BaseURL)
	if err != nil || d.Region == "" {
		return &exchange.Failure{Kind: exchange.FailCredential, Message: "a deployment that is signed for needs a base_url and a region"}
	}
	path, query, _ := strings.Cut(c.Path, "?")
	r := &http.Request{
		Method: cmp.Or(c.Method, http.MethodPost), Host: host, Header: http.Header{}, ContentLength: int64(len(c.Body)),
		// The path stands on the wire escaped as it is here; the signer escapes it once more.
		URL: &url.URL{Host: host, Opaque: "//" + host + strings.TrimRight(base.EscapedPath(), "/") + path, RawQuery: query},
	}
	for _, f := range c.Header {
		// AWS wants its own fields to be signed. Others a proxy may change.
		if name := strings.ToLower(f.Name); name == "content-type" || strings.HasPrefix(name, "x-amz-") {
			r.Header.Add(f.Name, f.Value)
		}
	}
	sum := sha256.Sum256(c.Body)
	if err := s.signer.SignHTTP(context.Background(), s.keys, r, hex.EncodeToString(sum[:]), s.service, d.Region, now); err != nil {
		return &exchange.Failure{Kind: exchange.FailCredential, Message: "the call cannot be signed"}
	}
	for _, name := range [...]string{"X-Amz-Date", "X-Amz-Security-Token", "Authorization"} {
		if v := r.Header.Get(name); v != "" {
			c.Header = append(c.Header, adapter.Field{Name: name, Value: v})
		}
	}
	return nil
}
