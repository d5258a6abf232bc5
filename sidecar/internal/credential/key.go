package credential

import (
	"errors"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// key is a method that needs nothing but the secret: one header field.
type key struct{ name, value string }

func newKey(name, prefix, secret string) (method, error) {
	secret = strings.TrimSpace(secret)
	if secret == "" || strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("is no key: it is empty or has control characters in it")
	}
	return key{name, prefix + secret}, nil
}

func (k key) authorize(_ Caller, _ time.Time, _ *exchange.Deployment, c *adapter.Call, _ string) *exchange.Failure {
	c.Header = append(c.Header, adapter.Field{Name: k.name, Value: k.value})
	return nil
}

// readGemini takes a plain API key.
func readGemini(_ *Room, _ *exchange.Deployment, secret []byte) (method, error) {
	return newKey("x-goog-api-key", "", string(secret))
}
