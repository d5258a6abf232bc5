package quota

import (
	"math"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets 2% wide, from a microsecond to minutes. Any goroutine may add.
type histogram struct {
	counts [bucketsMax]atomic.Int64
	max    atomic.Int64
}

const bucketsMax = 1024

var perBucket = math.Log(1.02)

func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	return min(int(math.Log(float64(d)/float64(time.Microsecond))/perBucket)+1, bucketsMax-1)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)].Add(1)
	for {
		m := h.max.Load()
		if int64(d) <= m || h.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

// Latency is what a histogram says. Nanoseconds in JSON.
type Latency struct {
	Count int64         `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	P999  time.Duration `json:"p999"`
	Max   time.Duration `json:"max"`
}

func (h *histogram) latency() Latency {
	out := Latency{Max: time.Duration(h.max.Load())}
	for i := range h.counts {
		out.Count += h.counts[i].Load()
	}
	at := func(permille int64) time.Duration {
		rank, seen := max(1, (out.Count*permille+999)/1000), int64(0)
		for i := range h.counts {
			if seen += h.counts[i].Load(); seen >= rank {
				return min(time.Duration(float64(time.Microsecond)*math.Exp(float64(i)*perBucket)), out.Max)
			}
		}
		return 0
	}
	if out.Count > 0 {
		out.P50, out.P99, out.P999 = at(500), at(990), at(999)
	}
	return out
}
