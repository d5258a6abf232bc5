package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture is a raw answer and what a caller of the chat dialect must see of it.
type fixture struct {
	File   string
	API    string
	Stream bool
	Want   want

	raw    []byte // from the status line on
	closes bool   // the connection ends with the answer
}

type want struct {
	Status       int
	CallerStatus int `json:"caller_status"`
	Content      *string
	Finish       string `json:"finish_reason"`
	Usage        *wantUsage
	UsageSource  string `json:"usage_source"`
	Choices      []struct {
		Index   int
		Content string
		Finish  string `json:"finish_reason"`
	}
	Calls        []call `json:"tool_calls"`
	Images       []string
	Reasoning    string
	Refusal      string
	Embeddings   [][]float64
	Error        *wireError
	Partial      string `json:"partial_content"`
	Retryable    bool
	RetryAfterMS int64 `json:"retry_after_ms"`
	Models       []string
	CostUSD      json.Number `json:"cost_usd"`
}

type wantUsage struct {
	Prompt     int64       `json:"prompt_tokens"`
	Completion int64       `json:"completion_tokens"`
	Total      int64       `json:"total_tokens"`
	Cached     int64       `json:"cached_tokens"`
	Write      int64       `json:"cache_write_tokens"`
	Write5m    int64       `json:"cache_write_5m"`
	Write1h    int64       `json:"cache_write_1h"`
	Reasoning  int64       `json:"reasoning_tokens"`
	ImageOut   int64       `json:"image_tokens"` // of the answer
	Times      string      // the price, "" for once
	Cost       json.Number // of the provider's saying
}

type call struct{ ID, Name, Arguments string }

type wireError struct{ Type, Code, Param string }

// folder is the provider's, as testdata names it.
func (f *fixture) folder() string { name, _, _ := strings.Cut(f.File, "/"); return name }

// id is a name that org.yaml takes.
func (f *fixture) id() string {
	return strings.NewReplacer("/", "-", ".http", "", ".bin", "").Replace(f.File)
}

// refused says that nothing of the answer may reach the caller: it gets an error with a status of its own.
func (f *fixture) refused() bool { return f.Want.Status >= 400 }

// broken says that the answer breaks after content: the caller has seen 200 by then.
func (f *fixture) broken() bool { return !f.refused() && f.Want.Error != nil }

func load(t *testing.T) []*fixture {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*fixture
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		// What breaks before anything real was held back: to its caller it is the error of a request that failed, and
		// another deployment may be tried.
		if w := &f.Want; w.Status == http.StatusOK && w.Error != nil && w.Partial == "" {
			w.Status, w.Retryable = http.StatusInternalServerError, true
		}
	}
	files := 0
	err = filepath.WalkDir("testdata", func(p string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(p); ext == ".http" || ext == ".bin" {
			files++
		}
		return err
	})
	if err != nil || files != len(all) || files == 0 {
		t.Fatalf("%d files, %d expectations, %v", files, len(all), err)
	}
	for _, f := range all {
		if f.raw, err = os.ReadFile(filepath.Join("testdata", filepath.FromSlash(f.File))); err != nil {
			t.Fatal(err)
		}
		f.closes = endsConnection(t, f.raw)
	}
	return all
}

// endsConnection says whether the end of an answer is that of its connection, because it says so or is cut short.
func endsConnection(t *testing.T, raw []byte) bool {
	t.Helper()
	br := bufio.NewReader(bytes.NewReader(raw))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err != nil || resp.Close || (resp.ContentLength < 0 && len(resp.TransferEncoding) == 0)
}
