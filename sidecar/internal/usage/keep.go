package usage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// setAside names a file as sent. An empty one is deleted.
func setAside(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("set aside event file: %w", err)
	case info.Size() == 0:
		err = os.Remove(path)
	default:
		err = os.Rename(path, strings.TrimSuffix(path, openSuffix)+doneSuffix)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set aside event file: %w", err)
	}
	return nil
}

// keepNewest deletes sent files until the newest of them take no more than keep bytes.
func keepNewest(dir string, keep int64) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+doneSuffix))
	if err != nil {
		return fmt.Errorf("list sent event files: %w", err)
	}
	type file struct {
		path string
		info fs.FileInfo
	}
	var files []file
	for _, path := range names {
		if info, err := os.Stat(path); err == nil { // else it was collected just now
			files = append(files, file{path, info})
		}
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(b.info.ModTime().Compare(a.info.ModTime()), strings.Compare(b.path, a.path))
	})
	var faults []error
	total := int64(0)
	for _, f := range files {
		if total += f.info.Size(); total > keep {
			if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				faults = append(faults, err)
			}
		}
	}
	return errors.Join(faults...)
}
