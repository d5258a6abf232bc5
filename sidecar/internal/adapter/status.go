package adapter

import "github.com/sluice-gateway/sluice/sidecar/internal/exchange"

// KindOf is what an HTTP status means where a provider gives it no meaning of its own.
func KindOf(status int) exchange.FailureKind {
	switch {
	case status == 401, status == 402, status == 403:
		return exchange.FailCredential
	case status == 404, status == 405:
		return exchange.FailNotFound
	case status == 408:
		return exchange.FailTimeout
	case status == 409:
		return exchange.FailOverloaded // a conflict passes
	case status == 429:
		return exchange.FailRateLimited
	case status >= 400 && status < 500:
		return exchange.FailRequest
	case status >= 500:
		return exchange.FailOverloaded
	}
	return exchange.FailInvalid // a redirect, for example: it is not followed with a key
}
