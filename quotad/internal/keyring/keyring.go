// Package keyring seals provider credentials, so that the Raft log, snapshots and backups never hold them in clear.
//
// Sealed with AES-256-GCM, the random nonce first, the credential's name as additional data: a record moved to
// another name does not open. The key file holds one or more keys; the first seals, all open. To rotate the sealing
// key: put a new line on top, seal every credential again, take the old line out.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The bounds of this package. Above one, the caller gets an error.
const (
	keysMax        = 16      // keys in a file
	fileBytesMax   = 1 << 16 // bytes of a key file
	secretBytesMax = 1 << 16 // bytes of a secret
	keyBytes       = 32
	idBytes        = 4 // of the SHA-256 of the key: 8 hex digits
)

var (
	// ErrWrongKey is returned by Unseal when the record was sealed with a key that is not in the file.
	ErrWrongKey = errors.New("sealed with a key that is not in the key file")
	// ErrDamaged is returned by Unseal when the key is there and the record does not open: bytes were changed, or it
	// belongs to another name.
	ErrDamaged = errors.New("sealed record is damaged")
	// ErrPermissions is returned by Open when others than the owner have rights on the key file.
	ErrPermissions = errors.New("key file must be readable by its owner alone (chmod 600)")
	// ErrKeyFile is returned by Open when the file is not a list of keys.
	ErrKeyFile = errors.New("not a key file")
	// ErrSecret is returned by Seal for an empty or too long secret, or an empty name.
	ErrSecret = errors.New("secret cannot be sealed")
)

// Keyring holds sealing keys. It is safe for concurrent use. Printing it in any form shows key ids and nothing else.
type Keyring struct {
	keys []key // the first seals
}

type key struct {
	id   string
	aead cipher.AEAD
}

func newKey(secret []byte) key {
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic("BUG: a key of a wrong size got through: " + err.Error())
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("BUG: AES without GCM: " + err.Error())
	}
	sum := sha256.Sum256(secret)
	return key{id: hex.EncodeToString(sum[:idBytes]), aead: aead}
}

// KeyID names the key that seals: the first 8 hex digits of its SHA-256.
func (k *Keyring) KeyID() string { return k.keys[0].id }

// KeyIDs names all keys, the one that seals first.
func (k *Keyring) KeyIDs() []string {
	ids := make([]string, len(k.keys))
	for i := range k.keys {
		ids[i] = k.keys[i].id
	}
	return ids
}

// Seal seals a credential's secret, 1 to 64 KiB, under its name with the first key. The error is ErrSecret. Sealing
// the same secret twice gives different bytes.
func (k *Keyring) Seal(name string, secret []byte) (sealed []byte, keyID string, err error) {
	switch {
	case name == "":
		return nil, "", fmt.Errorf("%w: it has no name", ErrSecret)
	case len(secret) == 0:
		return nil, "", fmt.Errorf("%w: it is empty", ErrSecret)
	case len(secret) > secretBytesMax:
		return nil, "", fmt.Errorf("%w: it is longer than %d bytes", ErrSecret, secretBytesMax)
	}
	first := k.keys[0]
	nonce := make([]byte, first.aead.NonceSize(), first.aead.NonceSize()+len(secret)+first.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, "", fmt.Errorf("read random bytes: %w", err)
	}
	return first.aead.Seal(nonce, nonce, secret, []byte(name)), first.id, nil
}

// Unseal opens what Seal made. keyID is the one Seal returned. The error is ErrWrongKey or ErrDamaged; neither
// carries anything of the secret.
func (k *Keyring) Unseal(name, keyID string, sealed []byte) ([]byte, error) {
	for _, key := range k.keys {
		if key.id != keyID {
			continue
		}
		n := key.aead.NonceSize()
		if len(sealed) < n+key.aead.Overhead() {
			return nil, fmt.Errorf("unseal %q: %w: %d bytes", name, ErrDamaged, len(sealed))
		}
		secret, err := key.aead.Open(nil, sealed[:n], sealed[n:], []byte(name))
		if err != nil {
			return nil, fmt.Errorf("unseal %q with key %s: %w", name, keyID, ErrDamaged)
		}
		return secret, nil
	}
	return nil, fmt.Errorf("unseal %q: %w: it has %s, the record needs %.16q",
		name, ErrWrongKey, strings.Join(k.KeyIDs(), ", "), keyID)
}

// Format prints the key ids, whatever the verb: a keyring that lands in a log must not give itself away.
func (k Keyring) Format(s fmt.State, _ rune) {
	// A failed write is fmt's to report.
	_, _ = io.WriteString(s, "keyring("+strings.Join(k.KeyIDs(), ", ")+")")
}
