package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"
)

const compactSuffix = ".compact"

// tidy removes what killed processes left behind, and makes files smaller of which most is free. Only what would stop
// the start anyway is an error.
func tidy(dir string, compactBytes int64, log *zap.Logger) error {
	for _, pattern := range []string{"snapshots/*.tmp", "scratch-*", "*" + compactSuffix} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return fmt.Errorf("look for leftovers: %w", err)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				return fmt.Errorf("remove leftovers: %w", err)
			}
		}
	}
	for _, name := range []string{logName, stateName} {
		before, after, err := compact(filepath.Join(dir, name), compactBytes)
		switch {
		case err != nil:
			// What is wrong with the file is found when it is opened; a full disk may do without this.
			log.Warn("file was not made smaller", zap.String("file", name), zap.Error(err))
		case after > 0:
			log.Info("file was made smaller", zap.String("file", name), zap.Int64("bytes_before", before), zap.Int64("bytes", after))
		}
	}
	return syncDir(dir)
}

// compact writes a file anew, without its free pages, when it is large and most of it is free. after is 0 when it was
// left as it is.
func compact(path string, least int64) (before, after int64, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() < least {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	err = guardDamage(func() error {
		from, err := bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: openTimeout, PreLoadFreelist: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		})
		if err != nil {
			return err
		}
		free, used, err := pages(from)
		if err == nil && free > used/2 {
			after, err = rewrite(from, path)
		}
		return errors.Join(err, from.Close())
	})
	if err != nil {
		return info.Size(), 0, errors.Join(err, removeIfThere(path+compactSuffix))
	}
	return info.Size(), after, nil
}

// pages counts the bytes that are free, and those up to the last page that ever was used.
func pages(db *bbolt.DB) (free, used int64, err error) {
	tx, err := db.Begin(true) // the count is brought up to date at the end of a writer
	if err != nil {
		return 0, 0, err
	}
	used = tx.Size()
	if err := tx.Rollback(); err != nil {
		return 0, 0, err
	}
	return int64(db.Stats().FreePageN) * int64(db.Info().PageSize), used, nil
}

// rewrite puts a copy of the file in its place: after a crash either is there, whole.
func rewrite(from *bbolt.DB, path string) (int64, error) {
	to, err := bbolt.Open(path+compactSuffix, 0o600, &bbolt.Options{Timeout: openTimeout, NoSync: true, NoFreelistSync: true})
	if err != nil {
		return 0, err
	}
	err = bbolt.Compact(to, from, compactTxBytes)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return 0, err
	}
	info, err := os.Stat(path + compactSuffix)
	if err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(path+compactSuffix, path)
}
