package gateway

import (
	"cmp"
	"fmt"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/tidwall/gjson"
)

// peekResponses reads a member of a Responses request. Items of the input are measured and never judged.
func peekResponses(r *exchange.Request, name string, v gjson.Result) (bad *badField) {
	switch name {
	case "input":
		return peekItems(r, v)
	case "instructions":
		r.InputBytes += int64(len(v.Raw))
	case "stream":
		bad = peekStream(r, name, v)
		r.IncludeUsage = r.Stream // the last event always has it
	case "max_output_tokens":
		r.MaxOutput, bad = count(name, v, 1, outputMax)
	case "background":
		if v.Type != gjson.False && v.Type != gjson.Null {
			bad = &badField{name, "background must be false: nobody could be told what it cost"}
		}
	case "previous_response_id":
		r.Earlier = v.Str
	case "conversation":
		r.Earlier, r.Conversation = cmp.Or(v.Str, v.Get("id").Str), cmp.Or(v.Str, v.Get("id").Str)
	case "reasoning":
		r.Thinking = adapter.ThinkingTokens(v.Get("effort").Str)
	case "tools":
		r.Tools = v.IsArray() && len(v.Raw) > 2
		r.InputBytes += int64(len(v.Raw))
	case "text":
		r.JSONSchema = v.Get("format.type").Str == "json_schema"
		r.InputBytes += int64(len(v.Raw))
	}
	return bad
}

func peekItems(r *exchange.Request, v gjson.Result) *badField {
	switch {
	case v.Type == gjson.Null:
		return nil
	case v.Type == gjson.String:
		r.InputBytes, r.Messages = r.InputBytes+int64(len(v.Raw)), 1
		return nil
	case !v.IsArray():
		return &badField{"input", "input must be a string or an array of items"}
	}
	var bad *badField
	v.ForEach(func(_, item gjson.Result) bool {
		if !item.IsObject() {
			bad = &badField{fmt.Sprintf("input[%d]", r.Messages), "an item must be an object"}
			return false
		}
		r.Messages++
		if item.Get("type").Str == "image_generation_call" { // of a model's image, its data
			r.Vision = true
			r.InputExtra += imageTokens
			return true
		}
		item.ForEach(func(k, m gjson.Result) bool {
			if (k.Str == "content" || k.Str == "output") && m.IsArray() {
				m.ForEach(func(_, part gjson.Result) bool {
					peekPart(r, part)
					return true
				})
			} else {
				r.InputBytes += int64(len(m.Raw))
			}
			return true
		})
		return true
	})
	return bad
}

// peekPart measures a part. Whatever is not known to be priced otherwise is counted as text by its raw size.
func peekPart(r *exchange.Request, part gjson.Result) {
	switch part.Get("type").Str {
	case "input_image":
		r.Vision = true
		r.InputExtra += imageTokens
	case "input_file":
		peekFile(r, part.Get("file_data").Str)
	default:
		r.InputBytes += int64(len(part.Raw))
	}
}
