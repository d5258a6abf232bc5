package usage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	usagev1 "github.com/sluice-gateway/sluice/proto/gen/usage/v1"
)

// rowsMax bounds the rows of one batch, and so the size of its message: about 200 KB.
const rowsMax = 1_000

// source is the events of one file, numbered from 1, and their sums that quotad has not counted. However long quotad is
// away, the sums take no more room than there are keys, aliases and hours.
type source struct {
	id     string
	path   string // "": in memory only
	unread bool   // the sums are to be made from the file first
	last   uint64 // newest event
	acked  uint64 // newest event quotad has counted

	sealed   []*quotav1.UsageBatch // oldest first; never changed, so that one sent again is the same
	open     rows                  // of the events after the last sealed one
	openFrom uint64
}

func newSource(id, dir string) *source {
	s := &source{id: id}
	if dir != "" {
		s.path = filepath.Join(dir, id+openSuffix)
	}
	return s
}

// add counts an event. Numbers may be missing: what a full disk has torn is not seen again, and must not hold up the
// rest.
func (s *source) add(seq uint64, e *usagev1.Event) {
	if len(s.open) == 0 {
		s.open, s.openFrom = rows{}, s.last+1
	}
	s.open.add(e)
	s.last = seq
	if len(s.open) >= rowsMax {
		s.seal()
	}
}

func (s *source) seal() {
	b := &quotav1.UsageBatch{Source: s.id, FromSeq: s.openFrom, ToSeq: s.last}
	for _, row := range s.open {
		b.Rows = append(b.Rows, row)
	}
	s.sealed, s.open = append(s.sealed, b), nil
}

// next returns the oldest sums that quotad has not counted, nil when there are none.
func (s *source) next() *quotav1.UsageBatch {
	if len(s.sealed) == 0 && len(s.open) > 0 {
		s.seal()
	}
	if len(s.sealed) == 0 {
		return nil
	}
	return s.sealed[0]
}

// ack takes how far quotad has counted. It reports whether the sums go on from there: they do not when quotad knows
// less than it once did, or when a dead process had cut them otherwise.
func (s *source) ack(counted uint64) (fits bool) {
	for len(s.sealed) > 0 && s.sealed[0].GetToSeq() <= counted {
		s.sealed = s.sealed[1:]
	}
	s.acked = counted
	from := s.last + 1
	switch {
	case len(s.sealed) > 0:
		from = s.sealed[0].GetFromSeq()
	case len(s.open) > 0:
		from = s.openFrom
	}
	return from == counted+1 || counted >= s.last
}

// done reports whether quotad has counted everything.
func (s *source) done() bool { return !s.unread && s.acked >= s.last }

// waiting is how many events quotad has not counted, as far as known.
func (s *source) waiting() int { return int(s.last - min(s.acked, s.last)) }

// read makes the sums of a file that no longer grows, from the first event that quotad has not counted. A torn last
// line was never seen by anyone as recorded: it is dropped.
func (s *source) read() (*source, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("read event file: %w", err)
	}
	defer func() { _ = f.Close() }()
	out := &source{id: s.id, path: s.path, acked: s.acked, last: s.acked}
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		b, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read event file %s: %w", s.path, err)
		}
		seq, e, err := decode(bytes.TrimSpace(b))
		if err != nil || seq <= out.last {
			continue // torn by a full disk; its money is in the lease journal
		}
		out.add(seq, e)
	}
}

// unreadSources lists the files of dead processes whose events quotad may not have, oldest name first.
func unreadSources(dir string) ([]*source, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+openSuffix))
	if err != nil {
		return nil, fmt.Errorf("list event files: %w", err)
	}
	var out []*source
	for _, path := range names {
		if !strings.HasSuffix(path, doneSuffix) {
			out = append(out, &source{id: strings.TrimSuffix(filepath.Base(path), openSuffix), path: path, unread: true})
		}
	}
	return out, nil
}
