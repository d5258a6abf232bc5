package system

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// answer is what a caller got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// code is the error code of the body, "" when there is none.
func (a answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal([]byte(a.body), &e)
	return e.Error.Code
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, MaxConnsPerHost: 0}}

// call sends a body with a key; header are pairs.
func (s *stack) call(ctx context.Context, sc *sidecar, path, key, body string, header ...string) answer {
	return send(ctx, client, sc.url+path, key, body, header...)
}

func send(ctx context.Context, client *http.Client, url, key, body string, header ...string) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

func (s *stack) chat(sc *sidecar, body string) answer {
	return s.call(s.t.Context(), sc, "/v1/chat/completions", appKey, body)
}

// events reads a stream's data lines until its end.
func events(r io.Reader) (out []string, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if d, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			out = append(out, d)
		}
	}
	return out, in.Err()
}

// each runs n calls at once and returns their answers.
func each(n int, call func(i int) answer) []answer {
	out := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { out[i] = call(i) })
	}
	wg.Wait()
	return out
}
