package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

const a, b = "127.0.0.1", "127.0.0.2"

// pair makes a connection from a to b.
func pair(t *testing.T, n *Net) (mine, theirs net.Conn) {
	t.Helper()
	l, err := n.Host(b).Listen("tcp", b+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if mine, err = n.Host(a).Dial(t.Context(), "tcp", b+":80"); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return mine, theirs
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// TestConforms: connections do what the net package says of connections.
func TestConforms(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Microsecond} {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			mine, theirs := pair(t, New(latency))
			return mine, theirs, func() { mine.Close(); theirs.Close() }, nil
		})
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		mine, theirs := pair(t, New(time.Second))
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("connected after %v", took)
		}
		write(t, mine, "x")
		read(t, theirs, "x")
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("arrived after %v", took)
		}
	})
}

func TestCutAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(time.Millisecond)
		mine, theirs := pair(t, n)
		n.Cut(b, a)
		write(t, mine, "held up")
		if err := mine.Close(); err != nil {
			t.Fatal(err)
		}
		if err := theirs.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read through the cut: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Host(a).Dial(ctx, "tcp", b+":80"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("dialled through the cut: %v", err)
		}
		if err := theirs.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, n.Heal)
		began := time.Now()
		read(t, theirs, "held up")
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != time.Hour {
			t.Fatalf("the end: %v after %v", err, time.Since(began))
		}
	})
}

func TestHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := pair(t, New(time.Millisecond))
		write(t, mine, "question")
		if err := mine.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(theirs); err != nil || string(all) != "question" {
			t.Fatalf("%q %v", all, err)
		}
		write(t, theirs, "answer")
		read(t, mine, "answer")
		if _, err := mine.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Fatalf("written after the end: %v", err)
		}
	})
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := pair(t, New(time.Millisecond))
		write(t, mine, "lost")
		if err := mine.(interface{ SetLinger(int) error }).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		if err := mine.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("read: %v", err)
		}
		if _, err := theirs.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Fatalf("write: %v", err)
		}
	})
}

func TestAWriterWaitsForItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := pair(t, New(0))
		sent := make(chan error, 1)
		go func() {
			_, err := mine.Write(make([]byte, bufferBytes+1))
			sent <- err
		}()
		synctest.Wait()
		select {
		case err := <-sent:
			t.Fatalf("all was taken: %v", err)
		default:
		}
		if _, err := theirs.Read(make([]byte, 1)); err != nil || <-sent != nil {
			t.Fatal(err)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(0).Host(a)
		l, err := h.Listen("tcp", a+":0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Listen("tcp", l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("listened twice: %v", err)
		}
		waiting, err := h.Dial(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("what was not accepted: %v", err)
		}
		if _, err := h.Dial(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dialled nobody: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("accepted: %v", err)
		}
	})
}

func TestExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(0)
		mine, theirs := pair(t, n)
		l, err := n.Host(a).Listen("tcp", a+":80")
		if err != nil {
			t.Fatal(err)
		}
		write(t, mine, "last words")
		n.Host(a).Exit()
		if all, err := io.ReadAll(theirs); err != nil || string(all) != "last words" {
			t.Fatalf("%q %v", all, err)
		}
		if _, err := mine.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("read: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("accepted: %v", err)
		}
	})
}
