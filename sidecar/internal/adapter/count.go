package adapter

import (
	"strconv"

	"github.com/tidwall/gjson"
)

// CountMax is the most tokens that are believed of one count: a hundred times the widest window. What servers make of -1
// as an unsigned number lies above it.
const CountMax = 1 << 30

// Count reads a token count, which servers write as a number, whole or not, or as a text of one. ok is false for what is
// none: it counts as not stated, so that what was used is estimated and nobody is billed for a slip, or for nothing.
func Count(v gjson.Result) (n int64, ok bool) {
	f := v.Num
	switch v.Type {
	case gjson.Number:
	case gjson.String:
		var err error
		if f, err = strconv.ParseFloat(v.Str, 64); err != nil {
			return 0, false
		}
	default:
		return 0, false
	}
	if !(f >= 0 && f <= CountMax) {
		return 0, false
	}
	return int64(f), true
}
