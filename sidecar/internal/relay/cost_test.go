package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/bench/relay"
	"github.com/sluice-gateway/sluice/bench/relay/control"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/anthropic"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/bedrock"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/messages"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

const (
	costEvents = 256 // different ones that a lane plays over and over
	costTurns  = 16  // times that a lane takes all of them before it is the next one's turn
	costRounds = 250 // turns of a lane until its stream begins anew: an answer has a million events, not more
)

// costText is what event i says.
func costText(i int) string { return " amber" + strconv.Itoa(i) }

// The events of the dialects, as providers spell a delta of text. The chat chunk is the recipe's: 302 bytes.
var costDialects = map[string]func(i int) string{
	"chat": func(i int) string {
		return `data: {"id":"chatcmpl-9QmTz0f3LxQb7yVwRkP2d6Hs8Ae","object":"chat.completion.chunk","created":1796018863,` +
			`"model":"gpt-large-2026-10","service_tier":"default","system_fingerprint":"fp_44709d6fcb",` +
			`"choices":[{"index":0,"delta":{"content":"` + costText(i) + `"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
	},
	"messages": func(i int) string {
		return "event: content_block_delta\n" +
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + costText(i) + `"}}` + "\n\n"
	},
	"responses": func(i int) string {
		return "event: response.output_text.delta\n" +
			`data: {"type":"response.output_text.delta","sequence_number":` + strconv.Itoa(i) + `,"item_id":"msg_0c8fb2a7d1e34f5a96",` +
			`"output_index":0,"content_index":0,"delta":"` + costText(i) + `","logprobs":[],"obfuscation":"` + "x9QkT71bZ"[:1+i%9] + `"}` + "\n\n"
	},
	"gemini": func(i int) string {
		return `data: {"candidates":[{"content":{"parts":[{"text":"` + costText(i) + `"}],"role":"model"},"index":0}],` +
			`"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":` + strconv.Itoa(i) + `,"totalTokenCount":` + strconv.Itoa(i+11) + `},` +
			`"modelVersion":"gemini-large","responseId":"u7Jw0a3f"}` + "\n\n"
	},
	"bedrock": func(i int) string {
		return awsFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"`+costText(i)+`"},"p":"abcdefghijklmnop"}`)
	},
}

// awsFrame is an event in AWS's framing.
func awsFrame(kind, payload string) string {
	var head []byte
	for _, h := range [...][2]string{{":event-type", kind}, {":content-type", "application/json"}, {":message-type", "event"}} {
		head = append(append(head, byte(len(h[0]))), h[0]...)
		head = append(binary.BigEndian.AppendUint16(append(head, 7), uint16(len(h[1]))), h[1]...)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(16+len(head)+len(payload)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(head)))
	frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame))
	frame = append(append(frame, head...), payload...)
	return string(binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame)))
}

// costPieces are a dialect's events as a connection gives them: each alone, or, for a size, glued and cut.
func costPieces(dialect string, size int) (out [][]byte) {
	var all []byte
	for i := range costEvents {
		ev := costDialects[dialect](i)
		if size == 0 {
			out = append(out, []byte(ev))
		}
		all = append(all, ev...)
	}
	if size > 0 {
		out = slices.Collect(slices.Chunk(all, size))
	}
	return out
}

// supply is a source that gives pieces over and over, as a connection on which one arrives at a time.
type supply struct {
	pieces [][]byte
	given  int
	dry    bool // it was asked for more than had arrived
}

func (s *supply) next(block bool) ([]byte, error) {
	if s.dry = !block; s.dry {
		return nil, errNoBytes
	}
	p := s.pieces[s.given%len(s.pieces)]
	s.given++
	return p, nil
}

// costLane is one way to take chunks. turn takes what arrives next and gives what becomes of it to w.
type costLane struct {
	src  *supply
	turn func(w io.Writer)
}

// play takes what arrives n times, from the first event to the last.
func (l costLane) play(n int, w io.Writer) {
	for end := l.src.given + n*len(l.src.pieces); l.src.given < end; {
		l.turn(w)
	}
}

// costProduct is the product: all that Stream.WriteTo does for a piece, but for the connections' reads, writes and
// deadlines.
func costProduct(pieces [][]byte, rd framing, st adapter.Stream) costLane {
	src := &supply{pieces: pieces}
	s := &Stream{c: NewClient(Config{}), src: src, rd: rd, st: st, body: &body{over: true}, ans: &Answer{}}
	return costLane{src, func(w io.Writer) {
		for src.dry = false; !src.dry; s.release() {
			s.advance()
			_, _ = w.Write(s.out) // it cannot fail
		}
	}}
}

// costControl is the recipe with the same pieces.
func costControl(pieces [][]byte, take func(dst, piece []byte) []byte) costLane {
	src := &supply{pieces: pieces}
	var dst []byte
	return costLane{src, func(w io.Writer) {
		p, _ := src.next(true)
		dst = take(dst[:0], p)
		_, _ = w.Write(dst)
	}}
}

// costBurst is how much a connection gives at once that is not read as fast as it sends.
const costBurst = readBufferBytes

// costLanes are the lanes by the names that bench/relay knows.
func costLanes() map[string]costLane {
	r := &exchange.Request{Model: "alias", ID: "r1", CreatedUnix: 1796018863, IncludeUsage: true, Native: []byte("{}")}
	paced := func(dialect string) [][]byte { return costPieces(dialect, 0) }
	burst := func(dialect string) [][]byte { return costPieces(dialect, costBurst) }
	pass := func() func(dst, piece []byte) []byte { return control.New().Pass }
	translate := func(from control.Wire, to control.Chunk) func(dst, piece []byte) []byte {
		return control.NewTranslation(from, to).Translate
	}
	toMessages := messages.Face{Adapter: openai.New()}
	toResponses := responses.Face{Adapter: openai.New()}
	claude := anthropic.New()
	native := claude.Speak(exchange.MessagesDialect, &exchange.Deployment{})
	return map[string]costLane{
		"control-chat":              costControl(paced("chat"), pass()),
		"control-chat-burst":        costControl(burst("chat"), pass()),
		"control-messages":          costControl(paced("messages"), pass()),
		"control-messages-burst":    costControl(burst("messages"), pass()),
		"control-responses":         costControl(paced("responses"), pass()),
		"control-translated":        costControl(paced("messages"), translate(wireMessages, chunkChat("r1"))),
		"control-translated-burst":  costControl(burst("messages"), translate(wireMessages, chunkChat("r1"))),
		"control-gemini":            costControl(paced("gemini"), translate(wireGemini, chunkChat("u7Jw0a3f"))),
		"control-bedrock":           costControl(paced("bedrock"), control.NewTranslation(wireBedrock, chunkChat("r1")).TranslateFrames),
		"control-chat-to-messages":  costControl(paced("chat"), translate(wireChat, chunkMessages)),
		"control-chat-to-responses": costControl(paced("chat"), translate(wireChat, chunkResponses("r1"))),

		"chat":             costProduct(paced("chat"), &sse.Reader{}, openai.New().Stream(r, nil)),
		"chat-burst":       costProduct(burst("chat"), &sse.Reader{}, openai.New().Stream(r, nil)),
		"messages":         costProduct(paced("messages"), &sse.Reader{}, native.Stream(r, nil)),
		"messages-burst":   costProduct(burst("messages"), &sse.Reader{}, native.Stream(r, nil)),
		"responses":        costProduct(paced("responses"), &sse.Reader{}, openai.New().Speak(exchange.ResponsesDialect, &exchange.Deployment{Provider: "openai"}).Stream(r, nil)),
		"translated":       costProduct(paced("messages"), &sse.Reader{}, claude.Stream(r, nil)),
		"translated-burst": costProduct(burst("messages"), &sse.Reader{}, claude.Stream(r, nil)),

		"gemini":            costProduct(paced("gemini"), &sse.Reader{}, gemini.New().Stream(r, nil)),
		"bedrock":           costProduct(paced("bedrock"), &awsFraming{}, bedrock.New().Stream(r, nil)),
		"chat-to-messages":  costProduct(paced("chat"), &sse.Reader{}, toMessages.Stream(r, nil)),
		"chat-to-responses": costProduct(paced("chat"), &sse.Reader{}, toResponses.Stream(r, nil)),
	}
}

// How the providers spell the text of a delta, and their usage. Claude and Bedrock tell it in events of their own; in the
// others any event may.
var (
	wireChat     = control.Wire{Text: `{"content":"`, Usage: `usage":{`}
	wireMessages = control.Wire{Text: `{"type":"text_delta","text":"`, Usage: `usage":{`, Apart: true}
	wireGemini   = control.Wire{Text: `{"text":"`, Usage: `usageMetadata":{`}
	wireBedrock  = control.Wire{Event: "contentBlockDelta", Text: `{"text":"`, Usage: `usage":{`, Apart: true}
)

// chunkChat is what a translation to chat makes of a text.
func chunkChat(id string) control.Chunk {
	return control.Chunk{
		Head: `data: {"id":"` + id + `","object":"chat.completion.chunk","created":1796018863,"model":"alias",` +
			`"choices":[{"index":0,"delta":{"content":"`,
		Tail: `"},"finish_reason":null}],"usage":null}` + "\n\n",
	}
}

// A face translates twice: what its provider says to chat chunks, and these to its own dialect. Its recipe translates
// once, from the chunk to the dialect: nothing that a caller sees needs the chunk to be written in between.
var chunkMessages = control.Chunk{
	Head: "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`,
	Tail: `"}}` + "\n\n",
}

// chunkResponses is what becomes of a text for callers of the Responses API. Four events stand before the first.
func chunkResponses(request string) control.Chunk {
	sum := sha256.Sum256([]byte(request + "/chatcmpl-9QmTz0f3LxQb7yVwRkP2d6Hs8Ae"))
	return control.Chunk{
		Head:   "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":`,
		Middle: `,"item_id":"msg_` + hex.EncodeToString(sum[:16]) + `0","output_index":0,"content_index":0,"delta":"`,
		Tail:   `","logprobs":[]}` + "\n\n",
		Number: 4,
	}
}

// TestCostLanes: what is measured is the work: every lane gives what its caller is owed. The second time round, since
// streams begin with events of their own.
func TestCostLanes(t *testing.T) {
	play := func(l costLane) string {
		var out bytes.Buffer
		l.play(1, io.Discard)
		l.play(1, &out)
		return out.String()
	}
	all := func(dialect string) string { return string(bytes.Join(costPieces(dialect, 0), nil)) }
	renamed := strings.ReplaceAll(all("chat"), `"gpt-large-2026-10"`, `"alias"`)
	got := map[string]string{}
	for name, l := range costLanes() {
		got[name] = play(l)
	}
	for name, want := range map[string]string{
		"control-chat": all("chat"), "control-chat-burst": all("chat"), "chat": renamed, "chat-burst": renamed,
		"control-messages": all("messages"), "messages": all("messages"),
		"control-messages-burst": all("messages"), "messages-burst": all("messages"),
		"control-responses": all("responses"), "responses": all("responses"),
		"control-translated-burst": got["control-translated"], "translated": got["control-translated"],
		"translated-burst": got["control-translated"], "bedrock": got["control-translated"], "control-bedrock": got["control-translated"],
		"gemini": got["control-gemini"], "chat-to-messages": got["control-chat-to-messages"],
		"chat-to-responses": got["control-chat-to-responses"],
	} {
		if got[name] != want {
			t.Errorf("%s: got %.300q, want %.300q", name, got[name], want)
		}
	}
	if n := len(costDialects["chat"](10)); n != 302 {
		t.Errorf("the chat chunk has %d bytes, the recipe's has 302", n)
	}
	for name, path := range map[string][]string{
		"control-translated": {"choices", "0", "delta", "content"}, "control-gemini": {"choices", "0", "delta", "content"},
		"control-chat-to-messages": {"delta", "text"}, "control-chat-to-responses": {"delta"},
	} {
		at := 0
		for line := range strings.Lines(got[name]) {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			if text := textAt(t, data, path); text != costText(at) {
				t.Fatalf("%s: event %d says %q, want %q", name, at, text, costText(at))
			}
			at++
		}
		if at != costEvents {
			t.Errorf("%s: %d events, want %d", name, at, costEvents)
		}
	}
}

// TestCostAllocatesNothing: no lane makes garbage, chunk for chunk.
func TestCostAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector pools lose what they are given")
	}
	for name, l := range costLanes() {
		l.play(1, io.Discard) // streams learn, buffers grow
		if n := testing.AllocsPerRun(5, func() { l.play(1, io.Discard) }); n > costEvents/10 {
			t.Errorf("%s: %v allocations in %d events", name, n, costEvents)
		}
	}
}

// textAt is the text at a path in a JSON document, whose lists have one item.
func textAt(t *testing.T, doc string, path []string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range path {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			v = in[0]
		}
	}
	text, _ := v.(string)
	return text
}

// BenchmarkCost is what bench relay runs: every lane, a turn each, round by round, so that whatever else the machine
// does strikes them alike. It reports each lane's median.
func BenchmarkCost(b *testing.B) {
	lanes := costLanes()
	names := relay.Lanes()
	if len(names) != len(lanes) {
		b.Fatalf("%d lanes, bench/relay knows %d", len(lanes), len(names))
	}
	type cost struct{ ns, allocs, bytes []float64 }
	costs := make([]cost, len(names))
	warm, round := true, 0
	var before, after runtime.MemStats
	for b.Loop() {
		if round++; round%costRounds == 0 {
			lanes, warm = costLanes(), true
		}
		for i, name := range names {
			l := lanes[name]
			runtime.ReadMemStats(&before)
			began := time.Now()
			l.play(costTurns, io.Discard)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if warm { // streams learn, buffers grow
				continue
			}
			c := &costs[i]
			c.ns = append(c.ns, float64(took)/costEvents/costTurns)
			c.allocs = append(c.allocs, float64(after.Mallocs-before.Mallocs)/costEvents/costTurns)
			c.bytes = append(c.bytes, float64(after.TotalAlloc-before.TotalAlloc)/costEvents/costTurns)
		}
		warm = false
	}
	for i, name := range names {
		if len(costs[i].ns) == 0 {
			b.Fatal("one round only warms up: give -benchtime 100x")
		}
		b.ReportMetric(median(costs[i].ns), name+":"+relay.Nanoseconds)
		b.ReportMetric(median(costs[i].allocs), name+":"+relay.Allocs)
		b.ReportMetric(median(costs[i].bytes), name+":"+relay.Bytes)
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
