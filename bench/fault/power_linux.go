package fault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A power cut loses what was written and not synced. To play one, everything that this process syncs below a directory
// is copied, at that moment, into another one, which is what a disk would hold after the cut: the test kills the process
// and puts the copy in the directory's place.
//
// The kernel tells of each fsync and fdatasync before it does it (seccomp user notification), so that no writer can
// forget to say that it syncs, and one that forgets to sync is caught. As on ext4 a synced file is there under the name
// it has then; names that changed later, and files that went, count once their directory is synced.

const blockBytes = 4096

// disk is what would be left after a power cut.
type disk struct {
	root, copy string
	at         map[node]string // where it is in copy
	held       map[node][]byte // what it holds there
}

// record begins to keep the disk of root in copy. What is there already is taken for synced.
func record(root, copy string) error {
	d := &disk{root: root, copy: copy, at: map[node]string{}, held: map[node][]byte{}}
	if err := os.MkdirAll(copy, 0o700); err != nil {
		return err
	}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || path == root:
			return err
		}
		return d.sync(path)
	})
	if err != nil {
		return err
	}
	listener, err := tellOfSyncs()
	if err != nil {
		return err
	}
	go d.listen(listener)
	return nil
}

// tellOfSyncs has the kernel hold every fsync of the process until it is let go on.
func tellOfSyncs() (listener int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// notice and reply are struct seccomp_notif and seccomp_notif_resp.
type notice struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type reply struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// listen copies what is about to be synced, and lets the sync go on.
func (d *disk) listen(listener int) {
	for {
		n := notice{}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV,
			uintptr(unsafe.Pointer(&n))); errno != 0 {
			if errno == unix.EINTR || errno == unix.ENOENT {
				continue
			}
			panic(fmt.Sprintf("faults: power: %v", errno))
		}
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.args[0]))
		if err == nil && strings.HasPrefix(path, d.root) {
			err = d.sync(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was deleted meanwhile
			panic(fmt.Sprintf("faults: power: %v", err))
		}
		r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND,
			uintptr(unsafe.Pointer(&r))); errno != 0 && errno != unix.ENOENT {
			panic(fmt.Sprintf("faults: power: %v", errno))
		}
	}
}

// node is a file or a directory, whatever its name. Inodes are used again, so their birth belongs to them.
type node struct {
	inode uint64
	born  unix.StatxTimestamp
}

func find(path string) (n node, dir bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_TYPE|unix.STATX_BTIME, &st); err != nil {
		return n, false, fmt.Errorf("%s: %w", path, err)
	}
	return node{st.Ino, st.Btime}, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// sync copies a file, or the names in a directory.
func (d *disk) sync(path string) error {
	n, dir, err := find(path)
	if err != nil {
		return err
	}
	if path != d.root {
		if err := d.place(path, n, dir); err != nil {
			return err
		}
	}
	if dir {
		return d.names(path)
	}
	return d.contents(path, n)
}

// place has the file or directory in the copy, empty if it is new, under the name it has now. So it has what is above it.
func (d *disk) place(path string, n node, dir bool) error {
	if above := filepath.Dir(path); above != d.root {
		an, _, err := find(above)
		if err != nil {
			return err
		}
		if err := d.place(above, an, true); err != nil {
			return err
		}
	}
	to := filepath.Join(d.copy, strings.TrimPrefix(path, d.root))
	was, known := d.at[n]
	d.at[n] = to
	switch {
	case known && was == to:
		return nil
	case known:
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		for other, at := range d.at { // what is in a directory moves with it
			if rest, below := strings.CutPrefix(at, was+"/"); below {
				d.at[other] = filepath.Join(to, rest)
			}
		}
		return os.Rename(was, to)
	case dir:
		return os.MkdirAll(to, 0o700)
	}
	return os.WriteFile(to, nil, 0o600)
}

// names makes the copy of a directory have the names it has now.
func (d *disk) names(path string) error {
	now, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	is := map[string]bool{}
	for _, e := range now {
		is[e.Name()] = true
		n, dir, err := find(filepath.Join(path, e.Name()))
		if err == nil {
			err = d.place(filepath.Join(path, e.Name()), n, dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // which went meanwhile
			return err
		}
	}
	copied := filepath.Join(d.copy, strings.TrimPrefix(path, d.root))
	had, err := os.ReadDir(copied)
	if err != nil {
		return err
	}
	for _, e := range had {
		if !is[e.Name()] {
			gone := filepath.Join(copied, e.Name())
			if err := os.RemoveAll(gone); err != nil {
				return err
			}
			for n, at := range d.at {
				if at == gone || strings.HasPrefix(at, gone+"/") {
					delete(d.at, n)
					delete(d.held, n)
				}
			}
		}
	}
	return nil
}

// contents copies the blocks of a file that changed.
func (d *disk) contents(path string, n node) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.at[n], os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	had := d.held[n]
	for at := 0; at < len(b); at += blockBytes {
		end := min(at+blockBytes, len(b))
		if end <= len(had) && bytes.Equal(b[at:end], had[at:end]) {
			continue
		}
		if _, err := f.WriteAt(b[at:end], int64(at)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	d.held[n] = b
	return errors.Join(f.Truncate(int64(len(b))), f.Close())
}
