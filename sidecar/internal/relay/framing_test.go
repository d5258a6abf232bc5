package relay

import (
	"bytes"
	"strings"
	"testing"

	aws "github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

// awsStream is a body of AWS events, each with the data of a small dialect's event.
func awsStream(t *testing.T, data ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, d := range data {
		m := aws.Message{Payload: []byte(d)}
		m.Headers.Set(":message-type", aws.StringValue("event"))
		m.Headers.Set(":event-type", aws.StringValue("chunk"))
		if err := aws.NewEncoder().Encode(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

const awsHead = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\nConnection: close\r\n\r\n"

// TestAWSFraming: a stream of AWS's frames is relayed like any other; one that is damaged fails before the first token, and
// is told to the caller after it, whatever had arrived.
func TestAWSFraming(t *testing.T) {
	hello, rest := awsStream(t, `{"t":"hello"}`), awsStream(t, `{"finish":"stop"}`, `{"usage":7}`, `[DONE]`)
	flipped := func(s string) string { return s[:len(s)-1] + string(s[len(s)-1]^1) }
	u := serve(t, once(awsHead+hello+rest, true))
	if got := play(mustStream(t, newClient(t, Config{}), u.url)); got.final.Status != StatusOK || got.final.Delivered.Bytes != 5 {
		t.Fatalf("got %+v", got)
	}
	for name, c := range map[string]struct {
		body string
		kind exchange.FailureKind
		code string
	}{
		"a wrong sum":   {flipped(rest), exchange.FailInvalid, "bad_checksum"},
		"no event":      {"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb\x7d\x98\xc8\xff", exchange.FailInvalid, "bad_frame"},
		"a cut frame":   {rest[:20], exchange.FailCut, ""},
		"a cut prelude": {rest[:5], exchange.FailCut, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, once(awsHead+c.body, true))
			if _, f := open(newClient(t, Config{}), &Canceller{}, u.url, true); f == nil || f.Kind != c.kind || f.Code != c.code {
				t.Errorf("got %+v", f)
			}
			u = serve(t, once(awsHead+hello+c.body, true))
			got := play(mustStream(t, newClient(t, Config{}), u.url))
			f := got.final.Failure
			if got.final.Status != StatusPartial || f.Kind != exchange.FailCut || f.Code != c.code || strings.Contains(got.text, "[DONE]") {
				t.Errorf("got %+v, %+v", got, f)
			}
		})
	}
}
