package bedrock

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// The caller sees the model's thinking as text in reasoning_content, and once more in reasoning_details, with the
// signature and in the blocks it came in. Sent back, these become the same blocks again. The shape and the format are
// those of package anthropic, since only Claude signs, here as there; a stream's pieces follow its rules too.
const (
	detailText      = `{"type":"reasoning.text"`
	detailEncrypted = `{"type":"reasoning.encrypted"`
	detailFormat    = `,"format":"` + adapter.ThinkingFormat + `"`
)

// thought is one block of thinking as a caller sends it back. Its texts are still escaped.
type thought struct {
	index           gjson.Result
	redacted        bool
	text, signature string // of data when redacted
}

// thoughts are the blocks of an assistant's thinking. What has no signature cannot be sent back to anyone and is left
// out, and so is what another vendor's model thought.
func thoughts(at place, m gjson.Result) ([][]byte, *exchange.Failure) {
	const name = "reasoning_details"
	v := m.Get(name)
	if v.Type == gjson.Null {
		return nil, nil
	}
	if !v.IsArray() {
		return nil, invalid(at.String()+"."+name, name+" must be an array")
	}
	var list []thought
	v.ForEach(func(_, e gjson.Result) bool {
		list = gather(list, e)
		return true
	})
	var out [][]byte
	for _, th := range list {
		switch {
		case th.redacted && th.text != "":
			out = append(out, []byte(`{"reasoningContent":{"redactedContent":"`+th.text+`"}}`))
		case th.signature != "":
			out = append(out, []byte(`{"reasoningContent":{"reasoningText":{"text":"`+th.text+`","signature":"`+th.signature+`"}}}`))
		}
	}
	return out, nil
}

// gather adds an entry to the thoughts before it. Pieces of one entry may come one by one, as they were streamed.
func gather(list []thought, e gjson.Result) []thought {
	if f := e.Get("format"); f.Type == gjson.String && !strings.HasPrefix(f.Str, "anthropic") {
		return list
	}
	th := thought{index: e.Get("index")}
	switch e.Get("type").Str {
	case "reasoning.text":
		th.text, th.signature = inside(e.Get("text")), inside(e.Get("signature"))
	case "reasoning.encrypted":
		th.redacted, th.text = true, inside(e.Get("data"))
	default:
		return list
	}
	if n := len(list); n > 0 && th.index.Exists() && list[n-1].index.Raw == th.index.Raw && list[n-1].redacted == th.redacted {
		list[n-1].text += th.text
		list[n-1].signature += th.signature
		return list
	}
	return append(list, th)
}

// appendDetail appends the entry of reasoning_details for a block of thinking.
func appendDetail(dst []byte, reasoning gjson.Result, index int) []byte {
	kind := detailText
	data := reasoning.Get("redactedContent")
	if data.Exists() {
		kind = detailEncrypted
	}
	dst = append(append(dst, kind...), detailFormat...)
	dst = strconv.AppendInt(append(dst, `,"index":`...), int64(index), 10)
	if data.Exists() {
		dst = append(append(append(dst, `,"data":"`...), inside(data)...), '"')
		return append(dst, '}')
	}
	dst = append(append(append(dst, `,"text":"`...), inside(reasoning.Get("reasoningText.text"))...), '"')
	if s := inside(reasoning.Get("reasoningText.signature")); s != "" {
		dst = append(append(append(dst, `,"signature":"`...), s...), '"')
	}
	return append(dst, '}')
}
