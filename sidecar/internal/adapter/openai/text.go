package openai

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"
)

// oneLine makes valid JSON stand on one line, as an event's data must. Line ends are bare only between its tokens, so
// a space does as well.
func oneLine(doc []byte) []byte {
	if !bytes.ContainsAny(doc, "\r\n") {
		return doc
	}
	doc = bytes.Clone(doc)
	for i, c := range doc {
		if c == '\r' || c == '\n' {
			doc[i] = ' '
		}
	}
	return doc
}

func quote(s string) []byte { return gjson.AppendJSONString(nil, s) }

// flatten joins the text of content parts (Mistral).
func flatten(parts gjson.Result) string {
	var s string
	parts.ForEach(func(_, p gjson.Result) bool {
		if p.Type == gjson.String {
			s += p.Str
		} else if t := p.Get("text"); t.Type == gjson.String && p.Get("type").Str != "thinking" {
			s += t.Str
		}
		return true
	})
	return s
}

// thinking joins the thinking parts of content parts (Mistral).
func thinking(parts gjson.Result) string {
	var s string
	parts.ForEach(func(_, p gjson.Result) bool {
		if p.Get("type").Str == "thinking" {
			if t := p.Get("thinking"); t.IsArray() {
				s += flatten(t)
			} else {
				s += t.Str
			}
		}
		return true
	})
	return s
}

// details joins the texts and summaries of reasoning details (OpenRouter). What is encrypted has none.
func details(list gjson.Result) string {
	var s string
	list.ForEach(func(_, d gjson.Result) bool {
		for _, name := range [...]string{"text", "summary"} {
			if t := d.Get(name); t.Type == gjson.String {
				s += t.Str
			}
		}
		return true
	})
	return s
}

// finishReasons maps what servers say to OpenAI's words, which clients read as an enumeration.
var finishReasons = map[string]string{
	"stop": "stop", "length": "length", "tool_calls": "tool_calls", filtered: filtered, "function_call": "function_call",
	"eos": "stop", "end_turn": "stop", "stop_sequence": "stop", "eos_token": "stop", "STOP": "stop",
	"max_tokens": "length", "model_length": "length", "MAX_TOKENS": "length", "model_context_window_exceeded": "length",
	"tool_use": "tool_calls", "tool_call": "tool_calls",
	"SAFETY": filtered, "RECITATION": filtered, "PROHIBITED_CONTENT": filtered, "BLOCKLIST": filtered, "SPII": filtered,
	"refusal": filtered,
}

const filtered = "content_filter"

// broken says that a finish reason means failure.
func broken(reason string) bool {
	switch reason {
	case "error", "abort", "insufficient_system_resource", "malformed_function_call", "MALFORMED_FUNCTION_CALL":
		return true
	}
	return false
}

// mendFinish is the raw finish_reason a caller should see, and whether it differs from v.
func mendFinish(v gjson.Result, calls bool) (raw string, differs bool) {
	if v.Type != gjson.String {
		return "null", v.Type != gjson.Null
	}
	if v.Str == "" {
		return "null", true
	}
	to, ok := finishReasons[v.Str]
	switch {
	case ok:
	case strings.HasPrefix(v.Str, filtered+":"): // Gemini says behind it what for
		to = filtered
	default: // whatever it is, the answer has come to an end
		to = "stop"
	}
	if calls && to == "stop" {
		to = "tool_calls"
	}
	return string(quote(to)), to != v.Str
}
