package lease

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openJournal takes the directory's lock, reads what a dead predecessor left, and makes ready to write. The returned
// journal has no live segment yet: the machine's first checkpoint makes one, in the file that the predecessor's
// record is not in.
//
// markDir is where the mark is that tells a journal that was put back from the newest.
//
// ErrLocked: another live process uses the directory; nothing else is returned. Any other error: there is no journal,
// for example because the disk is full or read-only. The lock is then held if it could be taken, and before is still
// what could be read. closer releases the lock; it is never nil without ErrLocked.
func openJournal(dir, markDir string, size int) (j *journal, before *past, closer func() error, err error) {
	nothing := func() error { return nil }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, nothing, fmt.Errorf("make lease directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, nothing, fmt.Errorf("open lease lock: %w", err)
	}
	if err := flock(lock); err != nil {
		_ = lock.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil, nil, fmt.Errorf("%s: %w", dir, ErrLocked)
		}
		return nil, nil, nothing, fmt.Errorf("lock lease directory: %w", err)
	}
	boot := readBoot()
	paths := [2]string{filepath.Join(dir, "journal.0"), filepath.Join(dir, "journal.1")}
	live := 1
	for i, path := range paths {
		if p := readSegment(path, boot); p != nil && (before == nil || p.generation > before.generation) {
			before, live = p, i
		}
	}
	j = &journal{at: live, boot: boot, cold: coldPages, discard: func() {
		for _, path := range paths {
			_ = os.Remove(path) // if it fails, the next renew's seq still makes the file too old to prove anything
		}
	}}
	if j.id, err = randomID(); err != nil {
		return nil, before, lock.Close, err
	}
	if before != nil {
		j.generation = before.generation
		if old := openMark(markDir, before.id); old.denies(before.tail) {
			before.proven = false
			old.forget()
		} else {
			j.id, j.mark = before.id, old
		}
	}
	if j.mark.mem == nil {
		j.mark = openMark(markDir, j.id)
	}
	closer = func() error { return errors.Join(unmap(j), lock.Close()) }
	for i, path := range paths {
		if j.segments[i], err = mapSegment(path, size); err != nil {
			return nil, before, closer, err
		}
	}
	return j, before, closer, nil
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// readBoot is the id of the present boot; zero when it is not known, which proves nothing.
func readBoot() (boot [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return boot
	}
	id, err := hex.DecodeString(string(bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil)))
	if err == nil && len(id) == len(boot) {
		copy(boot[:], id)
	}
	return boot
}

// readSegment reads what a predecessor left in a file; nil when there is nothing to be read.
func readSegment(path string, boot [16]byte) *past {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // only read
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Size > segmentBytesMax {
		return nil
	}
	mem := make([]byte, st.Size)
	n, _ := io.ReadFull(f, mem) // an error leaves less, which is then not complete
	return readPast(mem[:n], st.Ino, boot)
}

// mapSegment maps a file whose blocks are all allocated: a store to a mapped hole on a full disk ends the process.
func mapSegment(path string, size int) (segment, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return segment{}, fmt.Errorf("open journal: %w", err)
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := allocate(f, int64(size)); err != nil {
		return segment{}, fmt.Errorf("allocate journal: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return segment{}, fmt.Errorf("stat journal: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return segment{}, fmt.Errorf("map journal: %w", err)
	}
	return segment{mem: mem, inode: st.Ino}, nil
}

// allocate gives the file's first size bytes blocks of their own, and keeps what is in them.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
		break
	}
	// A file system without fallocate: write zeros behind what there is. Our own files have no holes.
	st, err := f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 64<<10)
	for at := st.Size(); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// coldPages takes pages out of the resident set; what is in them stays in the page cache.
func coldPages(mem []byte) {
	_ = unix.Madvise(mem, unix.MADV_DONTNEED) // advice
}

// openMark maps the mark of a journal; none if it cannot be made.
func openMark(dir string, id uint64) mark {
	path := filepath.Join(dir, fmt.Sprintf("sluice-lease-%016x", id))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return mark{}
	}
	defer func() { _ = f.Close() }() // the mapping stays
	if err := allocate(f, markBytes); err != nil {
		return mark{}
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, markBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return mark{}
	}
	return mark{mem: mem, remove: func() { _ = os.Remove(path) }} // what is left takes a page until the next boot
}

func unmap(j *journal) error {
	var errs []error
	if j.mark.mem != nil {
		errs = append(errs, unix.Munmap(j.mark.mem))
		j.mark.mem = nil
	}
	for i := range j.segments {
		if mem := j.segments[i].mem; mem != nil {
			errs = append(errs, unix.Munmap(mem))
			j.segments[i].mem = nil
		}
	}
	return errors.Join(errs...)
}
