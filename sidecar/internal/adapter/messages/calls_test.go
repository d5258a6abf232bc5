package messages

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// callPiece is a chunk with a piece of a call.
func callPiece(index, id, name, arguments string) string {
	return chunk(`{"tool_calls":[{"index":`+index+`,"id":"`+id+`","type":"function","function":{"name":"`+name+`","arguments":`+arguments+`}}]}`, "null")
}

// TestCalls: chat may go on with an earlier call, Anthropic may not. Calls come one after the other and whole.
func TestCalls(t *testing.T) {
	for name, row := range map[string]struct {
		chunks []string
		want   string
	}{
		"one after the other": {
			[]string{callPiece("0", "t1", "f", `"{\"a\":"`), callPiece("0", "", "", `"1}"`), callPiece("1", "t2", "g", `"{}"`)},
			`t1 f {"a":1}; t2 g {}`,
		},
		"heads first": {
			[]string{
				callPiece("0", "t1", "f", `""`), callPiece("1", "t2", "g", `""`), callPiece("2", "t3", "h", `""`),
				callPiece("1", "", "", `"{\"b\":2}"`), callPiece("0", "", "", `"{\"a\":"`), callPiece("0", "", "", `"1}"`), callPiece("2", "", "", `"{}"`),
			},
			`t1 f {"a":1}; t2 g {"b":2}; t3 h {}`,
		},
		"in turns": {
			[]string{
				callPiece("0", "t1", "f", `"{\"a\":"`), callPiece("1", "t2", "g", `"{\"b\":"`), callPiece("0", "", "", `"\"x}\""`),
				callPiece("1", "", "", `"2"`), callPiece("0", "", "", `"}"`), callPiece("1", "", "", `"}"`),
			},
			`t1 f {"a":"x}"}; t2 g {"b":2}`,
		},
		"without arguments": {
			[]string{callPiece("0", "t1", "f", `""`), callPiece("1", "t2", "g", `"{\"b\":2}"`), callPiece("0", "", "", `""`)},
			`t1 f ; t2 g {"b":2}`,
		},
		"cut off": {
			[]string{callPiece("0", "t1", "f", `"{\"a\":"`), callPiece("1", "t2", "g", `"{\"b\":"`), chunk(`{"content":"so"}`, "null"), callPiece("2", "t3", "h", `"{}"`)},
			`t1 f {"a":; text so; t2 g {"b":; t3 h {}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := blocks(t, run(t, append(row.chunks, chunk(`{}`, `"tool_calls"`), counted, "[DONE]")...)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
	ended := []string{callPiece("0", "t1", "f", `"{}"`), callPiece("1", "t2", "g", `"{}"`), callPiece("0", "", "", `""`)}
	if _, f := translated(append(ended, chunk(`{}`, `"tool_calls"`), counted, "[DONE]")); f != nil {
		t.Errorf("nothing more of a call: %+v", f)
	}
	blank := append(ended, callPiece("0", "", "", `" \n"`), callPiece("1", "", "", `" "`))
	if got := blocks(t, run(t, append(blank, chunk(`{}`, `"tool_calls"`), counted, "[DONE]")...)); got != `t1 f {}; t2 g {} ` {
		t.Errorf("white space behind a call: %s", got)
	}
	s := Face{openai.New()}.Stream(&exchange.Request{Operation: exchange.Chat, Model: "m", Stream: true, Choices: 1}, note)
	for _, c := range ended {
		s.Event(nil, nil, []byte(c))
	}
	out, p := s.Event(nil, nil, []byte(callPiece("0", "", "", `"1"`)))
	if p.Failure == nil || len(out) > 0 {
		t.Fatal("more of a call that has ended is lost")
	}
	cut := *p.Failure
	cut.Kind = exchange.FailCut // as it is once tokens were delivered
	if told := string(s.Abort(nil, &cut)); !strings.Contains(told, `"error_code":"upstream_invalid_response"`) {
		t.Errorf("nothing was truncated: %s", told)
	}
}

// blocks are the blocks of a stream in a few words. One is open at a time.
func blocks(t *testing.T, out string) string {
	t.Helper()
	var all []string
	open := -1
	for e := range strings.SplitSeq(strings.TrimSuffix(out, "\n\n"), "\n\n") {
		_, data, _ := strings.Cut(e, "\ndata: ")
		doc := gjson.Parse(data)
		switch doc.Get("type").Str {
		case "content_block_start":
			if open >= 0 || doc.Get("index").Int() != int64(len(all)) {
				t.Fatalf("block %d is open: %s", open, data)
			}
			open = len(all)
			b := doc.Get("content_block")
			if all = append(all, "text "); b.Get("type").Str == "tool_use" {
				all[open] = b.Get("id").Str + " " + b.Get("name").Str + " "
			}
		case "content_block_delta":
			if doc.Get("index").Int() != int64(open) {
				t.Fatalf("block %d is open: %s", open, data)
			}
			all[open] += doc.Get("delta.partial_json").Str + doc.Get("delta.text").Str
		case "content_block_stop":
			open = -1
		}
	}
	return strings.Join(all, "; ")
}
