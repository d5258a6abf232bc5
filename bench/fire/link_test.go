package fire

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// bound ends a test that hangs; it judges nothing.
const bound = 10 * time.Second

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	_ = c.SetReadDeadline(time.Now().Add(bound))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("heard %q, %v, want %q", b, err, text)
	}
}

// silent reports what comes for a moment, which must be nothing.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	b := make([]byte, 1)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v", b[:n], err)
	}
}

func torn(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(bound))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection goes on: %v", err)
	}
}

func TestALinkThatIsCutLosesNothing(t *testing.T) {
	l, err := NewLink(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, trouble := range map[string]Trouble{"both ways": Cut, "forth": {CutForth: true}, "back": {CutBack: true}} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, l.Addr())
			say(t, c, "before")
			hear(t, c, "before")
			l.Set(trouble)
			say(t, c, "while it is cut")
			silent(t, c)
			late := dial(t, l.Addr())
			say(t, late, "made while it is cut")
			silent(t, late)
			l.Set(Trouble{})
			hear(t, c, "while it is cut")
			hear(t, late, "made while it is cut")
			l.Reset()
			torn(t, c)
		})
	}
	l.Set(Trouble{Refuse: true})
	if c, err := net.Dial("tcp", l.Addr()); err == nil { // or else it was refused before it stood
		torn(t, c)
		_ = c.Close()
	}
	l.Set(Trouble{Delay: time.Millisecond, PerSec: 1 << 20})
	c := dial(t, l.Addr())
	say(t, c, "slowly")
	hear(t, c, "slowly")
}
