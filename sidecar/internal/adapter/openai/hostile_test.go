package openai

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
)

// TestHostile: what a server might send that has all of this dialect in its hands, and nobody's library to check it with.
// Nothing of it may be lost, and nothing made up.
func TestHostile(t *testing.T) {
	const (
		end   = `,"finish_reason":"stop"`
		ended = `,"finish_reason":"tool_calls"`
		stop  = "data: [DONE]\n\n"
		bill  = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`
	)
	used := func(usage string) string { return `data: {"id":"c","choices":[],"usage":` + usage + "}\n\n" }
	calls := func(list string) string { return chunkOf(`"tool_calls":[`+list+`]`, "") }
	whole := func(choice, usage string) string {
		return asJSON + `{"id":"c","object":"chat.completion","choices":[` + choice + `],"usage":` + usage + `}`
	}
	text := chunkOf(`"role":"assistant","content":"Hé"`, "")
	sum := used(`{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`)
	said := `{"status":200,"content":"Hé","finish_reason":"stop"`
	for name, c := range map[string]struct{ raw, want string }{
		"usage that grows, and falls at the end": {
			asStream + text + used(`{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}`) + chunkOf("", end) + sum + stop, said + `,` + bill + `}`,
		},
		"usage twice": {asStream + text + chunkOf("", end) + sum + sum + stop, said + `,` + bill + `}`},
		"usage of the prompt alone, then none": {
			asStream + text + used(`{"prompt_tokens":5}`) + chunkOf("", end) + stop, said + `}`,
		},
		"usage below zero": {
			asStream + text + chunkOf("", end) + used(`{"prompt_tokens":-5,"completion_tokens":-2,"total_tokens":-7}`) + stop, said + `}`,
		},
		"usage beyond any window": {
			asStream + text + chunkOf("", end) + used(`{"prompt_tokens":5,"completion_tokens":123456789012345678901234567890,"total_tokens":1e300}`) + stop, said + `}`,
		},
		"usage of words": {
			asStream + text + chunkOf("", end) + used(`{"prompt_tokens":"many","completion_tokens":"NaN","total_tokens":"Infinity"}`) + stop, said + `}`,
		},
		"more cached than there was": {
			whole(`{"index":0,"message":{"role":"assistant","content":"Hé"},"finish_reason":"stop"}`,
				`{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":-3,"cache_write_tokens":99}}`),
			said + `,"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"cache_write_tokens":5}}`,
		},
		"a call in pieces, another between them": {
			asStream + calls(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}`) +
				calls(`{"index":1,"id":"b","type":"function","function":{"name":"f","arguments":"{\"y\""}}`) +
				calls(`{"index":0,"function":{"arguments":":1}"}}`) + calls(`{"index":1,"function":{"arguments":":2}"}}`) + chunkOf("", ended) + stop,
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":"{\"x\":1}"},{"id":"b","name":"f","arguments":"{\"y\":2}"}]}`,
		},
		"pieces without an index, each with its id": {
			asStream + calls(`{"id":"a","type":"function","function":{"name":"f","arguments":"{"}}`) + calls(`{"id":"b","function":{"name":"g","arguments":"{"}}`) +
				calls(`{"id":"a","function":{"arguments":"}"}}`) + calls(`{"id":"b","function":{"arguments":"}"}}`) + chunkOf("", ended) + stop,
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":"{}"},{"id":"b","name":"g","arguments":"{}"}]}`,
		},
		"indexes as texts": {
			asStream + calls(`{"index":"0","id":"a","type":"function","function":{"name":"f","arguments":""}}`) + calls(`{"index":"1","id":"b","function":{"name":"g","arguments":"{"}}`) +
				calls(`{"index":"0","function":{"arguments":"{}"}}`) + calls(`{"index":"1","function":{"arguments":"}"}}`) + chunkOf("", ended) + stop,
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":"{}"},{"id":"b","name":"g","arguments":"{}"}]}`,
		},
		"a name that comes after its call began": {
			asStream + calls(`{"index":0,"id":"a","type":"function","function":{"name":"","arguments":""}}`) + calls(`{"index":0,"function":{"name":"f","arguments":"{}"}}`) +
				chunkOf("", ended) + stop,
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":"{}"}]}`,
		},
		"one call, no list around it": {
			asStream + chunkOf(`"tool_calls":{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}`, "") + chunkOf("", ended) + stop,
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":"{}"}]}`,
		},
		"a whole call, no list around it": {
			whole(`{"index":0,"message":{"tool_calls":{"type":null,"function":{"name":"f","arguments":{"a":[1, 2]}}},"role":"assistant"},"finish_reason":"stop"}`, `{}`),
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"*generated*","name":"f","arguments":"{\"a\":[1,2]}"}]}`,
		},
		"calls that say nothing": {
			asStream + text + chunkOf(`"tool_calls":{}`, "") + chunkOf(`"tool_calls":[{},null]`, "") + chunkOf(`"tool_calls":null`, end) + stop, said + `}`,
		},
		"no arguments of any kind": {
			whole(`{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":null}}]},"finish_reason":"tool_calls"}`, `{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`),
			`{"finish_reason":"tool_calls","tool_calls":[{"id":"a","name":"f","arguments":""}],` + bill + `}`,
		},
		"a number of a choice that is a text": {
			asStream + `data: {"id":"c","choices":[{"index":"0","delta":{"role":"assistant","content":"Hé"}}]}` + "\n\n" + `data: {"id":"c","choices":[{"index":null,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + stop, said + `}`,
		},
		"a message without a role, and null in its place": {
			whole(`{"index":0,"message":{"content":"Hé"},"finish_reason":"stop"}`, `null`), said + `}`,
		},
		"choices that are null": {
			asStream + `data: {"id":"c","choices":[null,{"index":0,"delta":{"role":null,"content":"Hé"}}]}` + "\n\n" + chunkOf("", end) + `data: {"id":"c","choices":null}` + "\n\n" + stop, said + `}`,
		},
		"the end twice, and words behind it": {
			asStream + text + chunkOf("", end) + chunkOf("", `,"finish_reason":"length"`) + chunkOf(`"content":""`, "") + stop + stop, said + `}`,
		},
		"text with the end, and more after it": {
			asStream + chunkOf(`"role":"assistant","content":"H"`, end) + chunkOf(`"content":"é"`, "") + stop, said + `}`,
		},
		"events with one line end between them": {
			asStream + strings.ReplaceAll(text+chunkOf("", end)+sum+stop, "\n\n", "\n"), said + `,` + bill + `}`,
		},
		"no line end after the last event": {asStream + text + strings.TrimRight(chunkOf("", end), "\n"), said + `}`},
		"fields that nobody knows": {
			asStream + "retry: soon\nid\nnovel: x\n" + text + "event: weather\n" + chunkOf("", end) + stop, said + `}`,
		},
		"an error that is one of its own members": {
			asStream + text + `data: {"error":{"error":{"message":"deep","type":"x"}}}` + "\n\n",
			`{"error":{"type":"upstream_error","code":"upstream_overloaded"},"partial_content":"Hé"}`,
		},
		"an error in the place of the choices": {asJSON + `{"object":"error","message":"busy","type":"server_error","code":503}`, `{"status":503,"error":{"type":"server_error","code":"503"},"retryable":true}`},
		"no error, though its member is there": {
			asStream + strings.Replace(text, `"id":"c"`, `"error":false,"id":"c"`, 1) + strings.Replace(chunkOf("", end), `"id":"c"`, `"error":"","id":"c"`, 1) + stop, said + `}`,
		},
		"reasoning as null, as nothing, and as an object": {
			asStream + chunkOf(`"role":"assistant","reasoning_content":null,"reasoning":""`, "") + chunkOf(`"content":"Hé","reasoning":{}`, end) + stop, said + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) { playQuirk(t, c.raw, c.want) })
	}
}

// TestHalvesOfACharacter: a server may cut between the two halves of a character that JSON writes as two. Who puts the
// texts together has it whole again; in place of a half nothing else may stand.
func TestHalvesOfACharacter(t *testing.T) {
	got := translate(t, false, delta(`"content":"\ud83d"`), delta(`"content":"\ude00"`), finished, done)
	if got.failure != nil || !strings.Contains(string(got.out), `"\ud83d"`) || !strings.Contains(string(got.out), `"\ude00"`) {
		t.Errorf("%+v: %s", got.failure, got.out)
	}
}

// TestWholeRole: a message says whose it is, whether the server did or not.
func TestWholeRole(t *testing.T) {
	for message, want := range map[string]string{
		`{"content":"a"}`:             `{"role":"assistant","content":"a"}`,
		`{"content":"a","role":null}`: `{"content":"a","role":"assistant"}`,
		`{"content":"a","role":""}`:   `{"content":"a","role":"assistant"}`,
		`{"role":"robot"}`:            `{"role":"robot"}`,
		`{}`:                          `{}`,
		`null`:                        `null`,
	} {
		out, _, f := New().Response(ask(false), []byte(`{"choices":[{"message":`+message+`,"finish_reason":"stop"}]}`), note)
		if f != nil || !strings.Contains(string(out), `"message":`+want+`,`) {
			t.Errorf("%s: %+v %s", message, f, out)
		}
	}
}

// TestEmptyFinish: a finish_reason that is empty is none: clients read it as an enumeration.
func TestEmptyFinish(t *testing.T) {
	empty := strings.Replace(delta(`"content":"a"`), `"finish_reason":null`, `"finish_reason":""`, 1)
	if got := translate(t, false, empty, empty, finished, done); got.failure != nil || strings.Contains(string(got.out), `"finish_reason":""`) || !strings.Contains(empty, `""`) {
		t.Errorf("%+v: %s", got.failure, got.out)
	}
	out, _, f := New().Response(ask(false), []byte(`{"choices":[{"message":{"content":"a"},"finish_reason":""}]}`), note)
	if f != nil || !strings.Contains(string(out), `"finish_reason":null`) {
		t.Errorf("%+v: %s", f, out)
	}
}

// TestFinishWords: what servers say of the end, in OpenAI's words.
func TestFinishWords(t *testing.T) {
	for theirs, want := range map[string]string{
		"eos": "stop", "end_turn": "stop", "stop_sequence": "stop", "eos_token": "stop", "STOP": "stop", "max_tokens": "length",
		"model_length": "length", "MAX_TOKENS": "length", "tool_use": "tool_calls", "SAFETY": "content_filter", "refusal": "content_filter",
		"function_call": "function_call", "length": "length", "content_filter": "content_filter",
	} {
		out, _, f := New().Response(ask(false), []byte(`{"choices":[{"message":{"content":"a"},"finish_reason":"`+theirs+`"}]}`), note)
		if f != nil || !strings.Contains(string(out), `"finish_reason":"`+want+`"`) {
			t.Errorf("%s: %+v %s", theirs, f, out)
		}
	}
}

// TestLongPiece: a piece of a stream may be as long as an image.
func TestLongPiece(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	piece := chunkOf(`"content":"`+long+`"`, "")
	raw := []byte(asStream + piece + piece + chunkOf("", `,"finish_reason":"stop"`) + "data: [DONE]\n\n")
	for _, size := range []int{len(raw), 4096} {
		got := adaptertest.Relay(t, New(), compatible, ask(true), slices.Collect(slices.Chunk(raw, size))...)
		if got.Failure != nil {
			t.Fatalf("%+v", got.Failure)
		}
		if s := adaptertest.ReadStream(t, got.Body, true); s.First().Content != long+long || s.Text != got.Outcome.Delivered.Bytes {
			t.Errorf("in pieces of %d bytes: %d of %d bytes arrived", size, s.Text, 2*len(long))
		}
	}
}
