package bedrock

import (
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
)

// The caller sees the model's thinking as text in reasoning_content, and once more in reasoning_details, with the
// signature and in the blocks it came in. Sent back, these become the same blocks again. The shape and the format are
// those of package anthropic, since only Claude signs, here as there; a stream's pieces follow its rules too.
const (
	detailText      = `{"type":"reasoning.text"`
	detailEncrypted = `{"type":"reasoning.encrypted"`
	detailFormat    = `,"format":"` + adapter.ThinkingFormat + `"`
)

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
		dst = append(append(append(dst, `,"data":"`...), adapter.Inside(data)...), '"')
		return append(dst, '}')
	}
	dst = append(append(append(dst, `,"text":"`...), adapter.Inside(reasoning.Get("reasoningText.text"))...), '"')
	if s := adapter.Inside(reasoning.Get("reasoningText.signature")); s != "" {
		dst = append(append(append(dst, `,"signature":"`...), s...), '"')
	}
	return append(dst, '}')
}
