package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// ErrDamaged is returned when the state file cannot be read. Reset makes a new one.
var ErrDamaged = errors.New("file is damaged")

// hasHead says whether a file may have bbolt's two head pages. bbolt has no name for the error.
func hasHead(size int64) error {
	if head := 2 * int64(os.Getpagesize()); size < head {
		return fmt.Errorf("%d bytes are there, and its head alone has %d: %w", size, head, ErrDamaged)
	}
	return nil
}

// whole says whether a file has all its pages. A file that was cut short may be read without harm, if what is lost was
// free; the next write would end the process.
func whole(db *bbolt.DB, size int64) error {
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > size {
			return fmt.Errorf("%d bytes of %d are there: %w", size, tx.Size(), ErrDamaged)
		}
		return nil
	})
}

// guardDamage runs f, which reads a file that may be damaged, and turns what a damaged one does into ErrDamaged: bbolt
// panics at pages that make no sense, and a file cut short faults when its mapping is read.
func guardDamage(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v: %w", p, ErrDamaged)
		}
	}()
	err = f()
	for _, damage := range []error{
		bbolterrors.ErrInvalid, bbolterrors.ErrVersionMismatch, bbolterrors.ErrChecksum, bbolterrors.ErrIncompatibleValue,
	} {
		if errors.Is(err, damage) {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return err
}

// openToRead opens a bbolt file of which anything may be damaged, to be used within guardDamage. cut says that it has not
// all its pages; it is open all the same.
func openToRead(path string) (db *bbolt.DB, cut, err error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, errMissing
	case err != nil:
		return nil, nil, err
	case !st.Mode().IsRegular():
		return nil, nil, errors.New("it is not a file")
	case st.Size() == 0:
		return nil, nil, errEmpty // bbolt would begin a new one
	}
	if err := hasHead(st.Size()); err != nil {
		return nil, nil, err
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return nil, nil, err
	}
	return db, whole(db, st.Size()), nil
}
