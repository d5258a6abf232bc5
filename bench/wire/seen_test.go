package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// seen is an answer as its caller understood it, whatever the dialect; finish reasons are in chat's words.
type seen struct {
	status  int
	header  http.Header
	body    []byte
	err     *wireError // nil for a healthy end
	message string     // of err
	retry   string     // x-should-retry
	choices map[int]*choice
	usage   *wantUsage
	vectors [][]float64
	done    bool // a stream said that it is complete
	gateway gatewaySays
	own     bool // the events are the provider's own, faults and all
}

type choice struct {
	content, reasoning, refusal, finish string
	calls                               []*call
	images                              []string // data: URLs
}

// gatewaySays is the x_gateway member.
type gatewaySays struct {
	Deployment string
	Cost       json.Number
	Estimated  bool
}

func (s *seen) choice(i int) *choice {
	if s.choices[i] == nil {
		s.choices[i] = &choice{}
	}
	return s.choices[i]
}

// event is a server-sent event.
type event struct{ name, data string }

// events cuts a stream the slow and obvious way. What the sidecar sends ends each event with a blank line.
func events(t *testing.T, body []byte) (out []event) {
	t.Helper()
	text := string(body)
	if text != "" && !strings.HasSuffix(text, "\n\n") {
		t.Errorf("the stream does not end with a whole event: %q", tail(text))
	}
	for _, block := range strings.Split(text, "\n\n") {
		var ev event
		var data []string
		for _, line := range strings.Split(block, "\n") {
			if v, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(v, " "))
			} else if v, ok := strings.CutPrefix(line, "event:"); ok {
				ev.name = strings.TrimPrefix(v, " ")
			} else if line != "" && !strings.HasPrefix(line, ":") {
				t.Errorf("not a line of an event stream: %q", line)
			}
		}
		if data != nil {
			ev.data = strings.Join(data, "\n")
			out = append(out, ev)
		}
	}
	return out
}

func tail(s string) string { return s[max(0, len(s)-300):] }

// decode reads JSON, numbers kept as they stand.
func decode(t *testing.T, data string, to any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one document in %q", data)
	}
}

// readError reads the error member that all dialects share in essence.
func (s *seen) readError(t *testing.T, data string) {
	t.Helper()
	var e struct {
		Error *struct {
			Type    string
			Code    *string
			Param   *string
			Message string
			Details struct { // the Messages dialect has no members of its own for these
				Code  string `json:"error_code"`
				Param string
			}
		}
	}
	decode(t, data, &e)
	if e.Error == nil {
		t.Fatalf("no error in %q", data)
	}
	s.message = e.Error.Message
	s.err = &wireError{Type: e.Error.Type, Code: e.Error.Details.Code, Param: e.Error.Details.Param}
	if e.Error.Code != nil {
		s.err.Code = *e.Error.Code
	}
	if e.Error.Param != nil {
		s.err.Param = *e.Error.Param
	}
}

// do sends a request and returns the answer, its body read to the end.
func (s *stack) do(t *testing.T, path, body string) *seen {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+appKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got := &seen{status: resp.StatusCode, header: resp.Header, choices: map[int]*choice{}}
	got.retry = resp.Header.Get("X-Should-Retry")
	if got.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatalf("the answer broke: %v after %q", err, got.body)
	}
	return got
}

func (s *seen) streamed() bool {
	return strings.HasPrefix(s.header.Get("Content-Type"), "text/event-stream")
}

// leaks are bytes no caller may see.
func (s *seen) leaks(secrets ...string) string {
	for _, x := range append(secrets, "<html", "<!DOCTYPE") {
		if bytes.Contains(bytes.ToLower(s.body), bytes.ToLower([]byte(x))) {
			return x
		}
	}
	return ""
}
