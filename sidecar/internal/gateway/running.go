package gateway

import "sync"

// running are the requests under way. The zero value is ready.
type running struct {
	mu    sync.Mutex
	flows map[*flow]struct{}
}

func (r *running) add(f *flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flows == nil {
		r.flows = map[*flow]struct{}{}
	}
	r.flows[f] = struct{}{}
}

func (r *running) remove(f *flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flows, f)
}

// cut ends what still runs, as if its caller had left, and returns how many that were. They settle on their own
// goroutines.
func (r *running) cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for f := range r.flows {
		f.cut.Store(true)
		f.cancel.Cancel()
	}
	return len(r.flows)
}
