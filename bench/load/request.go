package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Class is what became of a request, from the caller's side.
type Class string

// The classes.
const (
	ClassOK          Class = "ok"
	ClassStatus      Class = "status"       // an answer of 300 or more
	ClassConnect     Class = "connect"      // no connection
	ClassNoAnswer    Class = "no_answer"    // the connection ended before a response head
	ClassCut         Class = "cut"          // the body ended early, or a stream without [DONE]
	ClassStreamError Class = "stream_error" // an error event, or an error body with status 200
	ClassMalformed   Class = "malformed"    // not JSON, not SSE, or no choices
	ClassTimeout     Class = "timeout"      // Config.Timeout
	ClassCancelled   Class = "cancelled"    // the run's context ended
	ClassDropped     Class = "dropped"      // open loop: InFlightMax reached, never sent
)

// Record is one request. Durations are nanoseconds in JSON.
type Record struct {
	Index      int           `json:"index"`
	Offset     time.Duration `json:"offset"` // when it was due, from the run's start
	Late       time.Duration `json:"late"`   // how much later it was sent
	Attempts   int           `json:"attempts"`
	Status     int           `json:"status"` // of the last attempt; 0: no head
	Class      Class         `json:"class"`
	Code       string        `json:"code,omitempty"`        // error.code, or error.type, of an error body or event
	RetryAfter time.Duration `json:"retry_after,omitempty"` // what the last answer asked for; 0: nothing
	// ShouldRetry is the x-should-retry header.
	ShouldRetry string `json:"should_retry,omitempty"`
	RequestID   string `json:"request_id,omitempty"`
	Deployment  string `json:"deployment,omitempty"` // x-gw-deployment
	Finish      string `json:"finish,omitempty"`     // finish_reason of the first choice

	TTFT     time.Duration `json:"ttft"`     // from sending to the first text or tool bytes; JSON: to the whole body
	Duration time.Duration `json:"duration"` // from the time it was due to the end, so that waiting counts
	GapMax   time.Duration `json:"gap_max"`  // longest silence between two events with text

	Chunks       int   `json:"chunks"`        // events with text or tool bytes
	PromptTokens int64 `json:"prompt_tokens"` // from usage; 0 without
	OutputTokens int64 `json:"output_tokens"`
	UsageSeen    bool  `json:"usage_seen"`
}

// requestBody makes the one body that every request of a run sends.
func requestBody(cfg Config) string {
	prompt := ""
	if cfg.Directive != "" {
		prompt = "[[" + cfg.Directive + "]] "
	}
	want := (cfg.PromptTokens - messageTokens) * bytesPerToken
	for words := "please tell me more about rivers and stones "; len(prompt) < want; {
		prompt += words[:min(len(words), want-len(prompt))]
	}
	if prompt == "" {
		prompt = "hi"
	}
	body := map[string]any{"model": cfg.Model, "messages": []any{map[string]any{"role": "user", "content": prompt}}}
	if cfg.MaxTokens > 0 {
		body["max_tokens"] = cfg.MaxTokens
	}
	if cfg.Stream {
		body["stream"] = true
		body["stream_options"] = map[string]any{"include_usage": true}
	}
	out, err := json.Marshal(body)
	if err != nil {
		panic("BUG: a request body does not marshal: " + err.Error())
	}
	return string(out)
}

// send makes one request with its retries.
func (r *run) send(ctx context.Context, index int, offset time.Duration) Record {
	due := r.started.Add(offset)
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	record := Record{Index: index, Offset: offset, Late: time.Since(due)}
	for {
		record.Attempts++
		r.attempt(call, &record)
		if !r.again(&record) || !pause(call, record.RetryAfter, record.Attempts) {
			break
		}
	}
	// A request that failed because its time or the run's was up says so, wherever it stood.
	if record.Class != ClassOK && record.Class != ClassStatus {
		switch {
		case ctx.Err() != nil:
			record.Class = ClassCancelled
		case call.Err() != nil:
			record.Class = ClassTimeout
		}
	}
	record.Duration = time.Since(due)
	return record
}

// again says whether an SDK would repeat the request.
func (r *run) again(record *Record) bool {
	if !r.cfg.Retry || record.Attempts >= r.cfg.Attempts || record.RetryAfter > retryDelayMax {
		return false
	}
	switch record.Class {
	case ClassConnect, ClassNoAnswer:
		return true
	case ClassStatus:
		if record.ShouldRetry != "" {
			return record.ShouldRetry == "true"
		}
		return record.Status == 408 || record.Status == 409 || record.Status == 429 || record.Status >= 500
	}
	return false
}

// pause waits for the hinted time, or for a growing time with jitter; false when ctx ends first.
func pause(ctx context.Context, hint time.Duration, attempts int) bool {
	if hint <= 0 {
		hint = retryDelayDefault << (attempts - 1)
		hint -= rand.N(hint / 4)
	}
	timer := time.NewTimer(hint)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt makes one HTTP exchange and fills record with it; what an earlier attempt left is overwritten.
func (r *run) attempt(ctx context.Context, record *Record) {
	*record = Record{Index: record.Index, Offset: record.Offset, Late: record.Late, Attempts: record.Attempts}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(r.body))
	if err != nil {
		panic("BUG: a checked URL does not make a request: " + err.Error())
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if n := len(r.cfg.Keys); n > 0 {
		req.Header.Set("Authorization", "Bearer "+r.cfg.Keys[record.Index%n])
	}
	for name, values := range r.cfg.Header {
		req.Header[name] = values
	}
	sent := time.Now()
	res, err := r.client.Do(req)
	if err != nil {
		record.Class = ClassNoAnswer
		if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
			record.Class = ClassConnect
		}
		return
	}
	defer func() { _ = res.Body.Close() }() // only read
	record.Status = res.StatusCode
	record.RetryAfter = retryAfter(res.Header, time.Now())
	record.ShouldRetry = res.Header.Get("X-Should-Retry")
	record.RequestID = res.Header.Get("X-Request-Id")
	record.Deployment = res.Header.Get("X-Gw-Deployment")
	switch {
	case res.StatusCode >= 300:
		record.Class = ClassStatus
		// A cut error body still has its status; the code is then missing.
		body, _ := io.ReadAll(io.LimitReader(res.Body, errorBodyMax))
		record.Code = errorCode(gjson.GetBytes(body, "error"))
	case r.cfg.Stream:
		record.readStream(res, sent)
		if record.Class == ClassOK {
			// Behind [DONE] stands only the end of the body. Unless it is read, the connection cannot be used again.
			_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, afterDoneMax))
		}
	default:
		record.readJSON(res.Body, sent)
	}
}

func errorCode(e gjson.Result) string {
	if code := e.Get("code").String(); code != "" {
		return code
	}
	return e.Get("type").String()
}

// retryAfter reads retry-after-ms, or retry-after in seconds or as an HTTP date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}

func (record *Record) readJSON(body io.Reader, sent time.Time) {
	data, err := io.ReadAll(io.LimitReader(body, answerBytesMax))
	record.TTFT = time.Since(sent)
	root := gjson.ParseBytes(data)
	switch {
	case err != nil:
		record.Class = ClassCut
	case !gjson.ValidBytes(data):
		record.Class = ClassMalformed
	case root.Get("error").IsObject():
		record.Class, record.Code = ClassStreamError, errorCode(root.Get("error"))
	case !root.Get("choices.0.message").IsObject():
		record.Class = ClassMalformed
	default:
		record.Class = ClassOK
		record.Finish = root.Get("choices.0.finish_reason").String()
		record.takeUsage(root.Get("usage"))
	}
}

func (record *Record) takeUsage(usage gjson.Result) {
	if usage.IsObject() {
		record.UsageSeen = true
		record.PromptTokens, record.OutputTokens = usage.Get("prompt_tokens").Int(), usage.Get("completion_tokens").Int()
	}
}

// readStream reads events until [DONE], an error or the end. Every end but [DONE] is a failure.
func (record *Record) readStream(res *http.Response, sent time.Time) {
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		record.Class, record.Code = ClassMalformed, fmt.Sprintf("content type %.40q", kind)
		return
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 4<<10), lineBytesMax)
	lines.Split(splitLines())
	var data []byte
	dataLines := 0
	last := sent
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) > 0 {
			name, value, _ := bytes.Cut(line, []byte(":"))
			if string(name) == "data" {
				if dataLines > 0 {
					data = append(data, '\n')
				}
				data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
				dataLines++
			}
			continue
		}
		if dataLines == 0 {
			continue
		}
		done := record.event(data, sent, &last)
		data, dataLines = data[:0], 0
		if done {
			return
		}
	}
	record.Class = ClassCut
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		record.Class = ClassMalformed
	}
}

// event takes one event's data; true ends the stream.
func (record *Record) event(data []byte, sent time.Time, last *time.Time) bool {
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		record.Class = ClassOK
		// A stream with no event but the last one answered nothing.
		if record.Finish == "" {
			record.Class = ClassMalformed
		}
		return true
	}
	if !gjson.ValidBytes(data) {
		record.Class = ClassMalformed
		return true
	}
	root := gjson.ParseBytes(data)
	if e := root.Get("error"); e.Exists() {
		record.Class, record.Code = ClassStreamError, errorCode(e)
		return true
	}
	record.takeUsage(root.Get("usage"))
	choice := root.Get("choices.0")
	delta := choice.Get("delta")
	if delta.Get("content").String() != "" || len(delta.Get("tool_calls").Array()) > 0 {
		now := time.Now()
		if record.Chunks == 0 {
			record.TTFT = now.Sub(sent)
		} else {
			record.GapMax = max(record.GapMax, now.Sub(*last))
		}
		record.Chunks++
		*last = now
	}
	if reason := choice.Get("finish_reason").String(); reason != "" && choice.Get("index").Int() == 0 {
		record.Finish = reason
	}
	return false
}

// splitLines splits at LF, CR LF and CR, as SSE wants. The function it returns is for one scanner. A last line without
// an end is not a line: SSE throws an unfinished event away.
//
// A CR ends its line at once; whether an LF follows may be seen only with the next read, and waiting for it would hold
// back an event that is complete. So the LF is skipped when it comes.
func splitLines() bufio.SplitFunc {
	skipLF := false
	return func(data []byte, atEOF bool) (int, []byte, error) {
		skipped := 0
		if skipLF && len(data) > 0 {
			skipLF = false
			if data[0] == '\n' {
				skipped, data = 1, data[1:]
			}
		}
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			if atEOF {
				return skipped + len(data), nil, nil
			}
			return skipped, nil, nil
		}
		skipLF = data[i] == '\r'
		return skipped + i + 1, data[:i:i], nil
	}
}
