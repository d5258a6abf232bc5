package gemini_test

import (
	"testing"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/adapter/gemini"
	"github.com/sluice-gateway/sluice/sidecar/internal/adaptertest"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func TestFixtures(t *testing.T) {
	adaptertest.Play(t, "testdata", gemini.New(), &exchange.Deployment{Model: "gemini-fx-3"})
}

func chat(body string, stream bool) *exchange.Request {
	r := adaptertest.Chat(stream)
	r.Body = []byte(body)
	return r
}

func note(dst []byte, u exchange.Usage, d adapter.Delivered) ([]byte, exchange.Usage) {
	return adaptertest.Note(dst, u, d)
}

// seen is what came of an answer.
type seen struct {
	failure  *exchange.Failure
	body     string // an answer, or a whole stream
	usage    exchange.Usage
	streamed bool
}

// whole asks with a complete answer.
func whole(t *testing.T, body string) seen {
	t.Helper()
	out, u, f := gemini.New().Response(chat("{}", false), []byte(body), note)
	return seen{failure: f, body: string(out), usage: u}
}

// streamed asks with the events of a stream.
func streamed(t *testing.T, events ...string) seen {
	t.Helper()
	st := gemini.New().Stream(chat("{}", true), note)
	out, f := adaptertest.Translate(t, st, events...)
	return seen{failure: f, body: string(out), usage: st.Usage(), streamed: true}
}

// read reads an answer as client libraries do: its first choice, and all of it.
func (s seen) read(t *testing.T) (adaptertest.Choice, *adaptertest.Seen) {
	t.Helper()
	var a *adaptertest.Seen
	if s.streamed {
		a = adaptertest.ReadStream(t, []byte(s.body), true)
	} else {
		a = adaptertest.ReadAnswer(t, []byte(s.body))
	}
	return a.First(), a
}
