package session

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"github.com/sluice-gateway/sluice/quotad/internal/rollup"
)

// handle takes one message. What cannot be done now is dropped: its sender sends it again.
func (s *Server) handle(ctx context.Context, c *session, m *quotav1.SessionRequest) {
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	var err error
	switch m := m.GetMessage().(type) {
	case *quotav1.SessionRequest_Renew:
		err = s.renew(ctx, c, m.Renew)
	case *quotav1.SessionRequest_FileFinal:
		err = s.fileFinal(ctx, c, m.FileFinal)
	case *quotav1.SessionRequest_UsageBatch:
		err = s.usageBatch(ctx, c, m.UsageBatch)
	case *quotav1.SessionRequest_UsageQuery:
		s.usageQuery(ctx, c, m.UsageQuery)
	default:
		err = fmt.Errorf("message %T is not understood", m)
	}
	if err != nil && (ctx.Err() == nil || ending(err) != nil) {
		s.log.Warn("message of a sidecar was dropped", zap.String("identity", c.hello.GetIdentity()), zap.Error(err))
	}
}

func (s *Server) renew(ctx context.Context, c *session, r *quotav1.Renew) error {
	if r.GetIncarnation() != c.hello.GetIncarnation() {
		return fmt.Errorf("renew %d: it is of incarnation %d, the session of %d", r.GetSeq(), r.GetIncarnation(),
			c.hello.GetIncarnation())
	}
	defer c.finish(r.GetSeq())
	passed := s.renewals.Get().(*renewal)
	defer s.renewals.Put(passed)
	var foreign int
	var wrong error
	s.node.View(func(m *replica.Machine) {
		if wrong = checkRenew(m, r); wrong == nil {
			foreign = s.permit(m, c.hello.GetIdentity()).renew(c.hello.GetIdentity(), r, passed)
		}
	})
	if wrong != nil {
		c.cancel(wrong)
		return wrong
	}
	s.note(c, foreign)
	reply, err := s.node.Renew(ctx, &passed.Renew)
	if err != nil {
		return fmt.Errorf("renew %d: %w", r.GetSeq(), err)
	}
	c.mu.Lock()
	c.lastRenew = time.Now()
	c.mu.Unlock()
	if reply.Refusal != 0 {
		return fmt.Errorf("renew %d refused: reason %d", r.GetSeq(), reply.Refusal)
	}
	a := s.answers.Get().(*answer)
	out := a.fill(&reply)
	if foreign > 0 {
		complete(r, out)
	}
	c.sendThen(&a.response, func() { s.answers.Put(a) })
	return nil
}

// begin notes that a renew is under way; false when it was already, so that its answer will come. What a busy node is sent
// again must not make it busier: sidecars do not wait for long.
func (c *session) begin(r *quotav1.Renew) bool {
	if r.GetIncarnation() != c.hello.GetIncarnation() {
		return true // it is refused
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.GetSeq() != 0 && c.renewing == r.GetSeq() {
		return false
	}
	c.renewing = r.GetSeq()
	return true
}

func (c *session) finish(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewing == seq {
		c.renewing = 0
	}
}

// note counts what a sidecar named and may not, and says so once a session: an honest one does it for a moment after
// a team was taken from it.
func (s *Server) note(c *session, foreign int) {
	if foreign == 0 {
		return
	}
	s.foreign.Add(int64(foreign))
	c.mu.Lock()
	first := !c.strayed
	c.strayed = true
	c.mu.Unlock()
	if first {
		s.log.Warn("sidecar named what its identity may not see", zap.String("identity", c.hello.GetIdentity()),
			zap.Uint64("incarnation", c.hello.GetIncarnation()), zap.Int("count", foreign))
	}
}

// Foreign counts the counters, asks, usage rows and queries that named what their sender may not see, since this node
// started.
func (s *Server) Foreign() int64 { return s.foreign.Load() }

func (s *Server) fileFinal(ctx context.Context, c *session, f *quotav1.FileFinal) error {
	var passed *quotav1.FileFinal
	var foreign int
	s.node.View(func(m *replica.Machine) { passed, foreign = s.permit(m, c.hello.GetIdentity()).final(f) })
	s.note(c, foreign)
	res, err := s.node.Propose(ctx, finalTo(c.hello.GetIdentity(), c.hello.GetIncarnation(), passed))
	if err != nil {
		return fmt.Errorf("final totals: %w", err)
	}
	c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_FileFinalReply{
		FileFinalReply: &quotav1.FileFinalReply{Incarnation: f.GetIncarnation(), Done: res[0].FileFinalDone},
	}})
	return nil
}

func (s *Server) usageBatch(ctx context.Context, c *session, b *quotav1.UsageBatch) error {
	var rows []*quotav1.UsageRow
	var foreign int
	s.node.View(func(m *replica.Machine) { rows, foreign = s.permit(m, c.hello.GetIdentity()).rows(b.GetRows()) })
	s.note(c, foreign)
	res, err := s.node.Propose(ctx, batchTo(b, rows))
	if err != nil {
		return fmt.Errorf("usage batch: %w", err)
	}
	c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_UsageAck{
		UsageAck: &quotav1.UsageAck{Source: b.GetSource(), LastSeq: res[0].UsageSeq},
	}})
	return nil
}

func (s *Server) usageQuery(ctx context.Context, c *session, q *quotav1.UsageQuery) {
	out := &quotav1.UsageResult{Id: q.GetId()}
	if err := s.node.Linearizable(ctx); err != nil {
		out.Error = "quotad cannot answer now"
	} else {
		serves := false
		s.node.View(func(m *replica.Machine) {
			if serves = s.permit(m, c.hello.GetIdentity()).serves(q.GetTeam()); serves {
				s.query(m, q, out)
			}
		})
		if !serves {
			out.Error = "the sidecar may not see this team"
			s.note(c, 1)
		}
	}
	c.send(&quotav1.SessionResponse{Message: &quotav1.SessionResponse_UsageResult{UsageResult: out}})
}

func (*Server) query(m *replica.Machine, q *quotav1.UsageQuery, out *quotav1.UsageResult) {
	rows, err := m.Rollup.Query(rollup.Query{
		Team: q.GetTeam(), FromMS: q.GetFromMs(), ToMS: q.GetToMs(), GroupBy: q.GetGroupBy(),
	})
	if err != nil {
		out.Error = err.Error()
		return
	}
	out.Rows = rowsFrom(rows)
}
