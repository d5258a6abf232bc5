// Package auth turns a virtual key into the principal it speaks for.
package auth

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Result says why a key is or is not good.
type Result uint8

// The results.
const (
	OK      Result = iota
	Missing        // no key was sent
	Unknown        // not in the rules in force
	Expired
	Revoked
)

// Keys finds a principal by the SHA-256 of a secret.
type Keys interface {
	Principal(sum [sha256.Size]byte) *exchange.Principal
}

// Authenticate finds who a secret speaks for at now. The comparison is a map look-up by hash, so its timing tells
// nothing about other secrets. The principal is nil unless the result is OK.
func Authenticate(keys Keys, now time.Time, secret string) (*exchange.Principal, Result) {
	if secret == "" {
		return nil, Missing
	}
	p := keys.Principal(sha256.Sum256([]byte(secret)))
	switch {
	case p == nil:
		return nil, Unknown
	case p.Revoked:
		return nil, Revoked
	case !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt):
		return nil, Expired
	}
	return p, OK
}

// Secret reads the key from the caller's headers: Authorization: Bearer first (RFC 6750), then x-api-key.
func Secret(authorization, apiKey string) string {
	const scheme = "bearer "
	if len(authorization) > len(scheme) && strings.EqualFold(authorization[:len(scheme)], scheme) {
		return strings.TrimSpace(authorization[len(scheme):])
	}
	return strings.TrimSpace(apiKey)
}
