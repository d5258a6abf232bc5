package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/bedrock"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// bodies are what callers send: a question; a long conversation of an agent with its tools; a large image.
func bodies() map[string]string {
	var agent strings.Builder
	agent.WriteString(`{"model":"smart","temperature":0.2,"max_tokens":900,"tool_choice":"auto","tools":[`)
	for i := range 20 {
		if i > 0 {
			agent.WriteByte(',')
		}
		fmt.Fprintf(&agent, `{"type":"function","function":{"name":"tool_%d","description":"Does something useful, number %d.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"where"},"depth":{"type":"integer"}},"required":["path"]}}}`, i, i)
	}
	agent.WriteString(`],"messages":[{"role":"system","content":"You are an agent.\nBe brief."}`)
	for i := range 40 {
		fmt.Fprintf(&agent, `,{"role":"user","content":[{"type":"text","text":"Please look at file %d.\nIt is \"important\"."}]}`, i)
		fmt.Fprintf(&agent, `,{"role":"assistant","content":"I will.","tool_calls":[{"id":"call_%d","type":"function","function":{"name":"tool_3","arguments":"{\"path\":\"/a/b/%d\",\"depth\":2}"}}]}`, i, i)
		fmt.Fprintf(&agent, `,{"role":"tool","tool_call_id":"call_%d","content":"%s"}`, i, strings.Repeat(`line of the file\n`, 20))
	}
	agent.WriteString(`]}`)
	return map[string]string{
		"short": `{"model":"smart","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"How deep is the sea?"}],"temperature":0.3,"max_tokens":100}`,
		"agent": agent.String(),
		"image": `{"model":"smart","messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("QUJD", 1<<16) + `"}}]}]}`,
	}
}

// BenchmarkRequest is what it costs to turn a chat request into a provider's.
func BenchmarkRequest(b *testing.B) {
	for _, p := range []struct {
		name, model string
		adapter.Adapter
	}{
		{"anthropic", "claude-fx-5", anthropic.New()},
		{"gemini", "gemini-3-pro", gemini.New()},
		{"bedrock", "us.amazon.nova-pro-v1:0", bedrock.New()},
	} {
		for name, body := range bodies() {
			b.Run(p.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				r := &exchange.Request{Operation: exchange.Chat, Body: []byte(body), Choices: 1, MaxOutput: 100}
				d := &exchange.Deployment{Model: p.model}
				for b.Loop() {
					if _, f := p.Request(r, d, nil); f != nil {
						b.Fatal(f)
					}
				}
			})
		}
	}
}
