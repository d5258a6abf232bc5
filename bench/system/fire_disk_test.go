package system

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// dies waits for a node to end by its fault, and starts it again without.
func (c *cluster) dies(nd *node) {
	c.t.Helper()
	c.eventually(nd.id+" dies", nd.Dead)
	c.faults[nd.id].set(c.t)
	c.startNode(nd)
}

// killedAtPoints kills leader and follower in turn in the middle of what they do to their disks.
func killedAtPoints(c *cluster) (times int) {
	for i, point := range []string{"log", "logged", "apply", "persist", "snapshot", "flush", "flushed"} {
		nd := c.awaitLeader(nil)
		if i%2 == 1 {
			nd = c.others(nd)[0]
		}
		for range 2 {
			c.faults[nd.id].set(c.t, "kill "+point+" 2")
			c.dies(nd)
			times++
		}
	}
	return times
}

// killedAtRestore lets a follower fall behind what the log still has, and kills it before and after a snapshot takes the
// place of its state.
func killedAtRestore(c *cluster) (times int) {
	one := c.others(c.awaitLeader(nil))[0]
	for _, point := range []string{"rename", "renamed"} {
		one.Kill()
		c.outrun(one)
		c.faults[one.id].set(c.t, "kill "+point+" 1")
		one.process = c.spawn(one.id, "quotad", one.args)
		c.dies(one)
		times++
	}
	return times
}

// outrun waits until the others have thrown away the log that a dead node lacks.
func (c *cluster) outrun(dead *node) {
	c.t.Helper()
	had := c.applied(c.awaitLeader(dead))
	c.eventually("the log is cut", func() bool { return c.applied(c.awaitLeader(dead)) > had+250 })
}

// applied is the index a node stands at.
func (c *cluster) applied(nd *node) int64 {
	b, _ := get("http://" + nd.admin + "/metrics")
	return int64(readMetric(b, "sluice_raft_applied_index"))
}

// damage is one way to spoil the files of a node that is down. It returns what it spoiled, below the data directory.
type damage struct {
	name string
	do   func(dir string) (spoiled string, err error)
}

var damages = []damage{
	{"state file deleted", func(dir string) (string, error) { return "state.db", os.Remove(filepath.Join(dir, "state.db")) }},
	{"state file torn", func(dir string) (string, error) { return "state.db", tear(filepath.Join(dir, "state.db")) }},
	{"snapshot torn", func(dir string) (string, error) { return spoilSnapshot(dir, tear) }},
	{"snapshot with a flipped bit", func(dir string) (string, error) { return spoilSnapshot(dir, flip) }},
	{"log torn", func(dir string) (string, error) { return "raft.db", tear(filepath.Join(dir, "raft.db")) }},
	{"log with a flipped bit", flipEntry},
}

// tear cuts a file in half.
func tear(file string) error {
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.Truncate(file, st.Size()/2)
}

// flip turns a bit in the middle of a file.
func flip(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(file, b, 0o600)
}

// snapshots are the files of the snapshots in a data directory, the oldest first.
func snapshots(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*-*-*[0-9]", "state.bin"))
	slices.SortFunc(found, func(a, b string) int {
		index := func(file string) (i int) {
			_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d-%d", new(int), &i)
			return i
		}
		return index(a) - index(b)
	})
	return found
}

// spoilSnapshot spoils the newest snapshot, and takes the state file away so that the snapshot is needed.
func spoilSnapshot(dir string, spoil func(string) error) (string, error) {
	found := snapshots(dir)
	if len(found) == 0 {
		return "", fmt.Errorf("no snapshot in %s", dir)
	}
	if err := os.Remove(filepath.Join(dir, "state.db")); err != nil {
		return "", err
	}
	return "snapshots", spoil(found[len(found)-1])
}

// flipEntry turns a bit in the newest entry of the log, and takes the state file away so that the entry is needed.
func flipEntry(dir string) (string, error) {
	file := filepath.Join(dir, "raft.db")
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return "", err
	}
	var entry []byte
	err = db.View(func(tx *bbolt.Tx) error {
		logs := tx.Bucket([]byte("logs")).Cursor()
		for k, v := logs.Last(); k != nil && len(entry) < 100; k, v = logs.Prev() {
			entry = bytes.Clone(v)
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return "", err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	at := bytes.LastIndex(b, entry)
	if len(entry) < 100 || at < 0 {
		return "", fmt.Errorf("no entry in %s", file)
	}
	for ; at >= 0; at = bytes.LastIndex(b[:at], entry) { // a page that is free now may have it too
		b[at+len(entry)/2] ^= 1
	}
	if err := os.Remove(filepath.Join(dir, "state.db")); err != nil {
		return "", err
	}
	return "raft.db", os.WriteFile(file, b, 0o600)
}

// damaged spoils a node's files in every way. The node must come to the same state as the others by itself, or refuse
// and name what is spoiled; then it comes back with an empty disk.
func damaged(c *cluster) (times int) {
	c.eventually("each node has two snapshots", func() bool {
		return !slices.ContainsFunc(c.nodes, func(nd *node) bool { return len(snapshots(nd.dir)) < 2 })
	})
	for i, d := range damages {
		nd := c.awaitLeader(nil)
		if i%2 == 1 {
			nd = c.others(nd)[0]
		}
		nd.Kill()
		c.awaitLeader(nd)
		spoiled, err := d.do(nd.dir)
		if err != nil {
			c.t.Fatalf("%s: %v", d.name, err)
		}
		nd.process = c.spawn(nd.id, "quotad", nd.args)
		said := c.caughtUp(nd)
		c.t.Logf("%s: %s", d.name, said)
		if nd.Dead() {
			if !strings.Contains(said, filepath.Join(nd.dir, spoiled)) {
				c.t.Errorf("%s: the node refuses and does not name %s", d.name, filepath.Join(nd.dir, spoiled))
			}
			if err := os.RemoveAll(nd.dir); err != nil {
				c.t.Fatal(err)
			}
			c.startNode(nd)
			c.caughtUp(nd)
		}
		c.alikeNow(nd)
		times++
	}
	return times
}

// caughtUp waits until a node stands where the leader stood, or has ended; then it returns what it said last.
func (c *cluster) caughtUp(nd *node) string {
	c.t.Helper()
	goal := c.applied(c.awaitLeader(nd))
	c.eventually(nd.id+" catches up or ends", func() bool { return nd.Dead() || c.applied(nd) >= goal })
	if !nd.Dead() {
		return "it is back by itself"
	}
	b, err := os.ReadFile(nd.Log)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b[max(0, len(b)-3000):])
}

// wired has every node record what it syncs.
func (c *cluster) wire(nd *node) {
	f := c.faults[nd.id]
	f.fixed = append(f.fixed, "power "+nd.dir+" "+nd.dir+".synced")
	f.set(c.t)
}

// powerCut kills nodes and leaves them what they had synced.
func (c *cluster) powerCut(nodes ...*node) {
	c.t.Helper()
	for _, nd := range nodes {
		nd.Kill()
	}
	for _, nd := range nodes {
		if err := os.RemoveAll(nd.dir); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Rename(nd.dir+".synced", nd.dir); err != nil {
			c.t.Fatal(err)
		}
	}
}

// powerCuts cuts the power of the leader, of a follower, and of all three at once.
func powerCuts(c *cluster) (times int) {
	for _, nd := range c.nodes { // one after the other, from here on
		nd.Term(c.t)
		c.wire(nd)
		c.startNode(nd)
		c.awaitLeader(nil)
	}
	for range 2 {
		leader := c.awaitLeader(nil)
		for _, cut := range [][]*node{{leader}, {c.others(leader)[0]}, c.nodes} {
			c.pass(time.Second)
			c.powerCut(cut...)
			c.revive()
			c.awaitLeader(nil)
			times++
		}
	}
	c.pass(time.Second)
	return times
}

// TestPowerCutIsOne: what the recording leaves after a power cut is less than what a killed process leaves.
func TestPowerCutIsOne(t *testing.T) {
	long(t)
	c := startCluster(t, 0, "1000", "often 1")
	nd := c.nodes[0]
	nd.Term(t)
	c.wire(nd)
	c.startNode(nd)
	c.awaitLeader(nil)
	unsynced := filepath.Join(nd.dir, "unsynced")
	if err := os.WriteFile(unsynced, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.powerCut(nd)
	if _, err := os.Stat(unsynced); !os.IsNotExist(err) {
		t.Errorf("what nobody synced is there: %v", err)
	}
	c.startNode(nd)
}
