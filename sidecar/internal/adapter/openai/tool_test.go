package openai

import (
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
)

// TestCallsTakenApart: servers state where a call begins in many ways; callers get each call once and whole.
func TestCallsTakenApart(t *testing.T) {
	chunk := func(entries ...string) string { return delta(`"tool_calls":[` + strings.Join(entries, ",") + `]`) }
	entry := func(index, id, name, arguments string) string {
		var b strings.Builder
		b.WriteString("{")
		if index != "" {
			b.WriteString(`"index":` + index + `,`)
		}
		if id != "" {
			b.WriteString(`"id":"` + id + `",`)
		}
		b.WriteString(`"function":{`)
		if name != "" {
			b.WriteString(`"name":"` + name + `",`)
		}
		return b.String() + `"arguments":"` + arguments + `"}}`
	}
	made := func(at int) string { return adapter.CallID(`"c1"`, 0, at) }
	const whole = `{\"x\":\"}\"}`
	const x = `{"x":"}"}`
	for name, c := range map[string]struct {
		list []string
		want []adaptertest.Call
	}{
		"whole ones at index 0, a chunk each": {
			[]string{chunk(entry("0", "", "f", whole)), chunk(entry("0", "", "g", whole))},
			[]adaptertest.Call{{made(0), "f", x}, {made(1), "g", x}},
		},
		"the same tool twice at index 0": {
			[]string{chunk(entry("0", "", "f", whole)), chunk(entry("0", "", "f", whole))},
			[]adaptertest.Call{{made(0), "f", x}, {made(1), "f", x}},
		},
		"whole ones at index 0, in one chunk": {
			[]string{chunk(entry("0", "", "f", whole), entry("0", "", "f", whole), entry("0", "", "f", ``))},
			[]adaptertest.Call{{made(0), "f", x}, {made(1), "f", x}, {made(2), "f", ""}},
		},
		"no index, no id, a chunk each": {
			[]string{chunk(entry("", "", "f", `{}`)), chunk(entry("", "", "f", `{}`)), chunk(entry("", "", "g", ``))},
			[]adaptertest.Call{{made(0), "f", `{}`}, {made(1), "f", `{}`}, {made(2), "g", ``}},
		},
		"without arguments, then another": {
			[]string{chunk(entry("0", "", "f", ``)), chunk(entry("0", "", "g", ``))},
			[]adaptertest.Call{{made(0), "f", ``}, {made(1), "g", ``}},
		},
		"a late id": {
			[]string{chunk(entry("0", "", "f", ``)), chunk(entry("0", "t1", "", `{\"x\":`)), chunk(entry("0", "t1", "", `1}`))},
			[]adaptertest.Call{{made(0), "f", `{"x":1}`}},
		},
		"a late id, then another call": {
			[]string{chunk(entry("0", "", "f", `{`)), chunk(entry("0", "t1", "", `}`)), chunk(entry("0", "t2", "g", `{}`))},
			[]adaptertest.Call{{made(0), "f", `{}`}, {"t2", "g", `{}`}},
		},
		"a late id, then the same tool": {
			[]string{chunk(entry("0", "", "f", ``)), chunk(entry("0", "t1", "", ``)), chunk(entry("0", "t2", "f", `{}`))},
			[]adaptertest.Call{{made(0), "f", ``}, {"t2", "f", `{}`}},
		},
		"a late id without an index": {
			[]string{chunk(entry("", "", "f", `{`)), chunk(entry("", "t1", "", `}`))},
			[]adaptertest.Call{{made(0), "f", `{}`}},
		},
		"a late name": {
			[]string{chunk(entry("0", "t1", "", ``)), chunk(entry("0", "", "f", `{}`)), chunk(entry("0", "", "g", ``))},
			[]adaptertest.Call{{"t1", "f", `{}`}, {made(1), "g", ``}},
		},
		"the name in every piece": {
			[]string{chunk(entry("0", "t1", "f", `{\"x\"`)), chunk(entry("0", "t1", "f", `:1`)), chunk(entry("0", "", "f", `}`)), chunk(entry("0", "", "f", ``))},
			[]adaptertest.Call{{"t1", "f", `{"x":1}`}},
		},
		"braces and quotes in a text do not end a call": {
			[]string{chunk(entry("0", "", "f", `{\"x\":\"\\\"}`)), chunk(entry("0", "", "f", `\u0022}`))},
			[]adaptertest.Call{{made(0), "f", `{"x":"\"}"}`}},
		},
		"interleaved": {
			[]string{chunk(entry("0", "t1", "f", ``), entry("1", "t2", "g", ``)), chunk(entry("1", "", "", `{`), entry("0", "", "", `{`)), chunk(entry("0", "", "", `}`)), chunk(entry("1", "", "", `}`))},
			[]adaptertest.Call{{"t1", "f", `{}`}, {"t2", "g", `{}`}},
		},
		"pieces after a second call at one index": {
			[]string{chunk(entry("0", "t1", "f", `{}`)), chunk(entry("0", "t2", "g", ``)), chunk(entry("0", "", "", `{`)), chunk(entry("0", "", "", `}`))},
			[]adaptertest.Call{{"t1", "f", `{}`}, {"t2", "g", `{}`}},
		},
		"entries that say nothing": {
			[]string{chunk(`{}`, entry("0", "t1", "f", `{`), `null`), chunk(`null`, entry("0", "", "", `}`), `{}`)},
			[]adaptertest.Call{{"t1", "f", `{}`}},
		},
		"a function that is empty or missing": {
			[]string{chunk(`{"index":0,"id":"t1","type":"function","function":{}}`, `{"index":1,"id":"t2"}`)},
			[]adaptertest.Call{{"t1", "", ``}, {"t2", "", ``}},
		},
		"an id made up for every piece": {
			[]string{chunk(entry("0", "t1", "f", ``)), chunk(entry("0", "t2", "", `{\"x\":`)), chunk(entry("0", "t3", "", `1}`)), chunk(`{"index":0,"id":"t4","type":"function"}`), chunk(entry("0", "t5", "f", `{}`))},
			[]adaptertest.Call{{"t1", "f", `{"x":1}`}, {"t5", "f", `{}`}},
		},
		"an id made up for every piece, two calls": {
			[]string{chunk(entry("0", "t1", "f", ``)), chunk(entry("1", "t2", "g", ``)), chunk(entry("0", "t3", "", `{}`)), chunk(entry("1", "t4", "", `[]`))},
			[]adaptertest.Call{{"t1", "f", `{}`}, {"t2", "g", `[]`}},
		},
		"a name in pieces": {
			[]string{chunk(entry("0", "t1", "get_", ``)), chunk(entry("0", "", "weather", ``)), chunk(entry("0", "", "", `{}`)), chunk(entry("1", "t2", "f", ``)), chunk(entry("1", "t2", "g", `{}`))},
			[]adaptertest.Call{{"t1", "get_weather", `{}`}, {"t2", "fg", `{}`}},
		},
		"a name in pieces, said again": {
			[]string{chunk(entry("0", "t1", "get_", ``)), chunk(entry("0", "t1", "weather", ``)), chunk(entry("0", "t1", "get_weather", `{`)), chunk(entry("0", "t1", "get_", `}`))},
			[]adaptertest.Call{{"t1", "get_weather", `{}`}},
		},
		"the name in every piece, before the arguments": {
			[]string{chunk(entry("0", "t1", "f", ``)), chunk(entry("0", "", "f", ``)), chunk(entry("0", "", "f", `{}`))},
			[]adaptertest.Call{{"t1", "f", `{}`}},
		},
		"a kind of its own, twice": {
			[]string{chunk(`{"index":0,"id":"t1","type":"mcp","mcp":{"x":1}}`), chunk(`{"index":0,"id":"t2","type":"mcp","mcp":{"x":2}}`)},
			[]adaptertest.Call{{"t1", "", ``}, {"t2", "", ``}},
		},
		"a kind of its own": {
			[]string{chunk(`{"index":0,"id":"t1","type":"mcp","mcp":{"x":1}}`, entry("1", "t2", "f", `{}`))},
			[]adaptertest.Call{{"t1", "", ``}, {"t2", "f", `{}`}},
		},
		"null arguments": {
			[]string{chunk(`{"index":0,"id":"t1","type":null,"function":{"name":"f","arguments":null}}`), chunk(`{"index":0,"function":{"arguments":null}}`)},
			[]adaptertest.Call{{"t1", "f", ``}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := translate(t, true, append(c.list, finished, done)...).seen(t).First()
			if len(got.Calls) != len(c.want) || got.Finish != "tool_calls" {
				t.Fatalf("got %+v", got)
			}
			for i, want := range c.want {
				if got.Calls[i] != want {
					t.Errorf("call %d is %+v, want %+v", i, got.Calls[i], want)
				}
			}
		})
	}
}

// TestNamesInPiecesByFace: callers of other dialects are told a name when its call begins. One that goes on behind it breaks
// the stream off: they would call another tool.
func TestNamesInPiecesByFace(t *testing.T) {
	piece := func(name string) string {
		return delta(`"tool_calls":[{"index":0,"id":"t1","function":{"name":"` + name + `","arguments":""}}]`)
	}
	for name, face := range map[string]adapter.Face{"messages": messages.Face{Adapter: New()}, "responses": responses.Face{Adapter: New()}} {
		for second, breaks := range map[string]bool{"weather": true, "get_": false} {
			st := face.Stream(ask(true), note)
			out, _ := st.Event(nil, nil, []byte(piece("get_")))
			if _, p := st.Event(out, nil, []byte(piece(second))); (p.Failure != nil) != breaks {
				t.Errorf("%s, %s: %+v", name, second, p.Failure)
			}
		}
		st := face.Stream(ask(true), note)
		out, f := adaptertest.Translate(t, st, piece("f"), delta(`"tool_calls":[{"index":0,"id":"t2","function":{"arguments":"{}"}}]`), finished, done)
		if f != nil || !strings.Contains(string(out), `"t1"`) || strings.Contains(string(out), "t2") {
			t.Errorf("%s: an id made up for every piece: %s, %+v", name, out, f)
		}
	}
}

func TestTooManyCalls(t *testing.T) {
	entries := strings.Repeat(`{"function":{"name":"f","arguments":"{}"}},`, callsMax+1)
	got := translate(t, true, delta(`"tool_calls":[`+strings.TrimSuffix(entries, ",")+`]`))
	if got.failure == nil || len(got.out) > 0 || got.Delivered().Bytes != 0 {
		t.Errorf("%+v", got)
	}
}
