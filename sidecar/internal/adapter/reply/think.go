package reply

import "github.com/sluice-gateway/sluice/sidecar/internal/adapter/prompt"

// The caller sees a model's thinking as text in reasoning_content, and once more in reasoning_details, with the signature and
// in the blocks it came in, where the model wants them back. Sent back, these become the same blocks again: see prompt.Message.Thoughts.

// OpenThought appends an entry of reasoning_details for a block of thinking, up to its texts. In a stream an entry comes in
// pieces of the same index. The format, which says who can read it, stands in the first piece alone, since client
// libraries put pieces together by joining their strings; it is "" for a further piece.
func OpenThought(dst []byte, format string, index int, redacted bool) []byte {
	if redacted {
		dst = append(dst, `{"type":"reasoning.encrypted"`...)
	} else {
		dst = append(dst, `{"type":"reasoning.text"`...)
	}
	if format != "" {
		dst = AppendEscaped(dst, "format", format)
	}
	return AppendInt(dst, `,"index":`, int64(index))
}

// AppendThought appends an entry of a block that came whole.
func AppendThought(dst []byte, format string, index int, t prompt.Thought) []byte {
	dst = OpenThought(dst, format, index, t.Redacted)
	if t.Redacted {
		return append(AppendEscaped(dst, "data", t.Text), '}')
	}
	dst = AppendEscaped(dst, "text", t.Text)
	if t.Signature != "" {
		dst = AppendEscaped(dst, "signature", t.Signature)
	}
	return append(dst, '}')
}

// AppendEscaped appends a member with a text that is escaped.
func AppendEscaped[T string | []byte](dst []byte, name string, escaped T) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":"`...)
	return append(append(dst, escaped...), '"')
}
