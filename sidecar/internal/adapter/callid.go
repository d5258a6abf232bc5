package adapter

import (
	"hash/fnv"
	"strconv"
	"strings"
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
