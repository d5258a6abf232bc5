package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// vectors makes every vector of an answer stand in the encoding the caller asked for: base64 of little-endian
// float32, or an array of numbers. Clients decode what they asked for and do not look twice.
func (m *mender) vectors(data span, want64 bool) *exchange.Failure {
	if !isArray(m.data, data) {
		return invalid("the provider's answer has no data")
	}
	var bits []byte // of one vector
	fine := true
	for c := enter(m.data, data); c.next() && fine; {
		v := find(m.data, c.value, "embedding")
		switch {
		case want64 && isArray(m.data, v):
			if bits, fine = m.numbers(bits[:0], v); fine {
				m.edits.put(v, func(dst []byte) []byte {
					return append(base64.StdEncoding.AppendEncode(append(dst, '"'), bits), '"')
				})
			}
		case !want64 && isText(m.data, v):
			var err error
			bits, err = base64.StdEncoding.AppendDecode(bits[:0], []byte(text(m.data, v)))
			if fine = err == nil && len(bits)%4 == 0 && finite(bits); fine {
				m.edits.put(v, func(dst []byte) []byte { return appendNumbers(dst, bits) })
			}
		}
	}
	if !fine {
		return invalid("a vector of the provider's answer is neither numbers nor base64 of float32")
	}
	return nil
}

// numbers appends an array of numbers as little-endian float32.
func (m *mender) numbers(dst []byte, v span) ([]byte, bool) {
	all := string(m.raw(v)) // once: ParseFloat wants strings
	for c := enter(m.data, v); c.next(); {
		x, err := strconv.ParseFloat(all[c.value.from-v.from:c.value.to-v.from], 32)
		if err != nil {
			return dst, false
		}
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x)))
	}
	return dst, true
}

func finite(bits []byte) bool {
	for i := 0; i < len(bits); i += 4 {
		const exponent = 0xff << 23 // all ones: infinite, or no number; JSON has neither
		if binary.LittleEndian.Uint32(bits[i:])&exponent == exponent {
			return false
		}
	}
	return true
}

func appendNumbers(dst, bits []byte) []byte {
	dst = append(dst, '[')
	for i := 0; i < len(bits); i += 4 {
		if i > 0 {
			dst = append(dst, ',')
		}
		x := math.Float32frombits(binary.LittleEndian.Uint32(bits[i:]))
		dst = strconv.AppendFloat(dst, float64(x), 'g', -1, 32)
	}
	return append(dst, ']')
}
