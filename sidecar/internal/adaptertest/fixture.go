// Package adaptertest is what the tests of the adapters share: recorded answers, played through the relay in every cut,
// and read as client libraries of chat read them. Only tests import it.
package adaptertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// Fixture is a recorded answer and what a chat caller must see of it. Callers of other dialects see the same in its words.
type Fixture struct {
	File   string // the provider's folder and a name
	API    string
	Stream bool
	Want   Want

	path string
}

// Want is what must come of a fixture.
type Want struct {
	Status       int // 200 as well where the answer breaks after its first token
	CallerStatus int `json:"caller_status"` // where it is not Status
	Content      *string
	Finish       string `json:"finish_reason"`
	Reasoning    string
	Refusal      string
	Calls        []Call `json:"tool_calls"` // an ID of *generated* is any
	Choices      []WantChoice
	Embeddings   [][]float64
	Usage        *WantUsage // nil for an estimate
	Error        *WantError
	Partial      string `json:"partial_content"` // what was said before the error
	Retryable    bool
	RetryAfterMS int64 `json:"retry_after_ms"`
}

// WantChoice is one of several.
type WantChoice struct {
	Index   int
	Content string
	Finish  string `json:"finish_reason"`
}

// WantUsage counts tokens as the gateway settles them. Writes without a duration count as the shorter.
type WantUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	Cached     int64 `json:"cached_tokens"`
	Write      int64 `json:"cache_write_tokens"`
	Write5m    int64 `json:"cache_write_5m"`
	Write1h    int64 `json:"cache_write_1h"`
	Reasoning  int64 `json:"reasoning_tokens"`
}

// WantError is an error as callers are told it.
type WantError struct{ Type, Code, Param string }

// Load reads the expectations of a folder. Each recorded answer in it must have one.
func Load(t testing.TB, dir string) []*Fixture {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*Fixture
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); ext == ".http" || ext == ".bin" {
			paths[path] = true
		}
		return err
	})
	if err != nil || len(paths) != len(all) || len(all) == 0 {
		t.Fatalf("%d fixtures, %d expectations, %v", len(paths), len(all), err)
	}
	for _, f := range all {
		// The folder of a provider that is alone in dir is not there.
		if f.path = filepath.Join(dir, filepath.FromSlash(f.File)); !paths[f.path] {
			f.path = filepath.Join(dir, filepath.Base(f.File))
		}
	}
	return all
}

// Answer is the recorded answer, its head included.
func (f *Fixture) Answer(t testing.TB) []byte {
	t.Helper()
	return Read(t, f.path)
}

// Read reads a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Body is the body of a recorded answer.
func Body(t testing.TB, raw []byte) []byte {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
