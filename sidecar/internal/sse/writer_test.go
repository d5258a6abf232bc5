package sse

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWriters(t *testing.T) {
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{"data", AppendData(nil, []byte(`{"a":1}`)), "data: {\"a\":1}\n\n"},
		{"appends", AppendData([]byte("x"), []byte("1")), "xdata: 1\n\n"},
		{"lines", AppendData(nil, []byte("a\nb\r\nc\rd\n")), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"event", AppendEvent(nil, "error", []byte("{}")), "event: error\ndata: {}\n\n"},
		{"event without name", AppendEvent(nil, "", []byte("{}")), "data: {}\n\n"},
		{"comment", AppendComment(nil, "keep-alive"), KeepAlive},
		{"done", AppendData(nil, []byte("[DONE]")), Done},
	} {
		if string(tc.got) != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, tc.got, tc.want)
		}
	}
}

func TestALineEndInAFieldIsABug(t *testing.T) {
	for name, f := range map[string]func(){
		"name":    func() { AppendEvent(nil, "a\nb", nil) },
		"comment": func() { AppendComment(nil, "a\rdata: x") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// What is written is read back as exactly one event, whatever the content is.
func TestWriteRead(t *testing.T) {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-z_.]{0,10}`).Draw(rt, "name")
		data := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a\r\n: ]{0,20}`)).Draw(rt, "data")
		out, err := play(&Reader{}, AppendEvent(AppendComment(nil, "c"), name, []byte(data)))
		if err != nil || len(out) != 1 || out[0] != (got{name: name, data: ends.Replace(data)}) {
			rt.Fatalf("%q %q: got %v, %v", name, data, out, err)
		}
	})
}
