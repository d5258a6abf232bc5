package relay

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

func newWatcher() (*Watcher, error) {
	e, err := newEpollWatch()
	if err != nil {
		return nil, err
	}
	return &Watcher{watch: e}, nil
}

// epollEventsMax is how many events one look takes.
const epollEventsMax = 128

// epollWatch is one epoll set that only ever reports that a peer has closed. Go's own poller watches the set, so that
// no thread blocks in it.
//
// Events carry a slot and its generation. A descriptor stays in the set after its watch; an event from then on is
// stale, its generation says so, and as watches are one-shot it does not come again.
type epollWatch struct {
	file *os.File
	sys  syscall.RawConn
	used chan struct{} // closed at the first watch: until then there is nothing to look for

	mu    sync.Mutex
	calm  sync.Cond // signalled when a callback has returned
	slots []watchSlot
	free  []uint32
}

type watchSlot struct {
	gen     uint32
	on      func() // nil when disarmed or fired
	running bool   // the callback is being called
}

func newEpollWatch() (*epollWatch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	e := &epollWatch{file: os.NewFile(uintptr(fd), "epoll"), used: make(chan struct{})}
	e.calm.L = &e.mu
	if e.sys, err = e.file.SyscallConn(); err != nil {
		_ = e.file.Close()
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	return e, nil
}

func (e *epollWatch) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = e.file.SetReadDeadline(past) })
	defer stop()
	defer func() { _ = e.file.Close() }()
	select {
	case <-e.used:
	case <-ctx.Done():
		return nil
	}
	events := make([]unix.EpollEvent, epollEventsMax)
	for {
		n := 0
		var werr error
		err := e.sys.Read(func(set uintptr) bool {
			n, werr = unix.EpollWait(int(set), events, 0)
			if werr == unix.EINTR {
				n, werr = 0, nil
			}
			return n > 0 || werr != nil
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("wait for callers that leave: %w", err)
		case werr != nil:
			return fmt.Errorf("wait for callers that leave: %w", werr)
		}
		for _, ev := range events[:n] {
			e.fire(uint32(ev.Fd), uint32(ev.Pad))
		}
	}
}

// fire calls the callback of a slot, unless it was disarmed meanwhile.
func (e *epollWatch) fire(slot, gen uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.slots[slot]
	if s.gen != gen || s.on == nil {
		return
	}
	on := s.on
	s.on, s.running = nil, true
	e.mu.Unlock()
	on()
	e.mu.Lock()
	e.slots[slot].running = false // slots may have moved
	e.calm.Broadcast()
}

func (e *epollWatch) arm(conn net.Conn, onGone func()) Token {
	rc := descriptor(conn)
	if rc == nil {
		return Token{}
	}
	t := e.open(onGone)
	ev := unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT,
		Fd:     int32(t.slot), Pad: int32(t.gen),
	}
	var errSet, errCtl error
	err := rc.Control(func(fd uintptr) {
		errSet = e.sys.Control(func(set uintptr) {
			// The descriptor is mostly known, from an earlier request on the same connection.
			errCtl = unix.EpollCtl(int(set), unix.EPOLL_CTL_MOD, int(fd), &ev)
			if errCtl == unix.ENOENT {
				errCtl = unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, int(fd), &ev)
			}
		})
	})
	if err != nil || errSet != nil || errCtl != nil {
		// Not watchable, closed already, or Run is over: the next write will tell.
		e.disarm(t)
		return Token{}
	}
	return t
}

func (e *epollWatch) open(on func()) Token {
	e.mu.Lock()
	defer e.mu.Unlock()
	var slot uint32
	if n := len(e.free); n > 0 {
		slot = e.free[n-1]
		e.free = e.free[:n-1]
	} else {
		slot = uint32(len(e.slots))
		if slot == 0 {
			close(e.used)
		}
		e.slots = append(e.slots, watchSlot{})
	}
	s := &e.slots[slot]
	s.gen++
	s.on = on
	return Token{slot: slot, gen: s.gen, on: true}
}

func (e *epollWatch) disarm(t Token) {
	if !t.on {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slots[t.slot].gen != t.gen {
		return // disarmed before
	}
	for e.slots[t.slot].running {
		e.calm.Wait()
	}
	s := &e.slots[t.slot]
	s.on = nil
	s.gen++
	e.free = append(e.free, t.slot)
}
