package responses_test

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
)

// TestImages: what a model draws is an item, and comes back to it.
func TestImages(t *testing.T) {
	const images = `[{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,/9j/4A=="}},{"type":"image_url","image_url":{"url":"data:image/webp;base64,UklG"}}]`
	events := eventsOf(t, ask(true), chunk(`{"content":"Here: "}`, "null"), chunk(`{"images":`+images+`}`, "null"), chunk(`{"content":"two."}`, `"stop"`), counted, "[DONE]")
	final := follow(t, events)
	out, _, f := responses.Face{Adapter: openai.New()}.Response(ask(false),
		[]byte(`{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"Here: ","images":`+images+`},"finish_reason":"stop"}]}`), note)
	if f != nil {
		t.Fatal(f)
	}
	for _, r := range []gjson.Result{final, gjson.ParseBytes(out)} {
		for i, want := range []string{`jpeg completed /9j/4A==`, `webp completed UklG`} {
			item := r.Get("output").Array()[1+i]
			if got := item.Get("output_format").Str + " " + item.Get("status").Str + " " + item.Get("result").Str; got != want || item.Get("type").Str != "image_generation_call" {
				t.Errorf("got %s, want %s", item.Raw, want)
			}
		}
	}
	if final.Get("output.3.content.0.text").Str != "two." {
		t.Errorf("output %s", final.Get("output").Raw)
	}
	chat, f := responses.Chat([]byte(`{"model":"m","input":[{"role":"user","content":"draw"},{"type":"image_generation_call","id":"ig_1","result":"iVBO"},`+
		final.Get("output.1").Raw+`,{"type":"image_generation_call","id":"ig_2","result":null},{"role":"user","content":"larger"}]}`), nil)
	if got := gjson.GetBytes(chat, "messages.#.content.1.image_url.url").Raw; f != nil || got != `["data:image/png;base64,iVBO","data:image/jpeg;base64,/9j/4A=="]` {
		t.Errorf("%+v %s", f, chat)
	}
}
