package prompt_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// FuzzRead: what is accepted keeps what Chat's fields promise; what is refused is refused by name, and what is malformed
// is so for every vendor and whatever may be dropped.
func FuzzRead(f *testing.F) {
	for _, body := range []string{
		with(`"temperature":0.5,"stop":["a"],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto","n":1`),
		`{"messages":[{"role":"assistant","content":"a","reasoning_details":[{"type":"reasoning.text","index":0,"text":"t","signature":"s"}],"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r","prompt_cache_breakpoint":{}}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a","file_data":"data:text/csv;base64,QQ=="}},{"type":"image_url","image_url":{"url":"data:image/png;base64,Q\/Q="}},{"type":"input_audio","input_audio":{"data":"QQ==","format":"wav"}}]}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},"reasoning_effort":"low","service_tier":"flex"}`,
		with(`"tools":[{"type":"custom"},{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"function":{"name":"f"}}]}},"parallel_tool_calls":false`),
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !adapter.Valid(body) || !gjson.ParseBytes(body).IsObject() || doubled(body) {
			return // the gateway has seen to that
		}
		r := &exchange.Request{Body: slices.Clone(body)}
		c, fault := prompt.Read(r, "One")
		if !bytes.Equal(r.Body, body) {
			t.Fatal("the body was changed")
		}
		r.AllowDropped = []string{"messages", "tools", "tool_choice"}
		again, other := prompt.Read(r, "Other")
		switch {
		case fault == nil:
			holds(t, gjson.ParseBytes(body), c)
			if other != nil || !reflect.DeepEqual(c.Messages, again.Messages) {
				t.Fatalf("what was accepted is not, or otherwise: %+v", other)
			}
		case fault.Kind == exchange.FailRequest:
			if other == nil || *other != *fault {
				t.Fatalf("%+v became %+v", fault, other)
			}
		case fault.Kind != exchange.FailUnsupported:
			t.Fatalf("%+v", fault)
		}
		for _, f := range []*exchange.Failure{fault, other} {
			if f != nil && (f.Param == "" || f.Message == "") {
				t.Fatalf("%+v", f)
			}
		}
	})
}

// doubled reports whether a member stands there twice.
func doubled(body []byte) (twice bool) {
	seen := map[string]bool{}
	gjson.ParseBytes(body).ForEach(func(k, _ gjson.Result) bool {
		twice = twice || seen[k.Str]
		seen[k.Str] = true
		return true
	})
	return twice
}

// holds checks what the fields of a Chat promise.
func holds(t *testing.T, body gjson.Result, c *prompt.Chat) {
	t.Helper()
	said := false
	for i, m := range c.Messages {
		if int(m.Place.Message) != i || m.Place.Part >= 0 {
			t.Fatalf("message %d stands at %v", i, m.Place)
		}
		said = said || m.Role != prompt.System && (m.Role == prompt.Result || len(m.Parts)+len(m.Calls) > 0)
		if (m.CallID != "") != (m.Role == prompt.Result) || len(m.Calls) > 0 && m.Role != prompt.Assistant {
			t.Fatalf("%+v", m)
		}
		for j := range m.Parts {
			part(t, body, &m, &m.Parts[j])
		}
		for j, call := range m.Calls {
			is(t, call.Name)
			sent := at(body, fmt.Sprintf("%s.tool_calls[%d]", m.Place, j))
			if call.ID == "" || call.Name.Str == "" || !prompt.IsObject(call.Arguments) || sent.Get("id").Str != call.ID {
				t.Fatalf("%+v", call)
			}
		}
		for _, th := range m.Thoughts("") {
			if th.Redacted == (th.Signature != "") || !json.Valid([]byte(`"`+th.Text+`"`)) || !json.Valid([]byte(`"`+th.Signature+`"`)) {
				t.Fatalf("%+v", th)
			}
		}
	}
	named := false
	for i := range c.Tools {
		tool := &c.Tools[i]
		is(t, tool.Name)
		named = named || tool.Name.Str == c.Choice.Name
		if tool.Description.Raw != "" {
			is(t, tool.Description)
		}
		schema := tool.AppendSchema(nil)
		if tool.Name.Str == "" || !json.Valid(schema) || !gjson.GetBytes(schema, "type").Exists() ||
			tool.Parameters != "" && !prompt.IsObject(tool.Parameters) {
			t.Fatalf("%+v: %s", tool, schema)
		}
	}
	for i, s := range c.Stop {
		is(t, s)
		if at(body, c.StopAt(i)).Raw != s.Raw {
			t.Fatalf("%+v does not stand at %s", s, c.StopAt(i))
		}
	}
	for _, m := range c.Rest {
		switch m.Name {
		case "messages", "tools", "tool_choice", "stop", "temperature", "model", "user":
			t.Fatalf("%s is left over", m.Name)
		}
	}
	switch {
	case !said:
		t.Fatal("nobody says anything")
	case c.Choice.Forced() && len(c.Tools) == 0, c.Serial && len(c.Tools) == 0, c.Choice.Mode == prompt.Named && !named:
		t.Fatalf("%+v of %d tools", c.Choice, len(c.Tools))
	case c.Temperature.Value < 0 || c.Temperature.Value > 2 || c.TopP.Value < 0 || c.TopP.Value > 1:
		t.Fatalf("%+v %+v", c.Temperature, c.TopP)
	case c.Effort != "" && c.Effort != "none" && adapter.ThinkingTokens(c.Effort) == 0:
		t.Fatal(c.Effort)
	case c.Format.Schema != "" && !prompt.IsObject(c.Format.Schema):
		t.Fatal(c.Format.Schema)
	}
}

func part(t *testing.T, body gjson.Result, m *prompt.Message, p *prompt.Part) {
	t.Helper()
	if p.Place.Message != m.Place.Message || p.Place.Part >= 0 && !at(body, p.Place.String()).IsObject() {
		t.Fatalf("%+v stands at %v", p, p.Place)
	}
	if d := p.Data; d.Base64 != "" && (d.Media != strings.ToLower(d.Media) || !json.Valid([]byte(`"`+d.Base64+`"`))) {
		t.Fatalf("%+v", d)
	}
	switch p.Kind {
	case prompt.TextPart, prompt.ImagePart:
		is(t, p.Text)
		if p.Text.Str == "" || p.In("data:") && p.Kind == prompt.ImagePart && p.Data.Base64 == "" {
			t.Fatalf("%+v", p)
		}
	case prompt.FilePart:
		if name := p.File.Name; name.Raw != "" {
			is(t, name)
		}
	case prompt.AudioPart:
		if data, _, f := p.Audio(); f == nil && (data == "" || !json.Valid([]byte(`"`+data+`"`))) {
			t.Fatalf("%q", data)
		}
	}
	if p.Kind != prompt.TextPart && m.Role != prompt.User && (m.Role != prompt.Result || p.Kind != prompt.ImagePart) {
		t.Fatalf("role %d has a part of kind %d", m.Role, p.Kind)
	}
}

// is checks that a text is JSON, and says what it says.
func is(t *testing.T, s prompt.Text) {
	t.Helper()
	v := gjson.Parse(s.Raw)
	if !json.Valid([]byte(s.Raw)) || v.Type != gjson.String || v.Str != s.Str {
		t.Fatalf("%+v", s)
	}
}

// at finds what stands at a param.
func at(body gjson.Result, param string) gjson.Result {
	return body.Get(regexp.MustCompile(`\[(\d+)\]`).ReplaceAllString(param, ".$1"))
}
