package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/relay"
)

// Alias is the name of the model that callers ask for.
const Alias = "smart"

// Chat is a request of a chat caller, who asks for the usage of streams.
func Chat(stream bool) *exchange.Request {
	return &exchange.Request{
		ID: "req_test", Operation: exchange.Chat, Model: Alias, Stream: stream, IncludeUsage: stream, Choices: 1,
		CreatedUnix: 1_700_000_000, Body: []byte(`{"model":"smart","messages":[{"role":"user","content":"hi"}]}`),
	}
}

// Note takes an answer without usage for 40 tokens in and one out for each byte.
func Note(dst []byte, u exchange.Usage, delivered adapter.Delivered) ([]byte, exchange.Usage) {
	if u.Source == exchange.FromProvider {
		return append(dst, `{"estimated":false}`...), u
	}
	u.Input, u.Output = 40, delivered.Bytes
	return append(dst, `{"estimated":true}`...), u
}

// Relayed is what became of a request.
type Relayed struct {
	Status  int               // the provider's
	Failure *exchange.Failure // of the attempt, or of a stream that broke
	Body    []byte            // what the caller got: an answer or a whole stream
	Usage   exchange.Usage    // as it is settled
	Outcome *relay.Outcome    // of a stream that began, nil for none
}

// Relay sends a request to a provider that answers with pieces, each of which is one read, and then hangs up. It reads the
// answer to its end.
func Relay(t testing.TB, ad adapter.Adapter, d *exchange.Deployment, r *exchange.Request, pieces ...[]byte) Relayed {
	t.Helper()
	call, f := ad.Request(r, d, nil)
	if f != nil {
		t.Fatalf("%+v", f)
	}
	near, far := net.Pipe()
	client := relay.NewClient(relay.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
	var provider sync.WaitGroup
	provider.Go(func() { answer(far, pieces) })
	defer provider.Wait()
	defer func() { _ = near.Close() }()
	const long = time.Minute
	up := relay.Upstream{
		BaseURL:  "http://provider.test/v1",
		Timeouts: exchange.Timeouts{Connect: long, FirstToken: long, Idle: long, Total: long},
	}
	ans, f := client.Open(&relay.Canceller{}, up, call, r.Stream, ad, r, Note)
	got := Relayed{Status: ans.Status, Failure: f, Body: ans.Body, Usage: ans.Usage}
	if f != nil || ans.Stream == nil {
		return got
	}
	ans.Stream.OnEnd = func(o relay.Outcome) { got.Outcome = &o }
	var out bytes.Buffer
	if _, err := ans.Stream.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if err := ans.Stream.Close(); err != nil {
		t.Fatal(err)
	}
	if got.Outcome == nil {
		t.Fatal("the stream was not settled")
	}
	got.Body, got.Failure, got.Usage = out.Bytes(), got.Outcome.Failure, got.Outcome.Usage
	return got
}

// answer reads a request and answers it. The relay may hang up as soon as it has heard enough.
func answer(c net.Conn, pieces [][]byte) {
	defer func() { _ = c.Close() }()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			return
		}
	}
}
