package keyring

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const fileHead = "# Sealing keys of quotad, one a line. The first seals, all open.\n" +
	"# Without this file the stored provider credentials are lost.\n"

// Create makes a key file with one fresh key, for its owner alone, and opens it. It fails with fs.ErrExist when
// there is a file: a key that sealed something must never be overwritten. It blocks until the file is on the disk.
func Create(path string) (*Keyring, error) {
	secret := make([]byte, keyBytes)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("create key file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create key file: %w", err)
	}
	_, err = io.WriteString(f, fileHead+hex.EncodeToString(secret)+"\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		// The name must be durable too, before anything is sealed with the key.
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		// Nothing was sealed with it yet, and a half-written file would block the next try.
		return nil, errors.Join(fmt.Errorf("create key file: %w", err), os.Remove(path))
	}
	return Open(path)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open reads a key file: lines of 32 bytes as 64 hex digits or as base64; empty lines and lines that begin with # are
// skipped. It fails with ErrPermissions, ErrKeyFile (with the line, never its text) or the error of the file system.
func Open(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open key file %s: %w: not a regular file", path, ErrKeyFile)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("open key file %s: %w: it has mode %#o", path, ErrPermissions, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	k, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", path, err)
	}
	return k, nil
}

func parse(text []byte) (*Keyring, error) {
	if len(text) > fileBytesMax {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrKeyFile, fileBytesMax)
	}
	k := &Keyring{}
	lineOf := map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		secret, ok := decodeKey(line)
		if !ok {
			return nil, fmt.Errorf("%w: line %d is not 32 bytes as 64 hex digits or base64", ErrKeyFile, i+1)
		}
		next := newKey(secret)
		if first := lineOf[next.id]; first > 0 {
			return nil, fmt.Errorf("%w: line %d has the key id of line %d, %s", ErrKeyFile, i+1, first, next.id)
		}
		lineOf[next.id] = i + 1
		k.keys = append(k.keys, next)
	}
	if len(k.keys) == 0 || len(k.keys) > keysMax {
		return nil, fmt.Errorf("%w: %d keys, want 1 to %d", ErrKeyFile, len(k.keys), keysMax)
	}
	return k, nil
}

// decodeKey reads a key. 32 bytes are 64 hex digits or 43 or 44 base64 digits: the two are never mistaken.
func decodeKey(s string) ([]byte, bool) {
	if len(s) == hex.EncodedLen(keyBytes) {
		b, err := hex.DecodeString(s)
		return b, err == nil
	}
	s = strings.TrimRight(s, "=")
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if b, err := enc.DecodeString(s); err == nil && len(b) == keyBytes {
			return b, true
		}
	}
	return nil, false
}
