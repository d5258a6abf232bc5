package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad"
)

// cluster is running quotad nodes: processes of their own, or all in this one.
type cluster struct {
	binary string // empty: in this process
	nodes  []*node
}

type node struct {
	quotad.Peer
	dir   string
	peers []quotad.Peer

	cmd  *exec.Cmd          // nil in this process
	log  bytes.Buffer       // what the process said
	stop context.CancelFunc // of a node in this process
	done chan error         // holds how it ended
}

// startCluster starts n nodes with data directories below dir and waits for a leader.
func startCluster(ctx context.Context, binary, dir string, n int) (*cluster, error) {
	c := &cluster{binary: binary}
	ports, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	var peers []quotad.Peer
	for i := range n {
		p := quotad.Peer{
			ID: fmt.Sprintf("quotad-%d", i), RaftAddress: ports[3*i], ClientAddress: ports[3*i+1], AdminAddress: ports[3*i+2],
		}
		peers = append(peers, p)
		c.nodes = append(c.nodes, &node{Peer: p, dir: filepath.Join(dir, p.ID)})
	}
	// What one seals the others must open.
	key := strings.Repeat("5e", 32) + "\n"
	for _, nd := range c.nodes {
		if n > 1 {
			nd.peers = peers
		}
		if err := os.MkdirAll(nd.dir, 0o700); err != nil {
			return nil, errors.Join(err, c.close())
		}
		if err := os.WriteFile(filepath.Join(nd.dir, "key"), []byte(key), 0o600); err != nil {
			return nil, errors.Join(err, c.close())
		}
		if err := c.start(nd); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	if _, err := c.leader(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func freePorts(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at once, so that none is given out twice
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func (c *cluster) start(nd *node) error {
	nd.done = make(chan error, 1)
	if c.binary == "" {
		return nd.startHere()
	}
	args := []string{
		"serve", "--dev", "--id", nd.ID, "--data-dir", nd.dir, "--listen", nd.ClientAddress, "--raft-listen", nd.RaftAddress,
		"--admin-listen", nd.AdminAddress, "--key-file", filepath.Join(nd.dir, "key"), "--log-level", "error",
	}
	var peers []string
	for _, p := range nd.peers {
		peers = append(peers, fmt.Sprintf("%s=%s/%s/%s", p.ID, p.RaftAddress, p.ClientAddress, p.AdminAddress))
	}
	if len(peers) > 0 {
		args = append(args, "--peers", strings.Join(peers, ","))
	}
	nd.cmd = exec.Command(c.binary, args...)
	nd.log.Reset()
	nd.cmd.Stderr = &nd.log
	nd.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C comes to us alone, and we stop the rest
	if err := nd.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", nd.ID, err)
	}
	done, cmd := nd.done, nd.cmd
	go func() { done <- cmd.Wait() }()
	return nil
}

// startHere runs the node in this process, for profiles.
func (nd *node) startHere() error {
	cfg := quotad.Config{
		ID: nd.ID, DataDir: nd.dir, Listen: nd.ClientAddress, RaftListen: nd.RaftAddress, AdminListen: nd.AdminAddress,
		KeyFile: filepath.Join(nd.dir, "key"), Dev: true, Peers: nd.peers,
	}.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	q, err := quotad.New(cfg, "bench", zap.NewNop())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	nd.stop = cancel
	done := nd.done
	go func() { done <- errors.Join(q.Run(ctx), q.Close()) }()
	return nil
}

// end ends a node: by SIGTERM, or with kill at once.
func (nd *node) end(kill bool) error {
	switch {
	case nd.cmd == nil && nd.stop == nil:
		return nil
	case nd.cmd == nil:
		nd.stop()
	case kill:
		_ = nd.cmd.Process.Kill() // it may be gone already
	default:
		_ = nd.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case err := <-nd.done:
		nd.cmd, nd.stop = nil, nil
		if err != nil && !kill {
			return fmt.Errorf("%s: %w: %s", nd.ID, err, nd.log.String())
		}
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("%s does not stop", nd.ID)
	}
}

// close stops all nodes.
func (c *cluster) close() error {
	var errs []error
	for _, nd := range c.nodes {
		errs = append(errs, nd.end(false))
	}
	return errors.Join(errs...)
}

func (c *cluster) pids() (out []int) {
	for _, nd := range c.nodes {
		if nd.cmd != nil {
			out = append(out, nd.cmd.Process.Pid)
		}
	}
	return out
}

// planes are the addresses for sidecars.
func (c *cluster) planes() (out []string) {
	for _, nd := range c.nodes {
		out = append(out, nd.ClientAddress)
	}
	return out
}

// leader waits for a node that leads and serves.
func (c *cluster) leader(ctx context.Context) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		for _, nd := range c.nodes {
			if nd.metric(ctx, "sluice_raft_leader") == 1 {
				return nd, nil
			}
			select {
			case err := <-nd.done:
				return nil, fmt.Errorf("%s ended: %w: %s", nd.ID, err, nd.log.String())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("no node leads")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// metric reads one; -1 when it cannot be read.
func (nd *node) metric(ctx context.Context, name string) float64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+nd.AdminAddress+"/metrics", nil)
	if err != nil {
		return -1
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1
	}
	defer func() { _ = resp.Body.Close() }() // only read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v := -1.0
			_, _ = fmt.Sscan(rest, &v)
			return v
		}
	}
	return -1
}

// apply applies an org.yaml.
func (c *cluster) apply(ctx context.Context, yaml string) error {
	nd, err := c.leader(ctx)
	if err != nil {
		return err
	}
	admin := adminv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+nd.AdminAddress)
	if _, err := admin.Apply(ctx, connect.NewRequest(&adminv1.ApplyRequest{Yaml: yaml, File: "org.yaml"})); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}
