package keyring

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func secretKey(n byte) []byte { return bytes.Repeat([]byte{n}, keyBytes) }

func ring(keys ...byte) *Keyring {
	k := &Keyring{}
	for _, n := range keys {
		k.keys = append(k.keys, newKey(secretKey(n)))
	}
	return k
}

func write(t *testing.T, text string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSealThenUnseal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 20, -1).Draw(t, "name")
		secret := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "secret")
		k := ring(1, 2)
		sealed, id, err := k.Seal(name, secret)
		if err != nil || id != k.KeyID() {
			t.Fatalf("seal: %s, %v", id, err)
		}
		if again, _, _ := k.Seal(name, secret); bytes.Equal(again, sealed) {
			t.Fatalf("sealed twice with one nonce")
		}
		if got, err := k.Unseal(name, id, sealed); err != nil || !bytes.Equal(got, secret) {
			t.Fatalf("unseal: %x, %v", got, err)
		}
		if _, err := k.Unseal(name+"x", id, sealed); !errors.Is(err, ErrDamaged) {
			t.Fatalf("under another name: %v", err)
		}
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")
		sealed[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := k.Unseal(name, id, sealed); !errors.Is(err, ErrDamaged) || errors.Is(err, ErrWrongKey) {
			t.Fatalf("flipped bit in byte %d: %v", i, err)
		}
		cut := rapid.IntRange(0, len(sealed)-1).Draw(t, "cut")
		if _, err := k.Unseal(name, id, sealed[:cut]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	})
}

func TestRotationOfTheSealingKey(t *testing.T) {
	sealed, id, err := ring(1).Seal("openai", []byte("s"))
	if err != nil {
		t.Fatal(err)
	}
	both := ring(2, 1)
	if got, err := both.Unseal("openai", id, sealed); err != nil || string(got) != "s" {
		t.Errorf("old record with both keys: %q, %v", got, err)
	}
	fresh, freshID, err := both.Seal("openai", []byte("s"))
	if err != nil || freshID == id || freshID != both.KeyID() {
		t.Errorf("new record: key %s, %v", freshID, err)
	}
	after := ring(2)
	if got, err := after.Unseal("openai", freshID, fresh); err != nil || string(got) != "s" {
		t.Errorf("new record without the old key: %q, %v", got, err)
	}
	if _, err := after.Unseal("openai", id, sealed); !errors.Is(err, ErrWrongKey) || errors.Is(err, ErrDamaged) {
		t.Errorf("old record without the old key: %v", err)
	}
}

func TestSealRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, credential string
		secret           []byte
	}{
		{"no name", "", []byte("s")},
		{"no secret", "c", nil},
		{"too long", "c", make([]byte, secretBytesMax+1)},
	} {
		if _, _, err := ring(1).Seal(tc.credential, tc.secret); !errors.Is(err, ErrSecret) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestCreateThenOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	made, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(made.KeyID()) {
		t.Errorf("key id %q", made.KeyID())
	}
	sealed, id, err := made.Seal("c", []byte("s"))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := opened.Unseal("c", id, sealed); err != nil || string(got) != "s" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created over a key file: %v", err)
	}
	other, err := Create(filepath.Join(t.TempDir(), "key"))
	if err != nil || other.KeyID() == made.KeyID() {
		t.Errorf("two files with the key %s, %v", other.KeyID(), err)
	}
}

func TestOpen(t *testing.T) {
	one, two := hex.EncodeToString(secretKey(1)), hex.EncodeToString(secretKey(2))
	b64 := base64.StdEncoding.EncodeToString(secretKey(2))
	url := base64.RawURLEncoding.EncodeToString(secretKey(0xff))
	id := func(n byte) string { return ring(n).KeyID() }
	many := ""
	for n := range keysMax + 1 {
		many += hex.EncodeToString(secretKey(byte(n))) + "\n"
	}
	for _, tc := range []struct {
		name, text string
		mode       fs.FileMode
		want       []string
		err        error
		says       string
	}{
		{"one", one, 0o600, []string{id(1)}, nil, ""},
		{"read only", one + "\r\n", 0o400, []string{id(1)}, nil, ""},
		{"several", "# new\n" + b64 + "\n\n" + one + "\n" + url + "\n", 0o600, []string{id(2), id(1), id(0xff)}, nil, ""},
		{"upper case", strings.ToUpper(one), 0o600, []string{id(1)}, nil, ""},
		{"group may read", one, 0o640, nil, ErrPermissions, "0640"},
		{"others may read", one, 0o604, nil, ErrPermissions, "0604"},
		{"empty", "# nothing\n", 0o600, nil, ErrKeyFile, "0 keys, want 1 to 16"},
		{"too many", many, 0o600, nil, ErrKeyFile, "17 keys, want 1 to 16"},
		{"short", one + "\n" + two[:62], 0o600, nil, ErrKeyFile, "line 2 is not 32 bytes"},
		{"not hex", strings.Repeat("g", 64), 0o600, nil, ErrKeyFile, "line 1 is not 32 bytes"},
		{"twice", one + "\n" + two + "\n" + base64.StdEncoding.EncodeToString(secretKey(1)), 0o600, nil, ErrKeyFile,
			"line 3 has the key id of line 1"},
		{"long file", strings.Repeat("#\n", fileBytesMax), 0o600, nil, ErrKeyFile, "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, err := Open(write(t, tc.text, tc.mode))
			if tc.err != nil {
				if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, want %v: %s", err, tc.err, tc.says)
				}
				if strings.Contains(err.Error(), two[:20]) || strings.Contains(err.Error(), "gggg") {
					t.Errorf("the error shows a key: %v", err)
				}
				return
			}
			if err != nil || !slices.Equal(k.KeyIDs(), tc.want) {
				t.Errorf("got %v, %v, want %v", k, err, tc.want)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a directory: %v", err)
	}
}

func TestNothingPrintsAKey(t *testing.T) {
	k := ring(7)
	want := "keyring(" + k.KeyID() + ")"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		if got := fmt.Sprintf(verb, k); got != want {
			t.Errorf("%s: %s", verb, got)
		}
		if got := fmt.Sprintf(verb, *k); got != want {
			t.Errorf("%s of the value: %s", verb, got)
		}
	}
	if b, err := json.Marshal(map[string]any{"k": k}); err != nil || string(b) != `{"k":{}}` {
		t.Errorf("JSON: %s, %v", b, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fileHead + hex.EncodeToString(secretKey(1)) + "\n"))
	f.Add([]byte(base64.StdEncoding.EncodeToString(secretKey(2)) + "\n\n#"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parse(text)
		if err != nil {
			if !errors.Is(err, ErrKeyFile) {
				t.Fatalf("got %v", err)
			}
			return
		}
		sealed, id, err := k.Seal("c", []byte("s"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Unseal("c", id, sealed); err != nil || string(got) != "s" {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}
