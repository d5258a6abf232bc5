package fakeprovider

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// answerNames are the parts of an answer that tell it from others.
type answerNames struct {
	id      string // of the request, without prefix
	model   string
	created int64 // Unix seconds
}

func (n answerNames) callID(prefix string, choice int64, call int) string {
	return prefix + n.id + "_" + strconv.FormatInt(choice, 10) + "_" + strconv.Itoa(call)
}

func openAIFinish(f finish) string {
	return [...]string{finishStop: "stop", finishLength: "length", finishTools: "tool_calls"}[f]
}

// openAIUsage is the usage object; cached tokens are part of prompt_tokens here.
func openAIUsage(u Usage) string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	return `{"prompt_tokens":` + n(u.Prompt()) + `,"completion_tokens":` + n(u.Output) +
		`,"total_tokens":` + n(u.Prompt()+u.Output) +
		`,"prompt_tokens_details":{"cached_tokens":` + n(u.CacheRead) +
		`,"cache_write_tokens":` + n(u.CacheWrite5m+u.CacheWrite1h) + `,"audio_tokens":0}` +
		`,"completion_tokens_details":{"reasoning_tokens":` + n(u.Reasoning) +
		`,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`
}

// openAIChat is the JSON answer.
func openAIChat(n answerNames, a *answer, u Usage, withUsage bool) []byte {
	var out strings.Builder
	out.WriteString(`{"id":"chatcmpl-` + n.id + `","object":"chat.completion","created":` +
		strconv.FormatInt(n.created, 10) + `,"model":` + quote(n.model) + `,"choices":[`)
	content := "null"
	if a.text > 0 || len(a.calls) == 0 {
		content = quote(a.words())
	}
	for choice := range a.choices {
		if choice > 0 {
			out.WriteByte(',')
		}
		out.WriteString(`{"index":` + strconv.FormatInt(choice, 10) + `,"message":{"role":"assistant","content":` +
			content + `,"refusal":null,"annotations":[]`)
		for k, c := range a.calls {
			if k == 0 {
				out.WriteString(`,"tool_calls":[`)
			} else {
				out.WriteByte(',')
			}
			out.WriteString(`{"id":"` + n.callID("call_", choice, k) + `","type":"function","function":{"name":` +
				quote(c.name) + `,"arguments":` + quote(c.arguments()) + `}}`)
		}
		if len(a.calls) > 0 {
			out.WriteByte(']')
		}
		out.WriteString(`},"logprobs":` + openAILogprobs(a.chances()) + `,"finish_reason":"` + openAIFinish(a.finish) + `"}`)
	}
	out.WriteByte(']')
	if withUsage {
		out.WriteString(`,"usage":` + openAIUsage(u))
	}
	out.WriteString(`,"service_tier":` + quote(cmp.Or(a.tier, "default")) + `,"system_fingerprint":"fp_fake"}`)
	return []byte(out.String())
}

// openAILogprobs is the logprobs of a choice, null without any.
func openAILogprobs(tokens string) string {
	if tokens == "" {
		return "null"
	}
	return `{"content":[` + tokens + `],"refusal":null}`
}

// openAIStream writes chat.completion.chunk events.
type openAIStream struct {
	frame
	names   answerNames
	answer  *answer
	usage   bool // include_usage
	noDone  bool
	noUsage bool
	prefix  string
	suffix  string
	scratch []byte
}

func newOpenAIStream(n answerNames, a *answer, req *request, b *Behavior) *openAIStream {
	s := &openAIStream{
		frame: frame{b.Style}, names: n, answer: a, usage: req.includeUsage,
		noDone: b.Fault == FaultNoDone, noUsage: b.Fault == FaultNoUsage,
		prefix: `{"id":"chatcmpl-` + n.id + `","object":"chat.completion.chunk","created":` +
			strconv.FormatInt(n.created, 10) + `,"model":` + quote(n.model) +
			`,"service_tier":` + quote(cmp.Or(a.tier, "default")) + `,"system_fingerprint":"fp_fake","choices":[`,
		suffix: `]}`,
	}
	if s.usage {
		s.suffix = `],"usage":null}`
	}
	return s
}

func (s *openAIStream) chunk(dst []byte, choice int64, delta, logprobs, finish string) []byte {
	data := append(s.scratch[:0], s.prefix...)
	data = append(data, `{"index":`...)
	data = strconv.AppendInt(data, choice, 10)
	data = append(data, `,"delta":`...)
	data = append(data, delta...)
	data = append(append(data, `,"logprobs":`...), logprobs...)
	data = append(data, `,"finish_reason":`...)
	data = append(data, finish...)
	data = append(data, '}')
	data = append(data, s.suffix...)
	s.scratch = data
	return s.event(dst, "", string(data))
}

func (s *openAIStream) open(dst []byte) []byte {
	for choice := range s.answer.choices {
		dst = s.chunk(dst, choice, `{"role":"assistant","content":"","refusal":null}`, "null", "null")
	}
	return dst
}

func (s *openAIStream) token(dst []byte, p piece) []byte {
	index := strconv.Itoa(p.call)
	switch p.kind {
	case pieceReasoning:
		return dst // hidden: only usage tells
	case pieceText:
		return s.chunk(dst, p.choice, `{"content":`+quote(p.text)+`}`, openAILogprobs(s.answer.chance(p.text)), "null")
	case pieceCall:
		return s.chunk(dst, p.choice, `{"tool_calls":[{"index":`+index+`,"id":"`+s.names.callID("call_", p.choice, p.call)+
			`","type":"function","function":{"name":`+quote(p.text)+`,"arguments":""}}]}`, "null", "null")
	case pieceArguments:
		return s.chunk(dst, p.choice, `{"tool_calls":[{"index":`+index+`,"function":{"arguments":`+quote(p.text)+`}}]}`, "null", "null")
	}
	panic("BUG: unknown piece")
}

func (s *openAIStream) broken(dst []byte) []byte {
	whole := s.prefix + `{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null}` + s.suffix
	return s.event(dst, "", halfJSON(whole))
}

func (s *openAIStream) fail(dst []byte) []byte {
	return s.event(dst, "", openAI.errorBody("", refusal{status: 500, message: "The server had an error while answering."}))
}

func (s *openAIStream) close(dst []byte, final Usage) []byte {
	for choice := range s.answer.choices {
		dst = s.chunk(dst, choice, "{}", "null", `"`+openAIFinish(s.answer.finish)+`"`)
	}
	if s.usage && !s.noUsage {
		dst = s.event(dst, "", s.prefix+`],"usage":`+openAIUsage(final)+`}`)
	}
	if !s.noDone {
		dst = s.event(dst, "", "[DONE]")
	}
	return dst
}

// openAIEmbeddings is the answer to an embeddings request.
func openAIEmbeddings(n answerNames, req *request, u Usage, withUsage bool) []byte {
	var out []byte
	out = append(out, `{"object":"list","data":[`...)
	for i, input := range req.embed.inputs {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"object":"embedding","index":`...)
		out = strconv.AppendInt(out, int64(i), 10)
		out = append(out, `,"embedding":`...)
		vector := Vector(input.String(), req.embed.dimensions)
		if req.embed.base64 {
			out = append(out, '"')
			out = append(out, encodeVector(vector)...)
			out = append(out, '"')
		} else {
			for k, v := range vector {
				out = append(out, "[,"[min(k, 1)])
				out = strconv.AppendFloat(out, float64(v), 'g', -1, 32)
			}
			out = append(out, ']')
		}
		out = append(out, '}')
	}
	out = append(out, `],"model":`+quote(n.model)...)
	if withUsage {
		total := strconv.FormatInt(u.Prompt(), 10)
		out = append(out, `,"usage":{"prompt_tokens":`+total+`,"total_tokens":`+total+`}`...)
	}
	return append(out, '}')
}

// Vector is the embedding of a text, or of the JSON of an array of token ids: a fixed unit vector of 1..4096
// dimensions that depends on nothing but its arguments.
func Vector(input string, dimensions int) []float32 {
	hash := fnv.New64a()
	hash.Write([]byte(input))
	state := hash.Sum64()
	values := make([]float64, dimensions)
	var squares float64
	for i := range values {
		// splitmix64: cheap, and neighbours do not resemble each other.
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		values[i] = float64(int64(z)>>11) / (1 << 52)
		squares += values[i] * values[i]
	}
	out := make([]float32, dimensions)
	for i, v := range values {
		out[i] = float32(v / math.Sqrt(squares))
	}
	return out
}

// encodeVector is base64 over little-endian float32.
func encodeVector(vector []float32) string {
	raw := make([]byte, 0, 4*len(vector))
	for _, v := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
