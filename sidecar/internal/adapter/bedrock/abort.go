package bedrock

import (
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// Abort implements adapter.Stream.
func (s *conversation) Abort(dst []byte, f *exchange.Failure) []byte {
	return adapter.AppendAbort(dst, f, s.delivered.Bytes)
}
