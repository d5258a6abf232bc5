package fakeprovider

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestPromptTokensAreTheSameInBothDialects(t *testing.T) {
	tests := []struct {
		name      string
		openAI    string
		anthropic string
		want      int64
	}{
		{"one message, rounded up",
			`{"model":"m","messages":[{"role":"user","content":"hello"}]}`,
			`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hello"}]}`, 2 + 3},
		{"system and parts, rounded over the sum",
			`{"model":"m","messages":[{"role":"system","content":"abc"},{"role":"user","content":[{"type":"text","text":"abc"},{"type":"text","text":"ab"}]}]}`,
			`{"model":"m","max_tokens":1,"system":"abc","messages":[{"role":"user","content":[{"type":"text","text":"abc"},{"type":"text","text":"ab"}]}]}`, 2 + 6},
		{"bytes, not characters",
			`{"model":"m","messages":[{"role":"user","content":"日本語"}]}`,
			`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"日本語"}]}`, 3 + 3},
		{"image",
			`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`,
			`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}`, 64 + 3},
		{"tool round: two results in one Anthropic message",
			`{"model":"m","messages":[{"role":"user","content":"abcd"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"abcd"},{"role":"tool","tool_call_id":"2","content":"abcd"}]}`,
			`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"abcd"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"abcd"},{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"abcd"}]}]}]}`, 3 + 12},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for endpoint, body := range map[Endpoint]string{EndpointChat: tt.openAI, EndpointMessages: tt.anthropic} {
				req, bad := parseRequest(endpoint, []byte(body))
				if bad != nil {
					t.Fatalf("%s: refused: %+v", endpoint, *bad)
				}
				if got := req.promptTokens(); got != tt.want {
					t.Errorf("%s: prompt tokens = %d, want %d", endpoint, got, tt.want)
				}
			}
		})
	}
}

func TestComposeTools(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C","F"]}}}}},{"type":"function","function":{"name":"now"}}]`
	message := func(text string) string { return `"messages":[{"role":"user","content":"` + text + `"}]` }
	tests := []struct {
		name      string
		body      string
		wantCalls []string
		wantText  int64
		want      finish
	}{
		{"no call asked for", tools + "," + message("hi"), nil, 16, finishStop},
		{"by text", tools + "," + message("please call get_weather!"), []string{"get_weather"}, 0, finishTools},
		{"parallel by text", tools + "," + message("call get_weather and call now"), []string{"get_weather", "now"}, 0, finishTools},
		{"parallel forbidden", tools + `,"parallel_tool_calls":false,` + message("call get_weather, call now"), []string{"get_weather"}, 0, finishTools},
		{"by directive, with text", tools + "," + message("[[call=now tokens=2]]"), []string{"now"}, 2, finishTools},
		{"not offered", message("call now"), nil, 16, finishStop},
		{"unknown name", tools + "," + message("call me"), nil, 16, finishStop},
		{"forbidden", tools + `,"tool_choice":"none",` + message("call now"), nil, 16, finishStop},
		{"required", tools + `,"tool_choice":"required",` + message("hi"), []string{"get_weather"}, 0, finishTools},
		{"named ends in stop", tools + `,"tool_choice":{"type":"function","function":{"name":"now"}},` + message("hi"), []string{"now"}, 0, finishStop},
		{"cap cuts the arguments", tools + `,"max_tokens":3,` + message("call get_weather"), []string{"get_weather"}, 0, finishLength},
		{"after a tool result the call is not repeated", tools + `,"messages":[{"role":"user","content":"call now"},{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"1","content":"12:00"}]`, nil, 16, finishStop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, bad := parseRequest(EndpointChat, []byte(`{"model":"m",`+tt.body+`}`))
			if bad != nil {
				t.Fatalf("refused: %+v", *bad)
			}
			b := NewBehavior()
			settings, err := ParseDirectives(req.control)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Apply(settings); err != nil {
				t.Fatal(err)
			}
			a := compose(&req, &b)
			if len(a.calls) != len(tt.wantCalls) {
				t.Fatalf("calls = %v, want %v", a.calls, tt.wantCalls)
			}
			for i, c := range a.calls {
				if c.name != tt.wantCalls[i] {
					t.Errorf("call %d = %s, want %s", i, c.name, tt.wantCalls[i])
				}
				if !c.cut && !json.Valid([]byte(c.arguments())) {
					t.Errorf("arguments %q are not JSON", c.arguments())
				}
			}
			if a.text != tt.wantText || a.finish != tt.want {
				t.Errorf("text %d finish %d, want %d and %d", a.text, a.finish, tt.wantText, tt.want)
			}
		})
	}
}

func TestComposeKeepsTheCap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		req := request{choices: rapid.Int64Range(1, 5).Draw(rt, "choices"), userTurn: true, parallel: true,
			maxTokens: rapid.Int64Range(-1, 60).Draw(rt, "cap"), tools: []toolSpec{{name: "a"}, {name: "b"}}}
		b := NewBehavior()
		b.Tokens = rapid.Int64Range(-1, 40).Draw(rt, "tokens")
		b.Reasoning = rapid.Int64Range(0, 20).Draw(rt, "reasoning")
		b.Calls = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(rt, "calls")
		a := compose(&req, &b)
		if req.maxTokens >= 0 && a.perChoice() > req.maxTokens {
			rt.Fatalf("%d tokens, cap %d", a.perChoice(), req.maxTokens)
		}
		var pieces, lastStep int64
		for p := range a.pieces() {
			if p.step < lastStep || p.step >= a.perChoice() || p.choice >= a.choices {
				rt.Fatalf("piece out of order: %+v", p)
			}
			pieces, lastStep = pieces+1, p.step
		}
		if pieces != a.total() {
			rt.Fatalf("%d pieces, %d tokens", pieces, a.total())
		}
		if uncapped := req; a.finish != finishLength {
			uncapped.maxTokens = -1
			if free := compose(&uncapped, &b); free.total() != a.total() {
				rt.Fatalf("cut from %d to %d tokens without saying so", free.total(), a.total())
			}
		}
	})
}

func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tokens := rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, math.MaxInt64))
		draw := func(name string) (int64, int64) { return tokens.Draw(rt, name), tokens.Draw(rt, name+" price") }
		var u Usage
		var p Price
		u.Input, p.Input = draw("input")
		u.CacheRead, p.CacheRead = draw("read")
		u.CacheWrite5m, p.CacheWrite5m = draw("write")
		u.CacheWrite1h, p.CacheWrite1h = draw("write 1h")
		u.Output, p.Output = draw("output")
		sum := big.NewInt(500_000)
		for _, pair := range [][2]int64{{u.Input, p.Input}, {u.CacheRead, p.CacheRead}, {u.CacheWrite5m, p.CacheWrite5m},
			{u.CacheWrite1h, p.CacheWrite1h}, {u.Output, p.Output}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(pair[0]), big.NewInt(pair[1])))
		}
		sum.Quo(sum, big.NewInt(1_000_000))
		want := int64(math.MaxInt64)
		if sum.IsInt64() {
			want = sum.Int64()
		}
		if got := p.Cost(u); got != want {
			rt.Fatalf("Cost = %d, want %d", got, want)
		}
	})
}

func TestPromptUsageKeepsTheSum(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.Int64Range(0, 100)
		prompt := n.Draw(rt, "prompt")
		u := promptUsage(prompt, &Behavior{CacheRead: n.Draw(rt, "read"), CacheWrite5m: n.Draw(rt, "5m"), CacheWrite1h: n.Draw(rt, "1h")})
		if u.Prompt() != prompt || min(u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h) < 0 {
			rt.Fatalf("prompt %d became %+v", prompt, u)
		}
	})
}
