// Package measure is what measurements share: the machine they ran on, and Go benchmarks of this module as their source.
package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what a run was measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Load   string `json:"load"` // /proc/loadavg
}

// Here is this machine, as it is now.
func Here() Machine {
	return Machine{
		CPU: Field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Kernel: strings.TrimSpace(Read("/proc/sys/kernel/osrelease")),
		Go: runtime.Version(), Load: strings.TrimSpace(Read("/proc/loadavg")),
	}
}

// String is a line of a report, the load aside.
func (m Machine) String() string {
	return fmt.Sprintf("%d × %s, linux %s, %s", m.Cores, m.CPU, m.Kernel, m.Go)
}

// Read is a file of /proc, empty where there is none.
func Read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// Field is the value of the first "name : value" line of a file of /proc.
func Field(path, name string) string {
	for line := range strings.Lines(Read(path)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
