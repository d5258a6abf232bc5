package openai

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"
)

// encodeVectors makes every vector of an answer stand in the encoding the caller asked for: base64 of little-endian
// float32, or an array of numbers. Clients decode what they asked for and do not look twice.
func encodeVectors(request, body []byte, doc gjson.Result) ([]byte, error) {
	want64 := gjson.GetBytes(request, "encoding_format").Str == "base64"
	var err error
	for i, e := range doc.Get("data").Array() {
		v := e.Get("embedding")
		var raw []byte
		switch {
		case want64 && v.IsArray():
			raw = toBase64(v)
		case !want64 && v.Type == gjson.String:
			if raw, err = toNumbers(v.Str); err != nil {
				return nil, err
			}
		default:
			continue
		}
		if body, err = sjson.SetRawBytes(body, "data."+itoa(i)+".embedding", raw); err != nil {
			return nil, err
		}
	}
	return body, nil
}

func toBase64(v gjson.Result) []byte {
	var b []byte
	v.ForEach(func(_, x gjson.Result) bool {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x.Num)))
		return true
	})
	return []byte(`"` + base64.StdEncoding.EncodeToString(b) + `"`)
}

func toNumbers(s string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b)%4 != 0 {
		return nil, fmt.Errorf("an embedding is not base64 of float32")
	}
	out := append(make([]byte, 0, len(b)*3), '[')
	for i := 0; i < len(b); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("an embedding holds a value that is no number")
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, float64(x), 'g', -1, 32)
	}
	return append(out, ']'), nil
}
