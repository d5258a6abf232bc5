package replica

import (
	"context"
	"slices"
	"sync"
)

// hub passes signals to watchers. A watcher's channel holds one signal; while it is unread, later ones are merged into
// it, so publishing never waits and needs no goroutine.
type hub struct {
	mu       sync.Mutex // guards all; held while a channel is refilled, so that there is one writer
	watchers map[chan Signal]struct{}
	config   uint64 // newest version published
}

func newHub() *hub { return &hub{watchers: map[chan Signal]struct{}{}} }

func (h *hub) watch(ctx context.Context) <-chan Signal {
	c := make(chan Signal, 1)
	h.mu.Lock()
	h.watchers[c] = struct{}{}
	c <- Signal{Leadership: true, ConfigVersion: h.config}
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
		close(c)
	})
	return c
}

func (h *hub) publish(s Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config = max(h.config, s.ConfigVersion)
	for c := range h.watchers {
		merged := s
		select {
		case unread := <-c:
			merged = unread.merge(s)
		default:
		}
		c <- merged // there is room: it was just emptied, and only the hub sends
	}
}

// merge returns what s and the later t say together.
func (s Signal) merge(t Signal) Signal {
	s.ConfigVersion = max(s.ConfigVersion, t.ConfigVersion)
	s.Credentials = s.Credentials || t.Credentials
	s.Leadership = s.Leadership || t.Leadership
	s.Alerts = s.Alerts || t.Alerts
	// The slice may be shared with other watchers' signals: make a new one.
	if len(t.Wake) > 0 {
		s.Wake = slices.Concat(s.Wake, t.Wake)
		slices.Sort(s.Wake)
		s.Wake = slices.Compact(s.Wake)
	}
	return s
}

func (s Signal) empty() bool {
	return s.ConfigVersion == 0 && !s.Credentials && !s.Leadership && len(s.Wake) == 0 && !s.Alerts
}
