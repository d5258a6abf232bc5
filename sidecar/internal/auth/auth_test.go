package auth

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

type keys map[[sha256.Size]byte]*exchange.Principal

func (k keys) Principal(sum [sha256.Size]byte) *exchange.Principal { return k[sum] }

func TestAuthenticate(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ks := keys{
		sha256.Sum256([]byte("good")):    {Key: "good"},
		sha256.Sum256([]byte("old")):     {Key: "old", ExpiresAt: now},
		sha256.Sum256([]byte("later")):   {Key: "later", ExpiresAt: now.Add(1)},
		sha256.Sum256([]byte("revoked")): {Key: "revoked", Revoked: true},
	}
	for secret, want := range map[string]Result{
		"good": OK, "": Missing, "good ": Unknown, "old": Expired, "later": OK, "revoked": Revoked,
	} {
		who, got := Authenticate(ks, now, secret)
		if got != want || (who != nil) != (want == OK) {
			t.Errorf("%q: got %d, %v; want %d", secret, got, who, want)
		}
	}
}

func TestSecret(t *testing.T) {
	for _, c := range []struct{ authorization, apiKey, want string }{
		{"Bearer abc", "", "abc"},
		{"bearer  abc ", "", "abc"},
		{"Bearer abc", "other", "abc"},
		{"Basic abc", "other", "other"},
		{"", "key ", "key"},
		{"Bearer ", "", ""},
		{"", "", ""},
	} {
		if got := Secret(c.authorization, c.apiKey); got != c.want {
			t.Errorf("%q, %q: got %q, want %q", c.authorization, c.apiKey, got, c.want)
		}
	}
}
