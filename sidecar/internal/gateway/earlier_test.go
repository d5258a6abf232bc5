package gateway

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestEarlierIsBounded(t *testing.T) {
	var e earlier
	e.learn("", 1)
	e.learn(strings.Repeat("x", earlierIDBytesMax+1), 1)
	for i := range earlierMax + 1 {
		e.learn(strconv.Itoa(i), int64(i))
		e.learn(strconv.Itoa(i), int64(i)+1)
	}
	if n, known := e.of("0"); known || n != earlierUnseen || len(e.tokens) != earlierMax {
		t.Errorf("the oldest is %d, %v; %d are kept", n, known, len(e.tokens))
	}
	if n, known := e.of("1"); !known || n != 2 {
		t.Errorf("the next is %d, %v", n, known)
	}
}

// TestEarlierTurns: the turns that a request names by the answer before it are part of its estimate: as long as that answer
// made them where it was seen here, whole or streamed, else a stated allowance, from which nothing is learned.
func TestEarlierTurns(t *testing.T) {
	const used = 30_000
	served := 0
	p := &provider{id: "a", answer: func(w http.ResponseWriter, _ *http.Request) {
		served++
		response := `{"id":"resp_` + strconv.Itoa(served) + `","object":"response","status":"completed","model":"m","output":[{"type":"message","id":"m","role":"assistant",` +
			`"status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}],"usage":{"input_tokens":29900,"output_tokens":100,"total_tokens":30000}}`
		if served == 1 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, response)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: response.output_text.delta\ndata: "+
			`{"type":"response.output_text.delta","sequence_number":0,"item_id":"m","output_index":0,"content_index":0,"delta":"hi"}`+"\n\n"+
			"event: response.completed\ndata: "+`{"type":"response.completed","sequence_number":1,"response":`+response+"}\n\n")
	}}
	r := newRig(t, []*provider{p}, limited(100, 10_000_000, 50_000, allMoney))
	serve := func(members string) {
		t.Helper()
		if a := r.send("POST", "/v1/responses", `{"model":"chat","input":"go on"`+members+`}`); a.status != 200 || !strings.Contains(a.body, "resp_") {
			t.Fatalf("%d %s", a.status, a.body)
		}
		r.eventually("it is settled", func() bool { return r.g.Lease.Stats().OpenHolds == 0 })
	}
	serve("")
	serve(`,"stream":true,"conversation":{"id":"conv_1"}`)
	for members, want := range map[string]int64{
		``:                                    0,
		`,"previous_response_id":null`:        0,
		`,"previous_response_id":"resp_1"`:    used,
		`,"previous_response_id":"resp_2"`:    used,
		`,"previous_response_id":"elsewhere"`: earlierUnseen,
		`,"conversation":"conv_1"`:            used,
		`,"conversation":{"id":"conv_2"}`:     earlierUnseen,
	} {
		f := &flow{req: exchange.Request{
			Operation: exchange.Chat, Dialect: exchange.ResponsesDialect, Native: []byte(`{"model":"chat","input":"go on"` + members + `}`),
		}}
		if bad := peek(&f.req); bad != nil {
			t.Fatalf("%s: %+v", members, bad)
		}
		r.g.measure(f)
		if f.input.Extra != want || f.unseen != (want == earlierUnseen) {
			t.Errorf("%s: %d tokens, unseen %v, want %d", members, f.input.Extra, f.unseen, want)
		}
	}
}
