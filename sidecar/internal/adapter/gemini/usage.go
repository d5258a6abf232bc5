package gemini

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/reply"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// rawMax bounds the usage that is kept as it stood.
const rawMax = 4 << 10

// counts is usageMetadata. Every event of a stream states the totals so far; the last value of each field counts.
type counts struct {
	prompt, tools      int64 // what tools of the provider put into the prompt comes on top of it
	cached             int64 // part of prompt
	audio, audioCached int64 // part of prompt, part of cached
	output, thoughts   int64 // apart from each other
	image, imageCached int64 // the same of images
	audioOut, imageOut int64 // parts of output
	tier, raw          string
	stated             bool // the prompt was stated
	produced           bool // output or thoughts were stated
}

// update takes what u states.
func (c *counts) update(u gjson.Result) {
	if !u.IsObject() {
		return
	}
	set := func(to *int64, v gjson.Result) bool {
		n, ok := adapter.Count(v)
		if ok {
			*to = n
		}
		return ok
	}
	u.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "promptTokenCount":
			c.stated = set(&c.prompt, v) || c.stated
		case "toolUsePromptTokenCount":
			set(&c.tools, v)
		case "cachedContentTokenCount":
			set(&c.cached, v)
		case "candidatesTokenCount":
			c.produced = set(&c.output, v) || c.produced
		case "thoughtsTokenCount":
			c.produced = set(&c.thoughts, v) || c.produced
		case "promptTokensDetails":
			set(&c.audio, ofModality(v, "AUDIO"))
			set(&c.image, ofModality(v, "IMAGE"))
		case "cacheTokensDetails":
			set(&c.audioCached, ofModality(v, "AUDIO"))
			set(&c.imageCached, ofModality(v, "IMAGE"))
		case "candidatesTokensDetails":
			set(&c.audioOut, ofModality(v, "AUDIO"))
			set(&c.imageOut, ofModality(v, "IMAGE"))
		case "serviceTier", "trafficType":
			c.tier = tierOf(v.Str)
		}
		return true
	})
	if c.raw = ""; len(u.Raw) <= rawMax {
		c.raw = u.Raw
	}
}

// ofModality is the count of the tokens of one modality among those of several.
func ofModality(v gjson.Result, modality string) (n gjson.Result) {
	v.ForEach(func(_, e gjson.Result) bool {
		if e.Get("modality").Str == modality {
			n = e.Get("tokenCount")
		}
		return true
	})
	return n
}

// tierOf is a tier in the words that callers ask for it. Vertex AI calls it a type of traffic.
func tierOf(name string) string {
	tier := strings.ToLower(name)
	switch {
	case tier == "on_demand":
		return "standard"
	case strings.HasPrefix(tier, "on_demand_"):
		return strings.TrimPrefix(tier, "on_demand_")
	}
	return strings.TrimPrefix(adapter.Trimmed(tier), "service_tier_")
}

// usage is what is to be paid, as far as it was stated. What was thought is output too. A count that is left out is zero,
// but not that of an output of which so much was delivered.
func (c *counts) usage(delivered int64) exchange.Usage {
	if !c.stated || delivered > 0 && !c.produced {
		return exchange.Usage{Source: exchange.FromEstimate, ServiceTier: c.tier}
	}
	prompt, cached := c.prompt+c.tools, min(c.cached, c.prompt)
	audio := min(max(c.audio-c.audioCached, 0), c.prompt-cached)
	image := min(max(c.image-c.imageCached, 0), c.prompt-cached-audio)
	audioOut := min(c.audioOut, c.output)
	imageOut := min(c.imageOut, c.output-audioOut)
	return exchange.Usage{
		Tokens: exchange.Tokens{
			Input: prompt - cached - audio - image, CacheRead: cached, InputAudio: audio, InputImage: image,
			Output: c.output - audioOut - imageOut + c.thoughts, OutputAudio: audioOut, OutputImage: imageOut, Reasoning: c.thoughts,
		},
		Source: exchange.FromProvider, ServiceTier: c.tier, Raw: c.raw,
	}
}

// appendUsage appends a usage object in the caller's dialect.
func appendUsage(dst []byte, t exchange.Tokens) []byte {
	dst = reply.AppendInt(dst, `{"prompt_tokens":`, t.Prompt())
	dst = reply.AppendInt(dst, `,"completion_tokens":`, t.Completion())
	dst = reply.AppendInt(dst, `,"total_tokens":`, t.Total())
	dst = reply.AppendInt(dst, `,"prompt_tokens_details":{"cached_tokens":`, t.CacheRead)
	dst = reply.AppendInt(dst, `,"audio_tokens":`, t.InputAudio)
	dst = reply.AppendInt(dst, `},"completion_tokens_details":{"reasoning_tokens":`, t.Reasoning)
	dst = reply.AppendInt(dst, `,"audio_tokens":`, t.OutputAudio)
	dst = reply.AppendInt(dst, `,"image_tokens":`, t.OutputImage)
	return append(dst, "}}"...)
}
