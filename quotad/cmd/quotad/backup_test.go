package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBackupTakesNoName: where something is that is no file, a backup is not put in its place, and nothing stays beside it.
func TestBackupTakesNoName(t *testing.T) {
	o := newOperator(t)
	dir := t.TempDir()
	socket, sub, file := filepath.Join(dir, "socket"), filepath.Join(dir, "sub"), filepath.Join(dir, "file")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer func() { _ = l.Close() }()
	must(t, os.Mkdir(sub, 0o700))
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	o.refused("--output: "+socket+": is there and is not a file", "backup", "-o", socket)
	o.refused("--output: "+sub+": is there and is not a file", "backup", "-o", sub)
	o.refused("--output: "+filepath.Join(dir, "none", "x")+": no such file or directory", "backup", "-o", filepath.Join(dir, "none", "x"))
	gone := &operator{t: t, addr: "127.0.0.1:1"}
	gone.refused("no quotad answers", "backup", "-o", file)
	if b, err := os.ReadFile(file); err != nil || string(b) != "old" {
		t.Errorf("a backup that failed: %q, %v", b, err)
	}
	o.run("backup", "-o", file)
	if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "sluice backup\n") {
		t.Errorf("a backup over an older one: %.20q, %v", b, err)
	}
	names, err := os.ReadDir(dir)
	must(t, err)
	if info, err := os.Lstat(socket); err != nil || info.Mode()&os.ModeSocket == 0 || len(names) != 3 {
		t.Errorf("%v, %v, %v", info, err, names)
	}
}

// TestBackupSaysWhatStatusSays: what a backup is said to be of is what status says, before a restore and after it, when
// versions count from further on and the log does not.
func TestBackupSaysWhatStatusSays(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(orgYAML))
	file := filepath.Join(o.dir, "backup")
	line := regexp.MustCompile(`^saved \d+ records of \d{4}-\d\d-\d\dT[0-9:]+Z: cluster (\S+), epoch (\d+), configuration (\d+)\n$`)
	version := func() uint64 {
		t.Helper()
		said := line.FindStringSubmatch(o.run("backup", "-o", file))
		if said == nil {
			t.Fatalf("%q", o.run("backup", "-o", file))
		}
		var status struct {
			ClusterID     string `json:"cluster_id"`
			Epoch         string `json:"epoch"`
			ConfigVersion uint64 `json:"config_version,string"`
			Applied       uint64 `json:"applied,string"`
		}
		must(t, json.Unmarshal([]byte(o.run("status", "-o", "json")), &status))
		if want := []string{status.ClusterID, cmp.Or(status.Epoch, "0"), fmt.Sprint(status.ConfigVersion)}; !slices.Equal(said[1:], want) {
			t.Errorf("it is said to be of %v, status says %v", said[1:], want)
		}
		if status.Applied > 1000 {
			t.Errorf("applied %d", status.Applied)
		}
		return status.ConfigVersion
	}
	before := version()
	o.run("restore", file)
	if after := version(); before > 1000 || after < 1<<36 {
		t.Errorf("configuration %d, and %d after a restore", before, after)
	}
}

// TestRestoreOfAPipe: what comes out of another program is restored as a file is, and refused as one is.
func TestRestoreOfAPipe(t *testing.T) {
	o := newOperator(t)
	o.run("apply", "-f", o.file(orgYAML))
	file := filepath.Join(o.dir, "backup")
	o.run("backup", "-o", file)
	b, err := os.ReadFile(file)
	must(t, err)
	o.run("apply", "-f", o.file(strings.Replace(orgYAML, "monthly: 100", "monthly: 200", 1)))
	bent := bytes.Clone(b)
	bent[len(b)/2] ^= 1
	for name, tc := range map[string]struct{ in, want string }{
		"nothing":    {"", "it does not begin like one"},
		"not one":    {orgYAML, "it does not begin like one"},
		"cut short":  {string(b[:len(b)-1]), "it is cut short"},
		"bent":       {string(bent), "it is damaged"},
		"and a half": {string(b) + "x", "something follows its end"},
	} {
		if _, err := o.try(tc.in, "restore", "-"); err == nil || !strings.Contains(err.Error(), "FILE: standard input: nothing was restored: "+tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.refused("FILE: /dev/zero: nothing was restored: it does not begin like one", "restore", "/dev/zero") // which has no end
	wrong := o.file(orgYAML)
	o.refused("FILE: "+wrong+": nothing was restored: it does not begin like one", "restore", wrong)
	if out := o.run("budget", "show", "red"); !strings.Contains(out, "$200.00") {
		t.Errorf("what was refused changed something: %s", out)
	}
	if out, err := o.try(string(b), "restore", "-"); err != nil || !strings.Contains(out, "restored ") {
		t.Fatalf("%v %s", err, out)
	}
	if out := o.run("get"); !strings.Contains(out, "monthly: 100") {
		t.Errorf("after it: %s", out)
	}
}

// TestInspectOfDamage: what is damaged is shown, and a script learns of it.
func TestInspectOfDamage(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "raft.db"), []byte("no log"), 0o600))
		cmd := command()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"inspect", dir, "-o", output})
		if err := cmd.Execute(); err == nil || err.Error() != "DATA_DIR: "+dir+" is damaged" || !strings.Contains(out.String(), "raft.db") {
			t.Errorf("%s: %v\n%s", output, err, out.String())
		}
	}
}

func TestInspectOfAnotherDirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"DATA_DIR: " + dir + ": no quotad's directory: it has neither meta.json nor raft.db nor state.db", []string{dir}},
		{"DATA_DIR: open " + dir + "/none: no such file or directory", []string{dir + "/none"}},
		{"DATA_DIR: open " + dir + "/notes: not a directory", []string{dir + "/notes"}},
		{"DATA_DIR: must not be empty", []string{""}},
		{"--log: -1 is below 0", []string{dir, "--log", "-1"}},
		{`--log: "9999999999999999999" is out of range`, []string{dir, "--log", "9999999999999999999"}},
	} {
		cmd := command()
		cmd.SetArgs(append([]string{"inspect"}, tc.args...))
		if err := cmd.Execute(); err == nil || err.Error() != tc.want {
			t.Errorf("%q: got %v, want %s", tc.args, err, tc.want)
		}
	}
	names, err := os.ReadDir(dir)
	must(t, err)
	if len(names) != 1 {
		t.Errorf("it wrote: %v", names)
	}
}
