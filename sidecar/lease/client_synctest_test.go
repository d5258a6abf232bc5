package lease

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

func TestRenewsEveryTwoSecondsWithJitter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.connect()
		elapse(60 * time.Second)
		msgs := s.messages()
		if len(msgs) < 28 || len(msgs) > 34 {
			t.Fatalf("%d renews in a minute, want about 30", len(msgs))
		}
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(msgs); i++ {
			gap := msgs[i].at.Sub(msgs[i-1].at)
			gaps[gap] = true
			if gap < 1600*time.Millisecond || gap > 2400*time.Millisecond {
				t.Fatalf("gap %v, want 2s within a fifth", gap)
			}
			if msgs[i].msg.GetRenew().GetSeq() != uint64(i+1) {
				t.Fatalf("seq %d is number %d", msgs[i].msg.GetRenew().GetSeq(), i+1)
			}
		}
		if len(gaps) < 10 {
			t.Fatal("no jitter")
		}
	})
}

func TestUnansweredRenewIsSentAgainUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.mute = true
		first := w.connect()
		elapse(3 * time.Second)
		msgs := first.messages()
		if len(msgs) != 5 {
			t.Fatalf("%d sends in 3 s, want one every 700 ms", len(msgs))
		}
		w.c.Disconnected()
		elapse(10 * time.Second)
		second := w.connect()
		synctest.Wait()
		again := second.messages()
		if len(again) != 1 || !again[0].at.Equal(time.Now()) {
			t.Fatalf("%d sends to the new session at once, want 1", len(again))
		}
		for _, m := range append(msgs, again...) {
			if string(m.raw) != string(msgs[0].raw) {
				t.Fatal("an unanswered renew changed")
			}
		}
		w.set(func() { w.mute = false })
		elapse(4 * time.Second)
		if last := second.messages()[len(second.messages())-1]; last.msg.GetRenew().GetSeq() < 2 {
			t.Fatal("no further renew after the answer")
		}
	})
}

func TestAskIsAnsweredInOneRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		h, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1), need(moneyID, 1000)}, nil)
		if !v.OK || v.Waited != 2*time.Millisecond {
			t.Fatalf("got %+v, want a grant after 2ms", v)
		}
		w.c.Settle(h, []Need{need(1, 1), need(moneyID, 900)})
		if left, _, resetIn, ok := w.c.Remaining(moneyID); !ok || left < 990_000 || resetIn <= 0 {
			t.Fatalf("left %d, resets in %v, %v", left, resetIn, ok)
		}
		if _, v = w.c.Acquire(nil, 0, Share, []Need{need(1, 1), need(moneyID, 1000)}, nil); !v.OK || v.Waited != 0 {
			t.Fatalf("got %+v, want a grant from the lease", v)
		}
	})
}

func TestEarlyRenewsKeepTheirDistance(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.l.stingy = true // every request is an ask
		w.set(func() { w.l.fund(1, 0, 1000) })
		s := w.connect()
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				for range 10 {
					h, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil)
					if !v.OK {
						t.Errorf("got %+v", v)
					}
					w.c.Settle(h, []Need{need(1, 1)})
				}
			})
		}
		group.Wait()
		msgs := s.messages()
		for i := 1; i < len(msgs); i++ {
			if gap := msgs[i].at.Sub(msgs[i-1].at); gap < 50*time.Millisecond {
				t.Fatalf("renews %v apart, want at least 50ms", gap)
			}
		}
		if len(msgs) < 10 {
			t.Fatalf("%d renews for ten rounds of asks", len(msgs))
		}
	})
}

func TestAskWaitsOnlySoLong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		w.set(func() { w.mute = true })
		_, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil)
		if v.Reason != Unavailable || v.Waited != 2500*time.Millisecond || v.RetryAfter <= 0 {
			t.Fatalf("got %+v, want unavailable after 2.5s", v)
		}
		if _, v = w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); v.Reason != Unavailable || v.Waited != 2500*time.Millisecond {
			t.Fatalf("got %+v, want its own 2.5s: quotad may yet answer", v)
		}
		if _, v = w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); v.Reason != Unavailable || v.Waited != 0 {
			t.Fatalf("got %+v, want unavailable at once: nothing was answered for 5s", v)
		}
	})
}

// TestWaitedBefore: what a request has waited before is taken off; with nothing left it is decided from what is here.
func TestWaitedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		w.set(func() { w.mute = true })
		if _, v := w.c.Acquire(nil, 2*time.Second, Share, []Need{need(1, 1)}, nil); v.Reason != Unavailable || v.Waited != 500*time.Millisecond {
			t.Fatalf("got %+v, want unavailable after the 500ms that are left", v)
		}
		if _, v := w.c.Acquire(nil, 2500*time.Millisecond, Share, []Need{need(1, 1)}, nil); v.Reason != Unavailable || v.Waited != 0 {
			t.Fatalf("got %+v, want unavailable at once", v)
		}
		if _, v := w.c.Acquire(nil, time.Hour, Open, []Need{need(moneyID, 500_000)}, nil); v.Reason != Unavailable || v.Waited != 0 {
			t.Fatalf("got %+v, want a hard budget to be unavailable at once", v)
		}
		if s := w.c.Stats(); s.Waiting != 0 || s.OpenHolds != 0 {
			t.Fatalf("got %+v", s)
		}
	})
}

func TestLeaderChangeIsNotSeen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		w.c.Disconnected()
		elapse(100 * time.Millisecond)
		time.AfterFunc(1500*time.Millisecond, func() { w.connect() })
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); !v.OK || v.Waited < 1500*time.Millisecond {
			t.Fatalf("got %+v, want a grant by the next leader", v)
		}
	})
}

func TestLateInALeaderChangeARequestStillWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		w.c.Disconnected()
		elapse(2600 * time.Millisecond)
		time.AfterFunc(time.Second, func() { w.connect() })
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); !v.OK || v.Waited < time.Second {
			t.Fatalf("got %+v, want a grant by the next leader", v)
		}
	})
}

func TestLongDisconnectedIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		w.c.Disconnected()
		elapse(5 * time.Second)
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); v.Reason != Unavailable || v.Waited != 0 {
			t.Fatalf("got %+v, want unavailable at once", v)
		}
	})
}

func TestCallerGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		w.set(func() { w.delay = time.Second })
		done := make(chan struct{})
		time.AfterFunc(300*time.Millisecond, func() { close(done) })
		_, v := w.c.Acquire(done, 0, Share, []Need{need(moneyID, 500_000)}, nil)
		if v.Reason != CallerGone || v.Waited != 300*time.Millisecond {
			t.Fatalf("got %+v", v)
		}
		elapse(5 * time.Second)
		w.set(func() {
			if a := w.l.account(w.c.Incarnation(), counterKey{moneyID, jan}); a.out() != 0 || a.returned < 500_000 {
				t.Errorf("got %+v, want all of it back", *a)
			}
		})
		if s := w.c.Stats(); s.OpenHolds != 0 || s.Waiting != 0 {
			t.Fatalf("got %+v", s)
		}
	})
}

func TestOutageFromLeaseToShareToStandby(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.l.shares, w.l.version = []*quotav1.Share{{Resource: 1, PerMinute: 60}}, 4
		w.connect()
		h, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 5)}, nil)
		if !v.OK {
			t.Fatalf("got %+v", v)
		}
		w.c.Settle(h, nil)
		w.c.Disconnected()
		last := time.Now()
		admitted := map[string]int{}
		for time.Since(last) < 62*time.Minute {
			elapse(500 * time.Millisecond)
			if time.Since(last) < 3*time.Second {
				continue // a leader may still come
			}
			h, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil)
			if !v.OK && (v.Reason != Unavailable || v.RetryAfter < time.Millisecond) {
				t.Fatalf("got %+v", v)
			}
			if v.OK {
				switch age := time.Since(last); {
				case age < 10*time.Second:
					admitted["lease"]++
				case age < time.Hour:
					admitted["share"]++
				default:
					admitted["standby"]++
				}
				w.c.Settle(h, []Need{need(1, 1)})
			}
		}
		if admitted["lease"] != 14 || admitted["standby"] != 0 {
			t.Fatalf("got %v, want every half second from 3 s to 9.5 s, and nothing after standby", admitted)
		}
		if n := admitted["share"]; n < 3500 || n > 3590 {
			t.Fatalf("%d from the share in an hour at 60 a minute", n)
		}
		if s := w.c.Stats(); s.TrickleAdmissions != uint64(admitted["share"]) || s.Connected || s.ShareVersion != 4 {
			t.Fatalf("got %+v", s)
		}
	})
}

func TestFinalsAreSentUntilDone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.c.mu.Lock()
		w.c.m.addFinals([]*final{{&quotav1.FileFinal{Incarnation: 9, Seq: 1}}})
		w.c.mu.Unlock()
		s := w.connect()
		finals := func() (n int) {
			for _, m := range s.messages() {
				if m.msg.GetFileFinal().GetIncarnation() == 9 {
					n++
				}
			}
			return n
		}
		elapse(3 * time.Second)
		w.c.HandleFileFinalReply(&quotav1.FileFinalReply{Incarnation: 9})
		elapse(2 * time.Second)
		if n := finals(); n != 3 {
			t.Fatalf("sent %d times in 5 s, want every 2 s", n)
		}
		w.c.HandleFileFinalReply(&quotav1.FileFinalReply{Incarnation: 9, Done: true})
		elapse(10 * time.Second)
		if n := finals(); n != 3 || w.c.Stats().PendingFinals != 0 {
			t.Fatalf("sent %d times, want no more", n)
		}
	})
}

func TestFencedClientNeedsANewSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		elapse(time.Second)
		before := w.c.Incarnation()
		w.set(func() { w.l.fenced[before] = true })
		elapse(3 * time.Second)
		if w.c.Incarnation() == before || w.c.Stats().Connected || w.c.Stats().Fences != 1 {
			t.Fatalf("got %+v", w.c.Stats())
		}
		w.connect()
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); !v.OK {
			t.Fatalf("got %+v", v)
		}
	})
}

func TestLeaveReturnsThenSettles(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.connect()
		h, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1), need(moneyID, 1000)}, nil)
		if !v.OK {
			t.Fatalf("got %+v", v)
		}
		if err := w.c.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := counterKey{moneyID, jan}
		w.set(func() {
			if a := w.l.account(w.c.Incarnation(), key); a.out() != 1000 {
				t.Errorf("%d out after leaving, want the running request's 1000", a.out())
			}
		})
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); v.Reason != Leaving {
			t.Fatalf("got %+v", v)
		}
		w.c.Settle(h, []Need{need(moneyID, 400)})
		if err := w.c.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.set(func() {
			if a := w.l.account(w.c.Incarnation(), key); a.out() != 0 || a.spent != 400 {
				t.Errorf("got %+v, want the final totals", *a)
			}
			w.mute = true
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.c.Leave(ctx); err == nil {
			t.Fatal("no error though nobody answers")
		}
	})
}

func TestDeadSenderIsLetGo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.connect()
		elapse(time.Second)
		s.mu.Lock()
		s.dead = true
		s.mu.Unlock()
		elapse(3 * time.Second)
		if w.c.Stats().Connected {
			t.Fatal("still connected")
		}
		w.connect()
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); !v.OK {
			t.Fatalf("got %+v", v)
		}
	})
}

func TestClosedClientRefuses(t *testing.T) {
	c, err := New(Config{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, v := c.Acquire(nil, 0, Share, nil, nil); v.Reason != Unavailable {
		t.Fatalf("got %+v", v)
	}
	c.Settle(Hold{}, nil)
	if c.Stats().Journal.Why == "" {
		t.Fatal("no word on the missing journal")
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{RenewEvery: -1, LowWaterPercent: 101, SegmentBytes: 1}, zap.NewNop())
	if err == nil {
		t.Fatal("no error")
	}
}

func TestWakeRenewsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.l.stingy = true
		w.connect()
		elapse(time.Second)
		w.set(func() { w.l.free[counterKey{1, 0}], w.l.total[counterKey{1, 0}] = 0, 0 })
		for range 2 {
			if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); v.Reason != Throttled {
				t.Fatalf("got %+v", v)
			}
		}
		seq := w.c.Stats().Seq
		w.set(func() { w.l.fund(1, 0, 60) })
		w.c.Wake()
		elapse(80 * time.Millisecond)
		if got := w.c.Stats().Seq; got != seq+1 {
			t.Fatalf("seq %d, want %d", got, seq+1)
		}
		if _, v := w.c.Acquire(nil, 0, Share, []Need{need(1, 1)}, nil); !v.OK {
			t.Fatalf("got %+v", v)
		}
	})
}
