package responses_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/openai"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/responses"
)

// TestImages: what a model draws is an item as OpenAI's own tool leaves it, whole and streamed.
func TestImages(t *testing.T) {
	const images = `"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}},{"image_url":{"url":"https://a.test/b.png"}}]`
	drawn := func(output gjson.Result) (all []string) {
		for _, item := range output.Array() {
			all = append(all, item.Get("type").Str+item.Get("content.0.text").Str+" "+item.Get("output_format").Str+item.Get("result").Str+item.Get("image_url").Str)
		}
		return all
	}
	names, final, f := play(t, ask(true), chunk(`{"content":"Look"}`, "null"), chunk(`{`+images+`}`, "null"), chunk(`{"content":"there"}`, "null"),
		chunk(`{}`, `"stop"`), counted)
	want := []string{"messageLook ", "image_generation_call pngQUJD", "image_generation_call https://a.test/b.png", "messagethere "}
	if got := drawn(final.Get("output")); f != nil || !slices.Equal(got, want) {
		t.Errorf("streamed: %q, %+v, want %q", got, f, want)
	}
	if n := strings.Count(strings.Join(names, " "), "response.image_generation_call.completed"); n != 2 {
		t.Errorf("%d were completed in %v", n, names)
	}
	whole, _, f := responses.Face{Adapter: openai.New()}.Response(ask(false), []byte(
		`{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"Look",`+images+`},"finish_reason":"stop"}]}`), note)
	if got := drawn(gjson.GetBytes(whole, "output")); f != nil || !slices.Equal(got, want[:3]) {
		t.Errorf("whole: %q, %+v, want %q", got, f, want[:3])
	}
}

// TestImagesComeBack: what a model drew goes back to it as it came, in the assistant's message.
func TestImagesComeBack(t *testing.T) {
	_, final, f := play(t, ask(true), chunk(`{"images":[{"image_url":{"url":"data:image/avif;base64,QUJD"}},{"image_url":{"url":"https://a.test/b.png"}}]}`, `"stop"`), counted, "[DONE]")
	if f != nil {
		t.Fatal(f)
	}
	items := `[{"role":"user","content":"draw"},` + strings.Trim(final.Get("output").Raw, "[]") +
		`,{"type":"image_generation_call","id":"ig_1","result":"/9j/4A=="},{"type":"image_generation_call","id":"ig_2","result":null},{"role":"user","content":"larger"}]`
	chat, f := responses.Chat([]byte(`{"model":"m","input":`+items+`}`), nil)
	want := `["data:image/avif;base64,QUJD","https://a.test/b.png","data:image/jpeg;base64,/9j/4A=="]`
	if got := gjson.GetBytes(chat, "messages.1.images.#.image_url.url").Raw; f != nil || got != want || gjson.GetBytes(chat, "messages.#").Int() != 3 {
		t.Errorf("%+v %s", f, chat)
	}
	chat, f = responses.Chat([]byte(`{"model":"m","input":[{"role":"user","content":"draw"},{"role":"assistant","content":"so"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},`+
		`{"type":"image_generation_call","result":"QUJD"},{"type":"function_call_output","call_id":"c","output":"1"}]}`), nil)
	if got := gjson.GetBytes(chat, "messages.#.role").Raw; f != nil || got != `["user","assistant","tool"]` || gjson.GetBytes(chat, "messages.1.images.#").Int() != 1 {
		t.Errorf("beside a call: %+v %s", f, chat)
	}
}
