package credential

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestPageSecretsAreRead: the secrets that docs/org.md shows under a provider's name are in the form that is read there.
func TestPageSecretsAreRead(t *testing.T) {
	b, err := os.ReadFile("../../../docs/org.md")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]int{}
	for part := range strings.SplitSeq(string(b), "\n### ") {
		provider, text, _ := strings.Cut(part, "\n")
		for _, block := range strings.Split(text, "```json\n")[1:] {
			secret, _, _ := strings.Cut(block, "```")
			if readers[provider] == nil {
				t.Errorf("no secret of %s is read here: %s", provider, secret)
				continue
			}
			room := New(nil)
			defer room.Close()
			secret = strings.ReplaceAll(secret, "…", "x")
			if m, err := readers[provider](room, &exchange.Deployment{Provider: provider}, []byte(secret)); err != nil || m == nil {
				t.Errorf("%s: %v in %s", provider, err, secret)
			}
			read[provider]++
		}
	}
	if read["azure"] != 1 || read["bedrock"] != 2 || read["vertex"] != 1 {
		t.Errorf("read %v: the pattern has gone blind", read)
	}
}
