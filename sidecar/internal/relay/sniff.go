package relay

import (
	"bytes"
	"io"

	"github.com/valyala/fasthttp"

	"github.com/sluice-gateway/sluice/sidecar/internal/adapter"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
	"github.com/sluice-gateway/sluice/sidecar/internal/jsonseq"
	"github.com/sluice-gateway/sluice/sidecar/internal/sse"
)

// openStream finds out what a 2xx answer to a request with stream is. Only the labels of server-sent events and of AWS's
// are believed as they stand: the former come labelled as text or octets too, others are JSON objects in an array or one
// a line, and some servers ignore that a stream was asked for.
func (a *attempt) openStream(h *fasthttp.ResponseHeader, src source, b *body, ad adapter.Adapter,
	r *exchange.Request, note adapter.Annotate,
) *exchange.Failure {
	s := &Stream{c: a.c, src: src, body: b, start: a.dl.start, ans: a.ans}
	limit := a.c.cfg.EventBytesMax
	switch kind := h.ContentType(); {
	case hasPrefixFold(kind, "text/event-stream"):
		s.rd = &sse.Reader{Max: limit}
		return a.begin(s, ad, r, note)
	case hasPrefixFold(kind, "application/vnd.amazon.eventstream"):
		s.rd = &awsFraming{}
		return a.begin(s, ad, r, note)
	}
	first, f := sniff(src)
	if f != nil {
		return f
	}
	switch {
	case first[0] == '<':
		b.abort()
		return failPage()
	case first[0] == '{' && !isObjects(h):
		doc, f := a.document(s, first)
		if f != nil {
			return f
		}
		if doc != nil {
			return a.synthesise(s, doc, ad, r, note)
		}
	case first[0] == '{' || first[0] == '[':
		s.rd = &jsonFraming{Reader: jsonseq.Reader{Max: limit}}
		s.rd.Feed(first)
	default:
		s.rd = &sse.Reader{Max: limit}
		s.rd.Feed(first)
	}
	return a.begin(s, ad, r, note)
}

// begin starts to translate a stream and holds it back until it is one.
func (a *attempt) begin(s *Stream, ad adapter.Adapter, r *exchange.Request, note adapter.Annotate) *exchange.Failure {
	s.st = ad.Stream(r, note)
	f := s.hold(a.patience)
	if f != nil {
		s.body.abort()
		s.release()
		a.ans.Usage = s.st.Usage()
		return f
	}
	a.ans.Stream = s
	return nil
}

// document reads on from an object that no label explains, until it is known whether more follow. The last of a body is
// a complete answer, and returned. Otherwise the body is a stream of objects, and s goes on with it.
func (a *attempt) document(s *Stream, first []byte) ([]byte, *exchange.Failure) {
	probe := jsonseq.Reader{Max: a.c.cfg.BodyBytesMax}
	src := &resumed{first: first, source: s.src}
	var held []byte
	for objs := 0; objs < 2; {
		p, err := src.next(true)
		if err == io.EOF { //nolint:errorlint // a source returns its sentinels bare
			return held, nil
		}
		if err != nil {
			return nil, asFailure(err)
		}
		held = append(held, p...)
		probe.Feed(p)
		for ok := true; ok; {
			if _, ok, err = probe.Next(); err != nil {
				s.body.abort()
				return nil, unframed(err)
			}
			if ok {
				objs++
			}
		}
	}
	s.rd = &jsonFraming{Reader: jsonseq.Reader{Max: a.c.cfg.EventBytesMax}}
	s.rd.Feed(held)
	return nil, nil
}

// resumed gives back a chunk that was looked at already.
type resumed struct {
	source
	first []byte
}

func (s *resumed) next(block bool) ([]byte, error) {
	if p := s.first; p != nil {
		s.first = nil
		return p, nil
	}
	return s.source.next(block)
}

// sniff returns what has come once it says something, from the first byte that does: not blanks, and no byte order
// mark, however they are cut.
func sniff(src source) ([]byte, *exchange.Failure) {
	var held []byte // a beginning that may be that of the mark
	for {
		p, err := src.next(true)
		if err == io.EOF { //nolint:errorlint // a source returns its sentinels bare
			return nil, fail(exchange.FailInvalid, "the provider's answer is empty")
		}
		if err != nil {
			return nil, asFailure(err)
		}
		if len(held) > 0 {
			p = append(held, p...)
		}
		if p = trimStart(p); len(p) > 0 && !bytes.HasPrefix(bom, p) {
			return p, nil
		}
		held = bytes.Clone(p)
	}
}

// trimStart takes blanks and a byte order mark off the start of an answer.
func trimStart(p []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimLeft(p, whitespace), bom), whitespace)
}

const whitespace = " \t\r\n"

var bom = []byte("\xef\xbb\xbf")

// isObjects says whether an answer is labelled as JSON objects, one a line.
func isObjects(h *fasthttp.ResponseHeader) bool {
	for _, label := range [...]string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl"} {
		if hasPrefixFold(h.ContentType(), label) {
			return true
		}
	}
	return false
}
