package quota

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-gateway/sluice/bench/measure"
)

// tick is how long a jiffy of /proc is, on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// processTime is the CPU time of a process.
func processTime(pid int) time.Duration {
	// The name may hold anything, so the fields count from the last bracket.
	s := measure.Read(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return time.Duration(user+system) * tick
}

// busyTime is the CPU time that anything has used since boot.
func busyTime() time.Duration {
	line, _, _ := strings.Cut(measure.Read("/proc/stat"), "\n")
	var user, nice, system, idle, wait, irq, soft, steal int64
	_, _ = fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal)
	return time.Duration(user+nice+system+irq+soft+steal) * tick
}

// residentBytes is the memory of a process.
func residentBytes(pid int) int64 {
	var kb int64
	_, _ = fmt.Sscan(measure.Field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"), &kb)
	return kb << 10
}

// CPU is what was used of the machine over a span, in cores.
type CPU struct {
	Nodes  float64 `json:"nodes"`  // quotad's processes in all
	Driver float64 `json:"driver"` // this process
	Other  float64 `json:"other"`  // everything else on the machine
}

// meter measures a span. Nodes that run in this process count as the driver.
type meter struct {
	pids         []int
	began        time.Time
	busy, driver time.Duration
	nodes        time.Duration
}

func startMeter(pids []int) *meter {
	m := &meter{pids: pids, began: time.Now(), busy: busyTime(), driver: processTime(os.Getpid())}
	m.nodes = m.sum()
	return m
}

func (m *meter) sum() (d time.Duration) {
	for _, pid := range m.pids {
		d += processTime(pid)
	}
	return d
}

func (m *meter) stop() CPU {
	wall := time.Since(m.began).Seconds()
	nodes, driver, busy := m.sum()-m.nodes, processTime(os.Getpid())-m.driver, busyTime()-m.busy
	return CPU{
		Nodes: nodes.Seconds() / wall, Driver: driver.Seconds() / wall, Other: max(0, (busy-nodes-driver).Seconds()/wall),
	}
}
