package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// FuzzScan: a cursor finds what encoding/json finds, texts have the length they have, and dropping any of the items
// leaves JSON with exactly the others.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"a":1,"b\"\\":[true,{"c":"}]\\"}],"":"\u00e9\ud83d\ude00\ud83d"}`), uint16(5))
	f.Add([]byte(` [ 1 , "x" ,[], {} , null ] `), uint16(1))
	f.Add([]byte(`{}`), uint16(0))
	f.Add([]byte(`{"a" : "x" }`), uint16(1))
	f.Fuzz(func(t *testing.T, doc []byte, drop uint16) {
		if !adapter.Valid(doc) {
			return
		}
		v := whole(doc)
		if !bytes.Equal(bytes.TrimSpace(doc), doc[v.from:v.to]) {
			t.Fatalf("the whole of %q is %q", doc, doc[v.from:v.to])
		}
		if isText(doc, v) {
			if got, want := textBytes(doc, v), len(gjson.ParseBytes(doc[v.from:v.to]).Str); got != want {
				t.Fatalf("%q has %d bytes, want %d", doc, got, want)
			}
		}
		if !isObject(doc, v) && !isArray(doc, v) {
			return
		}
		var list []json.RawMessage
		var left int
		var e edits
		n := 0
		for c := enter(doc, v); c.next(); n++ {
			item := doc[c.value.from:c.value.to]
			if !json.Valid(item) {
				t.Fatalf("item %d of %q is %q", n, doc, item)
			}
			if drop>>(n%16)&1 == 1 {
				e.drop(&c, left > 0)
				continue
			}
			left++
			list = append(list, json.RawMessage(item))
		}
		if want := len(gjson.ParseBytes(doc).Array()); isArray(doc, v) && n != want {
			t.Fatalf("%q has %d items, want %d", doc, n, want)
		}
		if left > 0 && isObject(doc, v) {
			e.front(v, `"first":1,`)
			e.back(v, `,"last":2`)
			left += 2
		}
		out := e.apply(nil, doc, v)
		if !json.Valid(out) {
			t.Fatalf("%q became %q", doc, out)
		}
		i := 0
		for c := enter(out, whole(out)); c.next(); i++ {
			want := "1"
			switch at := i - 1; {
			case isArray(doc, v):
				want = string(list[i])
			case i == left-1:
				want = "2"
			case i > 0:
				want = string(list[at])
			}
			if got := string(out[c.value.from:c.value.to]); got != want {
				t.Fatalf("%q became %q: item %d is %s, want %s", doc, out, i, got, want)
			}
		}
		if i != left {
			t.Fatalf("%q became %q: %d items, want %d", doc, out, i, left)
		}
	})
}

// FuzzFast: a stream that takes the fast path where it can gives what one gives that never does.
func FuzzFast(f *testing.F) {
	f.Add(`"content":"a"`, `"content":"b\n"`, "x", uint8(0))
	f.Add(`"reasoning":"a"`, `"reasoning":"b\u00e9"`, "", uint8(3))
	f.Add(`"reasoning":""`, `"reasoning":"0"`, "0", uint8(5))
	f.Add(`"reasoning_content":"","reasoning":"a"`, `"reasoning_content":"0","reasoning":"a"`, "0", uint8(10))
	f.Add(`"tool_calls":[{"index":0,"function":{"arguments":"{"}}]`, `"tool_calls":[{"index":0,"function":{"arguments":"}"}}]`, `a"`, uint8(6))
	f.Add(`"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]`, `"tool_calls":[{"function":{"arguments":"}"}}]`, `a`, uint8(9))
	f.Fuzz(func(t *testing.T, first, second, pad string, order uint8) {
		fast, slow := New().Stream(ask(true), note).(*stream), New().Stream(ask(true), note).(*stream)
		for i := range 8 {
			members := first
			if order>>i&1 == 1 {
				members = second
			}
			chunk := `{"id":"c","choices":[{"index":` + strconv.Itoa(int(order>>i&2)) + `,"delta":{` + members + `}}],"obfuscation":"` + pad[:len(pad)*i/8] + `"}`
			x, px := fast.Event(nil, nil, []byte(chunk))
			y, py := slow.slowly(nil, nil, []byte(chunk))
			if !bytes.Equal(x, y) || px.Real != py.Real || (px.Failure == nil) != (py.Failure == nil) || fast.delivered != slow.delivered {
				t.Fatalf("%s\nfast %+v %d %s\nslow %+v %d %s", chunk, px, fast.delivered, x, py, slow.delivered, y)
			}
		}
	})
}
