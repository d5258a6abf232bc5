package responses_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
)

// TestAlike: what a model says by way of chat comes in the events that OpenAI sends when it says the same, in their order
// and with all of their members.
func TestAlike(t *testing.T) {
	raw, err := os.ReadFile("testdata/responses-stream.http")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	wantNames, want := read(t, body)
	events := eventsOf(t, ask(true),
		chunk(`{"role":"assistant","content":""}`, "null"), chunk(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}`, "null"),
		chunk(`{"content":"Two "}`, "null"), chunk(`{"content":"swans."}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"id":"call_fxR1","type":"function","function":{"name":"count_birds","arguments":""}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"kind\":"}}]}`, "null"),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"\"swan\"}"}}]}`, "null"),
		chunk(`{}`, `"tool_calls"`), counted, "[DONE]")
	var names []string
	for _, e := range events {
		names = append(names, gjson.Get(e, "type").Str)
	}
	if !slices.Equal(names, wantNames) {
		t.Fatalf("got  %v\nwant %v", names, wantNames)
	}
	for i := range want {
		alike(t, names[i], gjson.Parse(events[i]), gjson.Parse(want[i]))
	}
}

// alike holds that got has what want has; ids, times, names and counts are an answer's own.
func alike(t *testing.T, at string, got, want gjson.Result) {
	t.Helper()
	own := []string{"id", "item_id", "model", "created_at"}
	want.ForEach(func(k, w gjson.Result) bool {
		at := at + "." + k.String()
		g := got.Get(gjson.Escape(k.String()))
		switch {
		case !g.Exists() || g.Type != w.Type || g.IsArray() != w.IsArray():
			t.Errorf("%s is %s, want %s", at, g.Raw, w.Raw)
		case w.IsArray() && len(g.Array()) != len(w.Array()):
			t.Errorf("%s is %s, want %s", at, g.Raw, w.Raw)
		case w.IsObject(), w.IsArray():
			if w.IsArray() {
				for i, one := range w.Array() {
					alike(t, at, g.Array()[i], one)
				}
				return true
			}
			alike(t, at, g, w)
		case w.Type == gjson.String && !slices.Contains(own, k.Str) && g.Str != w.Str, k.Str == "sequence_number" && g.Raw != w.Raw:
			t.Errorf("%s is %s, want %s", at, g.Raw, w.Raw)
		}
		return true
	})
}
