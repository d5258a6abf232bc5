package prompt_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
)

// TestNothingLost: all that a well-formed conversation says is read, in its order and to the letter, and nothing besides.
func TestNothingLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.String() // quotes, controls and letters beyond ASCII
		id := rapid.StringN(1, 8, -1)
		type object map[string]any
		var messages []object
		var want []string // what is to be found, by kind
		say := func(s string) string {
			if s != "" {
				want = append(want, "text "+s)
			}
			return s
		}
		parts := func(kinds ...string) any {
			list := []object{}
			for range rapid.IntRange(0, 4).Draw(t, "parts") {
				switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
				case "text":
					list = append(list, object{"type": kind, "text": say(word.Draw(t, "text"))})
				case "image_url":
					url := "https://" + word.Draw(t, "url")
					want = append(want, "image "+url)
					list = append(list, object{"type": kind, kind: object{"url": url}})
				}
			}
			return list
		}
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			m := object{}
			m["role"] = rapid.SampledFrom([]string{"system", "developer", "user", "assistant", "tool"}).Draw(t, "role")
			switch whole := rapid.Bool().Draw(t, "whole"); {
			case m["role"] == "tool":
				name := id.Draw(t, "result of")
				want = append(want, "result "+name)
				m["tool_call_id"], m["content"] = name, parts("text", "image_url")
			case whole:
				m["content"] = say(word.Draw(t, "content"))
			case m["role"] == "user":
				m["content"] = parts("text", "image_url")
			default:
				m["content"] = parts("text")
			}
			if m["role"] == "assistant" {
				calls := []object{}
				for range rapid.IntRange(0, 3).Draw(t, "calls") {
					name, arguments := id.Draw(t, "id"), object{"a": word.Draw(t, "argument")}
					raw, _ := json.Marshal(arguments)
					want = append(want, "call "+name+" "+string(raw))
					calls = append(calls, object{"id": name, "type": "function", "function": object{"name": "f", "arguments": string(raw)}})
				}
				m["tool_calls"] = calls
			}
			messages = append(messages, m)
		}
		messages = append(messages, object{"role": "user", "content": say("end")})
		body, err := json.Marshal(object{"messages": messages})
		if err != nil {
			t.Fatal(err)
		}
		c, f := read(string(body))
		if f != nil {
			t.Fatalf("%s: %+v", body, f)
		}
		var got []string
		for i := range c.Messages {
			m := &c.Messages[i]
			if m.CallID != "" {
				got = append(got, "result "+m.CallID)
			}
			for _, p := range m.Parts {
				kind := "text "
				if p.Kind == prompt.ImagePart {
					kind = "image "
				}
				if gjson.Parse(p.Text.Raw).Str != p.Text.Str {
					t.Fatalf("%+v", p.Text)
				}
				got = append(got, kind+p.Text.Str)
			}
			for _, call := range m.Calls {
				got = append(got, "call "+call.ID+" "+call.Arguments)
			}
		}
		if !slices.Equal(got, want) || len(c.Messages) != len(messages) {
			t.Fatalf("%s:\ngot  %q\nwant %q", body, got, want)
		}
	})
}
