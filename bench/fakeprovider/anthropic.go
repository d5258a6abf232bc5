package fakeprovider

import (
	"cmp"
	"strconv"
	"strings"
)

func anthropicStop(a *answer) string {
	switch {
	case a.finish == finishLength:
		return "max_tokens"
	case len(a.calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

// anthropicUsage is the usage object; input_tokens holds the uncached part only.
func anthropicUsage(u Usage, tier string) string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	out := `{"input_tokens":` + n(u.Input) +
		`,"cache_creation_input_tokens":` + n(u.CacheWrite5m+u.CacheWrite1h) +
		`,"cache_read_input_tokens":` + n(u.CacheRead) +
		`,"cache_creation":{"ephemeral_5m_input_tokens":` + n(u.CacheWrite5m) +
		`,"ephemeral_1h_input_tokens":` + n(u.CacheWrite1h) + `},"output_tokens":` + n(u.Output)
	if u.Reasoning > 0 {
		out += `,"output_tokens_details":{"thinking_tokens":` + n(u.Reasoning) + `}`
	}
	return out + `,"service_tier":` + quote(cmp.Or(tier, "standard")) + `}`
}

// signature stands at the end of a thinking block.
const signature = "ZmFrZS1zaWduYXR1cmU="

func messageHead(n answerNames) string {
	return `{"id":"msg_` + n.id + `","type":"message","role":"assistant","model":` + quote(n.model) + `,"content":[`
}

// anthropicMessage is the JSON answer.
func anthropicMessage(n answerNames, a *answer, u Usage, withUsage bool) []byte {
	var blocks []string
	if a.reasoning > 0 {
		blocks = append(blocks, `{"type":"thinking","thinking":`+quote(Text(a.reasoning, false))+
			`,"signature":"`+signature+`"}`)
	}
	if a.text > 0 {
		blocks = append(blocks, `{"type":"text","text":`+quote(a.words())+`}`)
	}
	for k, c := range a.calls {
		input := c.arguments()
		if c.cut {
			input = "{}" // half an object cannot stand in JSON
		}
		blocks = append(blocks, `{"type":"tool_use","id":"`+n.callID("toolu_", 0, k)+`","name":`+quote(c.name)+
			`,"input":`+input+`}`)
	}
	out := messageHead(n) + strings.Join(blocks, ",") + `],"stop_reason":"` + anthropicStop(a) + `","stop_sequence":null`
	if withUsage {
		out += `,"usage":` + anthropicUsage(u, a.tier)
	}
	return []byte(out + `}`)
}

// anthropicStream writes message events.
type anthropicStream struct {
	frame
	names   answerNames
	answer  *answer
	prompt  Usage
	noDone  bool
	noUsage bool
	block   int // index of the open block
	opened  pieceKind
	isOpen  bool
}

func newAnthropicStream(n answerNames, a *answer, prompt Usage, b *Behavior) *anthropicStream {
	return &anthropicStream{frame: frame{b.Style}, names: n, answer: a, prompt: prompt,
		noDone: b.Fault == FaultNoDone, noUsage: b.Fault == FaultNoUsage}
}

func (s *anthropicStream) open(dst []byte) []byte {
	usage := ""
	if !s.noUsage {
		// The output count at the start is small and not final, as with the real service.
		start := s.prompt
		start.Output = min(1, s.answer.total())
		usage = `,"usage":` + anthropicUsage(start, s.answer.tier)
	}
	dst = s.event(dst, "message_start", `{"type":"message_start","message":`+messageHead(s.names)+
		`],"stop_reason":null,"stop_sequence":null`+usage+`}}`)
	return s.event(dst, "ping", `{"type":"ping"}`)
}

func (s *anthropicStream) token(dst []byte, p piece) []byte {
	if !s.isOpen || s.opened != blockKind(p.kind) || p.kind == pieceCall {
		dst = s.endBlock(dst)
		dst = s.startBlock(dst, p)
	}
	switch p.kind {
	case pieceReasoning:
		return s.delta(dst, `{"type":"thinking_delta","thinking":"`+p.text+`"}`)
	case pieceText:
		return s.delta(dst, `{"type":"text_delta","text":`+quote(p.text)+`}`)
	case pieceCall:
		return s.delta(dst, `{"type":"input_json_delta","partial_json":""}`)
	case pieceArguments:
		return s.delta(dst, `{"type":"input_json_delta","partial_json":`+quote(p.text)+`}`)
	}
	panic("BUG: unknown piece")
}

// blockKind is the piece that opens the block of k.
func blockKind(k pieceKind) pieceKind {
	if k == pieceArguments {
		return pieceCall
	}
	return k
}

func (s *anthropicStream) startBlock(dst []byte, p piece) []byte {
	s.isOpen, s.opened = true, blockKind(p.kind)
	block := `{"type":"text","text":""}`
	switch p.kind {
	case pieceReasoning:
		block = `{"type":"thinking","thinking":"","signature":""}`
	case pieceCall:
		block = `{"type":"tool_use","id":"` + s.names.callID("toolu_", 0, p.call) + `","name":` + quote(p.text) + `,"input":{}}`
	}
	return s.event(dst, "content_block_start", `{"type":"content_block_start","index":`+strconv.Itoa(s.block)+
		`,"content_block":`+block+`}`)
}

func (s *anthropicStream) delta(dst []byte, delta string) []byte {
	return s.event(dst, "content_block_delta", `{"type":"content_block_delta","index":`+strconv.Itoa(s.block)+
		`,"delta":`+delta+`}`)
}

func (s *anthropicStream) endBlock(dst []byte) []byte {
	if !s.isOpen {
		return dst
	}
	if s.opened == pieceReasoning {
		dst = s.delta(dst, `{"type":"signature_delta","signature":"`+signature+`"}`)
	}
	dst = s.event(dst, "content_block_stop", `{"type":"content_block_stop","index":`+strconv.Itoa(s.block)+`}`)
	s.block++
	s.isOpen = false
	return dst
}

func (s *anthropicStream) broken(dst []byte) []byte {
	whole := `{"type":"content_block_delta","index":` + strconv.Itoa(s.block) + `,"delta":{"type":"text_delta","text":"x"}}`
	return s.event(dst, "content_block_delta", halfJSON(whole))
}

func (s *anthropicStream) fail(dst []byte) []byte {
	return s.event(dst, "error", anthropic.errorBody("req_"+s.names.id,
		refusal{status: 529, message: "Overloaded"}))
}

func (s *anthropicStream) close(dst []byte, final Usage) []byte {
	dst = s.endBlock(dst)
	usage := ""
	if !s.noUsage {
		usage = `,"usage":` + anthropicUsage(final, s.answer.tier)
	}
	dst = s.event(dst, "message_delta", `{"type":"message_delta","delta":{"stop_reason":"`+anthropicStop(s.answer)+
		`","stop_sequence":null}`+usage+`}`)
	if !s.noDone {
		dst = s.event(dst, "message_stop", `{"type":"message_stop"}`)
	}
	return dst
}
