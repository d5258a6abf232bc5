package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/bbolt"
)

// A page of a bbolt file is as its internal/common/page.go has it, in the machine's byte order: a head of the page's id
// (8 bytes), its kind (2), how many elements it has (2) and how many pages more belong to it (4). Then come the elements:
// of a branch where its key is, counted from the element (4), the key's length (4) and the child's id (8); of a leaf its
// flags, where its key is, the lengths of key and value (4 each).
const (
	pageHead    = 16
	elementHead = 16
	branchPage  = 1
	leafPage    = 2

	// bucketFlag says that an element is a bucket. Its value begins with the id of the bucket's root (8), 0 if the bucket
	// has no page of its own, and a sequence number (8).
	bucketFlag = 1
	bucketHead = 16
)

// pageTree is the pages of a bbolt file that are in use.
type pageTree struct {
	file io.ReaderAt
	size int64           // of a page, in bytes
	end  uint64          // the first page that never was used
	seen map[uint64]bool // pages that have their place
}

type element struct {
	key   []byte
	value []byte // of a leaf
	child uint64 // a page, of a branch and of a bucket; 0 is none
}

// checkPages checks the pages in use as bbolt does itself when it opens a file without a free list. Bbolt does so in a
// goroutine that nobody can guard, where what it falls over ends the process without a word about the file.
func checkPages(file io.ReaderAt, tx *bbolt.Tx) error {
	size := int64(tx.DB().Info().PageSize)
	t := pageTree{file: file, size: size, end: uint64(tx.Size() / size), seen: map[uint64]bool{}}
	_, err := t.check(uint64(tx.Cursor().Bucket().RootPage()), nil, nil)
	return err
}

// check checks a page and all below it, whose keys must not be below least, and below limit, where these are given. It
// returns the last key.
func (t *pageTree) check(id uint64, least, limit []byte) (last []byte, err error) {
	elements, kind, err := t.read(id)
	if err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	last = least
	for i, e := range elements {
		order := bytes.Compare(e.key, last)
		if order < 0 || order == 0 && i > 0 || limit != nil && bytes.Compare(e.key, limit) >= 0 {
			return nil, fmt.Errorf("page %d: key %d is out of order", id, i)
		}
		last = e.key
		switch {
		case kind == branchPage:
			next := limit
			if i+1 < len(elements) {
				next = elements[i+1].key
			}
			last, err = t.check(e.child, e.key, next)
		case e.child != 0:
			_, err = t.check(e.child, nil, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

// read reads a page and those that belong to it.
func (t *pageTree) read(id uint64) ([]element, uint16, error) {
	var head [pageHead]byte
	if id >= t.end {
		return nil, 0, errors.New("it is not in the file")
	}
	if _, err := t.file.ReadAt(head[:], int64(id)*t.size); err != nil {
		return nil, 0, err
	}
	kind, more := binary.NativeEndian.Uint16(head[8:]), uint64(binary.NativeEndian.Uint32(head[12:]))
	if self := binary.NativeEndian.Uint64(head[:]); self != id || kind != branchPage && kind != leafPage {
		return nil, 0, fmt.Errorf("it calls itself page %d of kind %d", self, kind)
	}
	if id+more >= t.end {
		return nil, 0, fmt.Errorf("it goes on for %d pages, out of the file", more)
	}
	for n := id; n <= id+more; n++ {
		if t.seen[n] {
			return nil, 0, fmt.Errorf("page %d is in two places", n)
		}
		t.seen[n] = true
	}
	b := make([]byte, int64(1+more)*t.size)
	if _, err := t.file.ReadAt(b, int64(id)*t.size); err != nil {
		return nil, 0, err
	}
	elements := make([]element, binary.NativeEndian.Uint16(head[10:]))
	for i := range elements {
		var err error
		if elements[i], err = readElement(b, i, kind); err != nil {
			return nil, 0, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return elements, kind, nil
}

func readElement(page []byte, i int, kind uint16) (e element, err error) {
	if len(page) < pageHead+(i+1)*elementHead {
		return e, errors.New("it is not in the page")
	}
	b := page[pageHead+i*elementHead:]
	word := func(i int) int { return int(binary.NativeEndian.Uint32(b[4*i:])) }
	at, key, value, flags := word(1), word(2), word(3), word(0)
	if kind == branchPage {
		at, key, value, flags = word(0), word(1), 0, 0
		e.child = binary.NativeEndian.Uint64(b[8:])
	}
	if at+key+value > len(b) {
		return e, errors.New("it leads out of the page")
	}
	e.key, e.value = b[at:at+key], b[at+key:at+key+value]
	if flags&bucketFlag != 0 {
		if value < bucketHead {
			return e, errors.New("it is a bucket without a head")
		}
		e.child = binary.NativeEndian.Uint64(e.value)
	}
	return e, nil
}
