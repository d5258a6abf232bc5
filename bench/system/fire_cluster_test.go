package system

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sluice-gateway/sluice/bench/fakeprovider"
	"github.com/sluice-gateway/sluice/bench/fault"
	"github.com/sluice-gateway/sluice/bench/fire"
	"github.com/sluice-gateway/sluice/bench/program"
	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
)

// faulty is where the binaries with faults in them are, built once.
var faulty = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(binaries, "faults")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-tags", "faults", "-o", dir+"/", "../../sidecar/cmd/sidecar", "../../quotad/cmd/quotad")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build with faults: %w\n%s", err, out)
	}
	return dir, nil
})

const (
	narrowKey   = "sk-sluice-test-narrow"
	narrowLimit = 6000 // tokens a minute, and at once
	poolCap     = 1_000_000_000
)

// fireOrg has a team under load with a budget of so many dollars, one whose key may use few tokens, one whose budget only
// the clients of the history draw on, and one for herds and liars.
func fireOrg(base, dollars string) string {
	return fmt.Sprintf(`version: 1
currency: USD
prices:
  - id: p1
    valid_from: 2026-01-01T00:00:00Z
    per_million_usd: { chat: { input: 2.00, output: 10.00 } }
credentials: { main: { provider: openai } }
deployments:
  - { id: main, provider: openai, base_url: "%[1]s", model: m1, credential: main, price: chat }
  - { id: narrow, provider: openai, base_url: "%[1]s", model: m2, credential: main, price: chat }
aliases:
  chat: { targets: [ { deployment: main } ] }
  narrow: { targets: [ { deployment: narrow } ] }
teams:
  t: { budget: { monthly: %[2]s, hard: true } }
  n: { budget: { monthly: 1000 } }
  h: { budget: { monthly: 1, hard: true } }
  p: { timezone: Etc/GMT+12, budget: { monthly: 1, hard: true } }
keys:
  - { id: app, team: t, secret_sha256: %[3]s, limits: { rpm: 600000 } }
  - { id: narrow, team: n, secret_sha256: %[4]s, limits: { tpm: %[5]d } }
  - { id: pool, team: p, secret_sha256: %[6]s, limits: { rpm: 600 } }
  - { id: herd, team: h, secret_sha256: %[7]s, limits: { rpm: 600 } }
`, base, dollars, sum(appKey), sum(narrowKey), narrowLimit, sum("sk-pool"), sum("sk-herd"))
}

// faults is the file of one process, see bench/fault.
type faults struct {
	file  string
	fixed []string // where it dials
}

// set replaces the faults of the process; none ends them all.
func (f *faults) set(t *testing.T, lines ...string) {
	t.Helper()
	text := strings.Join(append(slices.Clone(f.fixed), lines...), "\n")
	if err := os.WriteFile(f.file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.file+".new", f.file); err != nil {
		t.Fatal(err)
	}
}

// cluster is three nodes and some sidecars with a link between any two of them that talk.
type cluster struct {
	*stack
	key     string   // file that seals credentials
	always  []string // faults that every node has all the time
	faults  map[string]*faults
	raft    map[[2]string]*fire.Link // who dials, whom
	plane   map[[2]string]*fire.Link // the same, sidecars to nodes
	logs    map[string][]string      // files of every process there was, by name
	traffic *traffic
	exe     map[string]string // directory of a node's binary, when it is another one
}

func startCluster(t *testing.T, sidecars int, dollars string, always ...string) *cluster {
	t.Helper()
	dir, err := faulty()
	if err != nil {
		t.Fatal(err)
	}
	return startClusterOf(t, sidecars, dollars, dir, always...)
}

// startClusterOf starts a cluster of the binaries in a directory. Without faults in them they use no link.
func startClusterOf(t *testing.T, sidecars int, dollars, dir string, always ...string) *cluster {
	t.Helper()
	s := &stack{t: t}
	s.fake = fakeprovider.New(fakeprovider.Config{
		Keys:       []fakeprovider.Key{{Name: "main", Secret: providerKey}},
		Prices:     map[string]fakeprovider.Price{"*": {Input: 2_000_000_000, Output: 10_000_000_000}},
		RecordsMax: 100_000,
	})
	srv := httptest.NewServer(s.fake)
	t.Cleanup(func() { s.fake.Close(); srv.Close() })
	s.fakeURL = srv.URL + "/v1"
	c := &cluster{
		stack: s, always: always, faults: map[string]*faults{}, raft: map[[2]string]*fire.Link{}, plane: map[[2]string]*fire.Link{},
		logs: map[string][]string{}, exe: map[string]string{},
	}
	c.makeNodes(3)
	for _, nd := range c.nodes {
		c.exe[nd.id] = dir
		c.startNode(nd)
	}
	c.awaitLeader(nil)
	c.apply(fireOrg(s.fakeURL, dollars))
	c.quotadIn(providerKey, "credential", "set", "main")
	for i := range sidecars {
		sc := c.makeCar(fmt.Sprintf("sidecar-%d", i), filepath.Join(t.TempDir(), "data"))
		c.exe[sc.name] = dir
		c.startCar(sc)
		c.await(sc)
	}
	return c
}

func (c *cluster) link(to string) *fire.Link {
	c.t.Helper()
	l, err := fire.NewLink(to)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(l.Close)
	return l
}

func (c *cluster) faultFile(name string) *faults {
	f := &faults{file: filepath.Join(c.t.TempDir(), name+".faults")}
	c.faults[name] = f
	return f
}

func (c *cluster) makeNodes(n int) {
	c.t.Helper()
	c.key = filepath.Join(c.t.TempDir(), "seal.key")
	if err := os.WriteFile(c.key, []byte(sum("seal")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	for i := range n {
		c.nodes = append(c.nodes, c.makeNode(fmt.Sprintf("quotad-%d", i)))
	}
	var peers []string
	for _, nd := range c.nodes {
		peers = append(peers, nd.peer())
	}
	for _, nd := range c.nodes {
		nd.args = append(nd.args, "--peers", strings.Join(peers, ","))
		f := c.faults[nd.id]
		for _, other := range c.others(nd) {
			l := c.link(other.raft)
			c.raft[[2]string{nd.id, other.id}] = l
			f.fixed = append(f.fixed, "dial "+other.raft+" "+l.Addr())
		}
		f.fixed = append(f.fixed, c.always...)
		f.set(c.t)
	}
}

// makeNode is a node that does not know any other yet.
func (c *cluster) makeNode(id string) *node {
	c.t.Helper()
	nd := &node{id: id, raft: freePort(c.t), plane: freePort(c.t), admin: freePort(c.t), dir: filepath.Join(c.t.TempDir(), "data")}
	nd.args = []string{
		"serve", "--dev", "--id", nd.id, "--data-dir", nd.dir, "--listen", nd.plane, "--raft-listen", nd.raft,
		"--admin-listen", nd.admin, "--key-file", c.key,
	}
	c.faultFile(id).set(c.t)
	return nd
}

// peer is the node in the words of --peers and of member add.
func (nd *node) peer() string { return fmt.Sprintf("%s=%s/%s/%s", nd.id, nd.raft, nd.plane, nd.admin) }

func (c *cluster) makeCar(name, dir string) *sidecar {
	c.t.Helper()
	sc := &sidecar{name: name, dir: dir}
	f := c.faultFile(name)
	var planes []string
	for _, nd := range c.nodes {
		l := c.link(nd.plane)
		c.plane[[2]string{name, nd.id}] = l
		f.fixed = append(f.fixed, "dial "+nd.plane+" "+l.Addr())
		planes = append(planes, nd.plane)
	}
	f.set(c.t)
	sc.args = []string{
		"--dev", "--identity", name, "--listen", freePort(c.t), "--ops-listen", freePort(c.t), "--data-dir", dir,
		"--quotad", strings.Join(planes, ","),
	}
	c.sidecars = append(c.sidecars, sc)
	return sc
}

// spawn starts a process, which may end before it is ready.
func (c *cluster) spawn(name, binary string, args []string) *process {
	c.t.Helper()
	dir := c.exe[name]
	if dir == "" { // the present ones
		var err error
		if dir, err = faulty(); err != nil {
			c.t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, binary), args...)
	cmd.Env = append(os.Environ(), fault.Env+"="+c.faults[name].file)
	p := program.Start(c.t, name, cmd)
	c.logs[name] = append(c.logs[name], p.Log)
	return p
}

func (c *cluster) startNode(nd *node) {
	c.t.Helper()
	nd.process = c.spawn(nd.id, "quotad", nd.args)
	nd.process.Await(c.t)
}

func (c *cluster) startCar(sc *sidecar) {
	c.t.Helper()
	sc.process = c.spawn(sc.name, "sidecar", sc.args)
	sc.process.Await(c.t)
	if _, err := fmt.Sscanf(sc.Line, "sidecar ready: data %s ops %s", &sc.url, &sc.ops); err != nil {
		c.t.Fatalf("ready line %q: %v", sc.Line, err)
	}
	sc.url = strings.TrimSuffix(sc.url, ",")
}

// await waits until a sidecar serves and has its session.
func (c *cluster) await(sc *sidecar) {
	c.t.Helper()
	c.eventually(sc.name+" connected", func() bool {
		b, err := get(sc.ops + "/readyz")
		return err == nil && b == "ready\n" && c.metric(sc, "sluice_quotad_connected") == 1
	})
}

// revive starts again what has ended, as a supervisor would.
func (c *cluster) revive() {
	c.t.Helper()
	for _, nd := range c.nodes {
		if nd.Dead() {
			c.startNode(nd)
		}
	}
	for _, sc := range c.sidecars {
		if sc.Dead() {
			c.startCar(sc)
		}
	}
}

// quick bounds a question to a process that may be stopped.
var quick = &http.Client{Timeout: 300 * time.Millisecond}

// serves reports whether a node leads and answers.
func serves(nd *node) bool {
	m, err := adminv1connect.NewAdminServiceClient(quick, "http://"+nd.admin).Status(context.Background(),
		connect.NewRequest(&adminv1.StatusRequest{}))
	return err == nil && m.Msg.GetLeaderId() == nd.id && m.Msg.GetNodeId() == nd.id && m.Msg.GetLeaderAdminAddress() != ""
}

// awaitLeader waits for a leader that is not old, and returns it.
func (c *cluster) awaitLeader(old *node) (found *node) {
	c.t.Helper()
	c.eventually("a leader", func() bool {
		for _, nd := range c.nodes {
			if nd != old && !nd.Dead() && serves(nd) {
				found = nd
				return true
			}
		}
		return false
	})
	return found
}

// others are all nodes but one.
func (c *cluster) others(one *node) (out []*node) {
	for _, nd := range c.nodes {
		if nd != one {
			out = append(out, nd)
		}
	}
	return out
}

// part puts trouble on every raft link between a node and the others: forth is on what they dial to it, back on what it
// dials to them.
func (c *cluster) part(nd *node, in, out fire.Trouble) {
	for _, other := range c.others(nd) {
		c.raft[[2]string{other.id, nd.id}].Set(in)
		c.raft[[2]string{nd.id, other.id}].Set(out)
	}
}

// planes puts trouble on every link of a sidecar, or of all.
func (c *cluster) planes(sc *sidecar, t fire.Trouble) {
	for at, l := range c.plane {
		if sc == nil || at[0] == sc.name {
			l.Set(t)
		}
	}
}

// heal ends every trouble and fault, and starts what is dead.
func (c *cluster) heal() {
	c.t.Helper()
	for _, l := range c.raft {
		l.Set(fire.Trouble{})
	}
	c.planes(nil, fire.Trouble{})
	for _, f := range c.faults {
		f.set(c.t)
	}
	c.revive()
	c.awaitLeader(nil)
	for _, sc := range c.sidecars {
		c.await(sc)
	}
}
