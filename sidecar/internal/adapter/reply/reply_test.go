package reply_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// note settles one token more than the provider stated.
func note(dst []byte, u exchange.Usage, _ adapter.Delivered) ([]byte, exchange.Usage) {
	u.Source = exchange.FromProvider
	u.Output++
	return append(dst, `{"own":true}`...), u
}

// escaped is a text as it stands inside of JSON.
func escaped(s string) []byte {
	b := adapter.AppendString(nil, s)
	return b[1 : len(b)-1]
}

type chunk struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Delta struct {
			Role, Content *string
			Calls         []struct {
				Index    int
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	Usage *struct {
		Completion int64 `json:"completion_tokens"`
	}
	Gateway *struct{ Own bool } `json:"x_gateway"`
}

// TestSingle: whatever is said, each chunk is JSON of the same head, the role comes first and once, the texts are what was
// said, what was sent is counted, and usage stands where it was asked for and only there.
func TestSingle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &exchange.Request{ID: "r", Model: `al"ias`, CreatedUnix: 5, IncludeUsage: rapid.Bool().Draw(t, "usage")}
		s := reply.NewSingle(r, note)
		id := "r"
		if rapid.Bool().Draw(t, "named") {
			s.Name("")
			s.Name("theirs")
			id = "theirs"
		}
		var out []byte
		var said strings.Builder
		var names, arguments []string
		size := 0
		for range rapid.IntRange(0, 8).Draw(t, "pieces") {
			text := rapid.String().Draw(t, "text")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				out = s.Done(reply.AppendEscaped(append(s.Delta(out), `"x":0`...), "content", escaped(text)))
				said.WriteString(text)
				continue
			case 1:
				out = s.Call(out, "id"+text, text)
				names, arguments = append(names, text), append(arguments, "")
			default:
				if len(names) == 0 {
					continue
				}
				out = s.Arguments(out, escaped(text), int64(len(text)))
				arguments[len(arguments)-1] += text
			}
			size += len(text)
		}
		s.Name("too late")
		out = s.Begin(out)
		out = s.End(out, exchange.Usage{Tokens: exchange.Tokens{Output: 2}}, "", reply.AppendUsage)
		if got := s.Delivered().Bytes; got != int64(size) {
			t.Fatalf("%d bytes sent, %d counted", size, got)
		}
		out, done := bytes.CutSuffix(out, []byte("data: [DONE]\n\n"))
		if !done {
			t.Fatalf("no [DONE]: %s", out)
		}
		var content strings.Builder
		heard := make([]string, len(names))
		events := bytes.Split(bytes.TrimSuffix(out, []byte("\n\n")), []byte("\n\n"))
		for i, event := range events {
			var c chunk
			if err := json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &c); err != nil {
				t.Fatalf("%s: %v", event, err)
			}
			if c.ID != id && s.ID != "too late" || c.Object != "chat.completion.chunk" || c.Model != r.Model || c.Created != 5 {
				t.Fatalf("head of %s", event)
			}
			last := r.IncludeUsage && i == len(events)-1
			if last != (c.Usage != nil) || last != (len(c.Choices) == 0) || last && (c.Usage.Completion != 3 || !c.Gateway.Own) {
				t.Fatalf("usage in %s", event)
			}
			if r.IncludeUsage != bytes.Contains(event, []byte(`"usage":`)) {
				t.Fatalf("usage of %s", event)
			}
			if last {
				continue
			}
			d := c.Choices[0].Delta
			if (i == 0) != (d.Role != nil) {
				t.Fatalf("role in %s", event)
			}
			if d.Content != nil {
				content.WriteString(*d.Content)
			}
			for _, call := range d.Calls {
				if call.Function.Name != "" && (call.Function.Name != names[call.Index] || call.ID != "id"+names[call.Index]) {
					t.Fatalf("call in %s", event)
				}
				heard[call.Index] += call.Function.Arguments
			}
		}
		if content.String() != said.String() || strings.Join(heard, "|") != strings.Join(arguments, "|") {
			t.Fatalf("%q and %q became %q and %q", said.String(), arguments, content.String(), heard)
		}
		if u, told := s.Told(); told != r.IncludeUsage || told && u.Output != 3 {
			t.Fatalf("told %+v", u)
		}
	})
}

// TestCut: a stream ends well only when all of it came and nothing broke.
func TestCut(t *testing.T) {
	s := reply.NewSingle(&exchange.Request{}, note)
	if f := s.Cut(true); f != nil {
		t.Errorf("%+v", f)
	}
	if f := s.Cut(false); f == nil || f.Kind != exchange.FailCut || f.Code != adapter.CodeCut {
		t.Errorf("%+v", f)
	}
	if p := s.Broke(adapter.InvalidAnswer("x")); p.Failure == nil || s.Cut(true) == nil {
		t.Error("a broken stream ended well")
	}
}

// TestMessage: what was not said is not there; a call without a text has null for it.
func TestMessage(t *testing.T) {
	call := append(reply.AppendCall([]byte("{"), "c", "f", "{}"), '}')
	for want, m := range map[string]reply.Message{
		`{"role":"assistant","content":"","refusal":null}`: {},
		`{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`: {Calls: call},
		`{"role":"assistant","content":"a\n","refusal":null,"reasoning_content":"t","reasoning_details":[{"type":"reasoning.text","format":"anthropic-claude-v1","index":0,"text":"t","signature":"s"}]}`: {
			Text: []byte(`a\n`), Thinking: []byte("t"), Details: reply.AppendThought(nil, adapter.ThinkingFormat, 0, prompt.Thought{Text: "t", Signature: "s"}),
		},
		`{"role":"assistant","content":"","refusal":null,"reasoning_details":[{"type":"reasoning.encrypted","format":"anthropic-claude-v1","index":1,"data":"d"}]}`: {
			Details: reply.AppendThought(nil, adapter.ThinkingFormat, 1, prompt.Thought{Redacted: true, Text: "d"}),
		},
	} {
		if got := string(m.Append(nil)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestObject: an answer is one JSON object, or none.
func TestObject(t *testing.T) {
	if v, f := reply.Object([]byte(" {\"a\":1}\n")); f != nil || v.Get("a").Int() != 1 {
		t.Errorf("%v %+v", v, f)
	}
	for _, body := range []string{"", " ", "[]", "{", "<html>", `{"a":1}{`, strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600)} {
		if _, f := reply.Object([]byte(body)); f == nil || f.Kind != exchange.FailInvalid {
			t.Errorf("%.20s: %+v", body, f)
		}
	}
}

// TestArguments: whatever a provider gives a call, callers get a text.
func TestArguments(t *testing.T) {
	for in, want := range map[string]string{
		`{ "a" : 1 }`: `{"a":1}`, `[ 1 ]`: `[1]`, `"{\"a\": 1}"`: `{"a": 1}`, `""`: "{}", `null`: "{}", `7`: "{}", ``: "{}",
	} {
		if got := reply.Arguments(gjson.Parse(in)); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
