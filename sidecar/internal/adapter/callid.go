package adapter

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// SignatureMark stands in the id of a call between the id proper and the signature of the model that made the call:
// newer Gemini models want it back, and an id is what every caller sends back.
const SignatureMark = "_gsig_"

// PlainCallID is the id of a call without a signature, for providers that have no use for it: they bound the length of
// ids, and the model would have to read it.
func PlainCallID(id string) string {
	plain, _, _ := strings.Cut(id, SignatureMark)
	return plain
}

// CallID makes an id for a tool call that came without one: unique within the answer, and the same whenever the same
// answer is read.
func CallID(answer string, choice, call int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(answer + "/" + strconv.Itoa(choice) + "/" + strconv.Itoa(call))) // a hash never fails
	return "call_" + strconv.FormatUint(h.Sum64(), 36)
}

// IsPlain reports whether an id is made of letters, digits, _ and - alone, which is what the strictest providers take.
func IsPlain(id string) bool {
	return strings.IndexFunc(id, func(c rune) bool { return !plain(c) }) < 0
}

func plain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// callIDMax is how long an id of a call may be.
const callIDMax = 64

// FitCallID makes the id of a call, which may be another vendor's, one that every provider takes: plain, and at most 64
// bytes. The same id always becomes the same, so that results still find their calls; the hash keeps different ids apart.
func FitCallID(id string) string {
	id = PlainCallID(id)
	if IsPlain(id) && len(id) <= callIDMax {
		return id
	}
	clean := strings.Map(func(c rune) rune {
		if plain(c) {
			return c
		}
		return '_'
	}, id)
	hash := CallIDHash(id)
	return clean[:min(len(clean), callIDMax-1-len(hash))] + "_" + hash
}

// CallIDHash is sixteen hex digits that stand for an id.
func CallIDHash(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// Calls are the tool calls of a message, or the pieces of them in a delta. The one in the old form, function_call, is such a
// call: it gets the id that one without an id would have.
func Calls(answer string, said gjson.Result) gjson.Result {
	calls, old := said.Get("tool_calls"), said.Get("function_call")
	if !old.IsObject() || calls.Get("0").Exists() {
		return calls
	}
	b := append(AppendString([]byte(`[{"index":0,"type":"function","id":`), CallID(answer, 0, 0)), `,"function":{"name":`...)
	b = append(AppendString(b, old.Get("name").Str), `,"arguments":`...)
	switch arguments := old.Get("arguments"); arguments.Type {
	case gjson.String:
		b = append(b, arguments.Raw...)
	case gjson.JSON:
		b = AppendString(b, Compact(arguments))
	default:
		b = append(b, `""`...)
	}
	return gjson.ParseBytes(append(b, `}}]`...))
}
