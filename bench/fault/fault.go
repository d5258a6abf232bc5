// Package fault puts faults into a running program: it kills it at a point, holds its disk up, turns its clock and
// leads its connections through a proxy.
//
// Only binaries built with the tag faults have it in them; what is shipped has none of it. A program does what the file
// says that SLUICE_FAULTS names, from its start, and looks at it again and again, so that a test can put a fault into
// the middle of a run. The file has a fault a line:
//
//	dial ADDRESS ADDRESS   who dials the first gets the second
//	kill POINT N           SIGKILL at the Nth pass of the point from now on
//	hang POINT             whoever passes the point stays there until this line is gone
//	slow POINT DURATION    each pass of the point takes that much longer
//	wall DURATION          the wall clock shows that much more
//	drift PPM              every clock runs that much too fast, or too slow
//	power DIR COPY         what is synced in DIR is also in COPY, and nothing else; from the start or not at all
//	often N                what happens once in a while happens N times as often
package fault

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Env names the file; without it nothing is put in.
const Env = "SLUICE_FAULTS"

// lookEvery is how soon a changed file counts.
const lookEvery = 10 * time.Millisecond

// plan is what a file says.
type plan struct {
	dial  map[string]string
	kill  map[string]int
	slow  map[string]time.Duration
	hang  map[string]bool
	wall  time.Duration
	drift int64 // ppm
	power [2]string
	often int64
}

// parse reads a file's text.
func parse(text string) (*plan, error) {
	p := &plan{dial: map[string]string{}, kill: map[string]int{}, slow: map[string]time.Duration{}, hang: map[string]bool{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var err error
		switch f[0] + "/" + strconv.Itoa(len(f)-1) {
		case "dial/2":
			p.dial[f[1]] = f[2]
		case "kill/2":
			p.kill[f[1]], err = strconv.Atoi(f[2])
		case "hang/1":
			p.hang[f[1]] = true
		case "slow/2":
			p.slow[f[1]], err = time.ParseDuration(f[2])
		case "wall/1":
			p.wall, err = time.ParseDuration(f[1])
		case "drift/1":
			p.drift, err = strconv.ParseInt(f[1], 10, 64)
		case "power/2":
			p.power = [2]string{f[1], f[2]}
		case "often/1":
			p.often, err = strconv.ParseInt(f[1], 10, 64)
		default:
			err = fmt.Errorf("no such fault")
		}
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", strings.TrimSpace(line), err)
		}
	}
	return p, nil
}

// program is the faults of this process.
type program struct {
	mu     sync.Mutex // guards the rest
	text   string
	plan   *plan
	passed map[string]int // since the plan came
	change chan struct{}  // closed when another plan comes
	skew   time.Duration  // of the clock, up to turned
	turned time.Time      // when drift changed last
}

// here starts with the first question: every program asks for something early.
var here = sync.OnceValue(func() *program {
	p := &program{plan: &plan{}, passed: map[string]int{}, change: make(chan struct{}), turned: time.Now()}
	if file := os.Getenv(Env); file != "" {
		p.look(file)
		if dirs := p.plan.power; dirs[0] != "" {
			if err := record(dirs[0], dirs[1]); err != nil {
				panic("faults: " + err.Error())
			}
		}
		go func() {
			for range time.Tick(lookEvery) {
				p.look(file)
			}
		}()
	}
	return p
})

// look takes the file's plan if it is another one. A program that cannot do what a test wants must not go on as if.
func (p *program) look(file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		panic("faults: " + err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if string(b) == p.text {
		return
	}
	next, err := parse(string(b))
	if err != nil {
		panic(err)
	}
	now := time.Now()
	p.skew += drifted(now.Sub(p.turned), p.plan.drift)
	p.text, p.plan, p.turned = string(b), next, now
	clear(p.passed)
	close(p.change)
	p.change = make(chan struct{})
}

func drifted(d time.Duration, ppm int64) time.Duration { return d / 1_000_000 * time.Duration(ppm) }

func (p *program) ahead() (skew, wall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.skew + drifted(time.Since(p.turned), p.plan.drift), p.plan.wall
}

// Pass is called at a point of a program that a test may want to disturb.
func Pass(point string) {
	p := here()
	p.mu.Lock()
	p.passed[point]++
	kill, slow := p.plan.kill[point], p.plan.slow[point]
	if kill > 0 && p.passed[point] == kill {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	}
	for p.plan.hang[point] {
		change := p.change
		p.mu.Unlock()
		<-change
		p.mu.Lock()
	}
	p.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
}

// Now is the time by a clock that drifts; its monotonic reading does too.
func Now() time.Time {
	skew, _ := here().ahead()
	return time.Now().Add(skew)
}

// Wall is the time by a wall clock that is also turned.
func Wall() time.Time {
	skew, wall := here().ahead()
	return time.Now().Add(skew + wall).Round(0)
}

// Skew is how far the drifting clock is ahead.
func Skew() time.Duration {
	skew, _ := here().ahead()
	return skew
}

// Often returns how many times as often things are to happen; 1 unless the file says more.
func Often() int64 {
	p := here()
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.plan.often, 1)
}

// Dial connects, to where the file says.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	p := here()
	p.mu.Lock()
	if to, ok := p.plan.dial[address]; ok {
		address = to
	}
	p.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
