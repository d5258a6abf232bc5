package adapter

import "bytes"

// Glued takes an event whose data is not JSON: each of its lines may be the data of an event of its own, where a server
// leaves out the blank lines between them. ok is false when the data has one line, and nothing was done.
func Glued(dst, data []byte, event func(dst, line []byte) ([]byte, Progress)) (out []byte, all Progress, ok bool) {
	if bytes.IndexByte(data, '\n') < 0 {
		return dst, Progress{}, false
	}
	for line := range bytes.Lines(data) {
		var p Progress
		dst, p = event(dst, bytes.TrimRight(line, "\n"))
		all = Progress{Real: all.Real || p.Real, Done: p.Done, Failure: p.Failure}
		if p.Done || p.Failure != nil {
			break
		}
	}
	return dst, all, true
}
