package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A quotad that was restored from a backup has forgotten usage that it had acknowledged. The files are still there: they
// are offered once more, and quotad says from where on it wants them.

const (
	epochName = "epoch"
	// offerAgainMax is how old a file may be that is offered again: quotad remembers for longer what it has counted of a
	// source, and what it has forgotten that of would be counted twice.
	offerAgainMax = 30 * 24 * time.Hour
)

// Epoch hears of quotad's epoch. A later one than the last means that quotad was restored.
func (r *Recorder) Epoch(epoch uint64) {
	r.mu.Lock()
	later := epoch > r.epoch
	r.epoch = max(r.epoch, epoch)
	r.mu.Unlock()
	if later {
		r.poke()
	}
}

// readEpoch tells the epoch in which the files were offered last; 0 before the first.
func readEpoch(dir string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, epochName))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// offerAgain has every file read and sent again, once an epoch. Only Run calls it.
func (r *Recorder) offerAgain(now time.Time) {
	r.mu.Lock()
	epoch := r.epoch
	due := r.cfg.Dir != "" && epoch > r.offered
	r.mu.Unlock()
	if !due {
		return
	}
	found, err := reopenSent(r.cfg.Dir, now.Add(-offerAgainMax))
	if err == nil {
		err = os.WriteFile(filepath.Join(r.cfg.Dir, epochName), []byte(strconv.FormatUint(epoch, 10)+"\n"), 0o600)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.older = append(r.older, found...)
	if err != nil {
		r.fault(fmt.Errorf("offer events again: %w", err)) // and again with the next step
		return
	}
	for _, s := range r.older {
		s.acked, s.unread = 0, true
	}
	if r.own.last > 0 && len(r.queue) == 0 && r.file != nil {
		r.own.acked, r.own.unread = 0, true
		r.rotate()
	}
	r.offered = epoch
}

// reopenSent takes files that were set aside back, if they are not older than that.
func reopenSent(dir string, since time.Time) (found []*source, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+doneSuffix))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || info.ModTime().Before(since) {
			continue // collected just now, or old
		}
		s := newSource(strings.TrimSuffix(filepath.Base(name), doneSuffix), dir)
		if err := os.Rename(name, s.path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return found, err
		}
		s.unread = true
		found = append(found, s)
	}
	return found, nil
}
