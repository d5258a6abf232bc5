package messages_test

import (
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/bedrock"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// TestMarks: what is worth keeping in a cache is said to models that have to be told, and to nobody else.
func TestMarks(t *testing.T) {
	const mark, point = `"cache_control":{"type":"ephemeral"}`, `{"cachePoint":{"type":"default"}}`
	const system = `"system":[{"type":"text","text":"s",` + mark + `},{"type":"text","text":"z"}],`
	const result = `{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{},` + mark + `}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":`
	const call = `{"role":"user","content":[{"text":"q"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"t1","name":"f","input":{}}}]},` +
		`{"role":"user","content":[{"toolResult":{"toolUseId":"t1","content":[{"text":"r"}]}},` + point
	for name, row := range map[string]struct{ in, want string }{
		"system": {system + `"messages":[{"role":"user","content":"q"}]`,
			`{"messages":[{"role":"user","content":[{"text":"q"}]}],"system":[{"text":"s"},` + point + `,{"text":"z"}]`},
		"text": {`"messages":[{"role":"user","content":[{"type":"text","text":"q",` + mark + `},{"type":"text","text":"z","cache_control":null}]}]`,
			`[{"text":"q"},` + point + `,{"text":"z"}]`},
		"picture": {`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="},` + mark + `}]}]`,
			`[{"image":{"format":"png","source":{"bytes":"AA=="}}},` + point + `]`},
		"result":                 {`"messages":[` + result + `"r",` + mark + `}]}]`, call + `]}`},
		"block of a result":      {`"messages":[` + result + `[{"type":"text","text":"r",` + mark + `}]},{"type":"text","text":"z"}]}]`, call + `,{"text":"z"}]}`},
		"whole request":          {mark + `,"messages":[{"role":"user","content":"q"}]`, `[{"text":"q"},` + point + `]`},
		"whole, behind a result": {mark + `,"messages":[` + result + `"r"}]}]`, call + `]}`},
	} {
		native := []byte(`{"model":"m","max_tokens":9,"tools":[{"name":"f","input_schema":{"type":"object"},` + mark + `}],` + row.in + `}`)
		body, f := messages.Chat(native, nil)
		if f != nil {
			t.Fatalf("%s: %+v", name, f)
		}
		r := &exchange.Request{Operation: exchange.Chat, Dialect: exchange.MessagesDialect, Model: "m", Native: native, Body: body}
		for model, told := range map[string]bool{"amazon.nova-pro-v1:0": true, "meta.llama3-1-8b-instruct-v1:0": false} {
			sent, f := messages.Face{Adapter: bedrock.New()}.Request(r, &exchange.Deployment{Provider: "bedrock", Model: "arn", BaseModel: model}, nil)
			want := row.want
			if !told {
				want = strings.ReplaceAll(strings.ReplaceAll(want, point+",", ""), ","+point, "")
			}
			if f != nil || !strings.Contains(string(sent.Body), want) || !told && strings.Contains(string(sent.Body), "cachePoint") {
				t.Errorf("%s, %s: %+v\ngot  %s\nwant %s", name, model, f, sent.Body, want)
			}
		}
		sent, f := messages.Face{Adapter: openai.New()}.Request(r, &exchange.Deployment{Provider: "compatible", Model: "x"}, nil)
		if f != nil || strings.Contains(string(sent.Body), "cache") {
			t.Errorf("%s: %+v %s", name, f, sent.Body)
		}
	}
}
