package gemini

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// Newer models want the signature of a call back with it, and not every caller keeps members it does not know. So the
// signature also stands in the call's id, which every caller sends back:
//
//	ID_gsig_SIGNATURE in unpadded base64url
//
// where ID is the provider's, or one made here. An id so made says that the provider gave none.
const (
	madePrefix = "call_gem_"
	// noSignature tells the provider not to look for one: for calls that another vendor's model made.
	noSignature = "skip_thought_signature_validator"
)

// callID is the id of a call as the caller sees it. The names tell it from all other calls of a conversation.
func callID(given, signature, answer, request string, choice int64, number int) string {
	id := given
	if id == "" || strings.Contains(id, adapter.SignatureMark) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d", answer, request, choice, number))
		id = madePrefix + hex.EncodeToString(sum[:12])
	}
	if signature != "" {
		id += adapter.SignatureMark + base64.RawURLEncoding.EncodeToString([]byte(signature))
	}
	return id
}

// readCallID takes an id that the caller sends back apart: the provider's id, "" when it gave none, and the signature,
// "" for none.
func readCallID(id string) (given, signature string) {
	given, encoded, signed := strings.Cut(id, adapter.SignatureMark)
	if signed {
		b, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil {
			return id, "" // another vendor's
		}
		signature = string(b)
	}
	if strings.HasPrefix(given, madePrefix) {
		given = ""
	}
	return given, signature
}
