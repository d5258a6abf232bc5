package credential

import (
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// key is a method that needs nothing but the secret: one header field.
type key struct{ name, value string }

func (k key) authorize(_ Caller, _ time.Time, _ *exchange.Deployment, c *adapter.Call, _ string) *exchange.Failure {
	c.Header = append(c.Header, adapter.Field{Name: k.name, Value: k.value})
	return nil
}

// readGemini takes a plain API key.
func readGemini(_ *Room, _ *exchange.Deployment, secret []byte) (method, error) {
	doc, err := readSecret("gemini", secret)
	return key{"x-goog-api-key", doc.key}, err
}
