package quotad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-gateway/sluice/quotad/internal/replica"
	"go.uber.org/zap/zapcore"
)

// Config is how one node runs. Load fills it from a file, the environment and flags.
type Config struct {
	ID          string        // name of this node; default quotad-0
	DataDir     string        // log, state and snapshots; required
	Listen      string        // sidecar plane; default :7070, on loopback with Dev
	RaftListen  string        // default :7071, on loopback with Dev
	AdminListen string        // admin API, metrics; default :7072, on loopback with Dev
	Peers       []Peer        // every node, this one included; empty means this one alone
	Join        bool          // wait to be added to a running cluster, never make one
	KeyFile     string        // seals provider credentials; default key in DataDir, made with Dev
	LogLevel    zapcore.Level // default info
	TLS         TLSFiles      // required unless Dev
	Operators   []string      // SPIFFE ids that may use the admin API, * stands for anything but a slash; none: whoever is no sidecar
	Dev         bool          // no TLS, loopback only
	Host        Host          // what it has of its machine
}

// Host is the machine that a node runs on, as far as it can be another one than the real: tests run whole systems on a
// network of their own. The zero value is the real one.
type Host struct {
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // to its peers
}

// Peer is one node.
type Peer = replica.Peer

// TLSFiles are the PEM files of mutual TLS, used on all three ports.
type TLSFiles struct{ CA, Cert, Key string }

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	or := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	host := ""
	if c.Dev {
		host = "127.0.0.1"
	}
	or(&c.ID, "quotad-0")
	or(&c.Listen, host+":7070")
	or(&c.RaftListen, host+":7071")
	or(&c.AdminListen, host+":7072")
	if c.Host.Listen == nil {
		c.Host.Listen = net.Listen
	}
	if c.DataDir != "" {
		or(&c.KeyFile, filepath.Join(c.DataDir, "key"))
	}
	return c
}

// Fault is what is wrong with a key's value.
type Fault struct{ Key, What string }

func (f Fault) Error() string { return f.Key + ": " + f.What }

// Validate reports every fault, by the name of its key.
func (c Config) Validate() error {
	var all []error
	for _, f := range c.faults() {
		all = append(all, f)
	}
	return errors.Join(all...)
}

func (c Config) faults() (faults []Fault) {
	fault := func(key, format string, args ...any) {
		faults = append(faults, Fault{key, fmt.Sprintf(format, args...)})
	}
	if c.DataDir == "" {
		fault("data_dir", "required: log, state and snapshots live there")
	}
	for _, l := range [...]struct{ key, addr string }{
		{"listen", c.Listen}, {"raft_listen", c.RaftListen}, {"admin_listen", c.AdminListen},
	} {
		host, port, err := net.SplitHostPort(l.addr)
		switch {
		case err != nil || port == "":
			fault(l.key, "%q is not host:port", l.addr)
		case !isPort(port):
			fault(l.key, "%q: the port is not a number from 0 to 65535", l.addr)
		case c.Dev && !loopback(host):
			fault(l.key, "%s is not on loopback, which --dev demands", l.addr)
		}
	}
	seen := map[string]bool{}
	for _, p := range c.Peers {
		if seen[p.ID] {
			fault("peers", "%s appears twice", p.ID)
		}
		if err := replica.CheckNodeID(p.ID); err != nil {
			fault("peers", "%v", err)
		}
		seen[p.ID] = true
		for _, a := range [...]string{p.RaftAddress, p.ClientAddress, p.AdminAddress} {
			host, _, _ := net.SplitHostPort(a)
			if err := replica.CheckAddress(a); err != nil {
				fault("peers", "%s: %v", p.ID, err)
			} else if c.Dev && !loopback(host) {
				fault("peers", "%s: %s is not on loopback, which --dev demands", p.ID, a)
			}
		}
	}
	if err := replica.CheckNodeID(c.ID); err != nil {
		fault("id", "%v", err)
	}
	if len(c.Peers) > 0 && !seen[c.ID] && !c.Join {
		fault("id", "%s is not among the peers", c.ID)
	}
	if len(c.Peers)%2 == 0 && len(c.Peers) > 0 && !c.Join {
		fault("peers", "%d nodes: an odd number survives as many losses with fewer nodes", len(c.Peers))
	}
	for _, o := range c.Operators {
		if _, err := path.Match(o, ""); err != nil || !strings.HasPrefix(o, "spiffe://") {
			fault("admin.operators", "%q is not a SPIFFE id or a pattern of them, such as spiffe://example.org/ops/*", o)
		}
	}
	if !c.Dev && (c.TLS.CA == "" || c.TLS.Cert == "" || c.TLS.Key == "") {
		fault("tls", "tls.ca, tls.cert and tls.key are required outside --dev")
	}
	return faults
}

// isPort reports whether it is a number to listen on; 0 is any that is free.
func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// ParsePeer reads id=HOST, with the default ports, or id=RAFT/SIDECARS/ADMIN, each host:port.
func ParsePeer(s string) (Peer, error) {
	id, rest, ok := strings.Cut(s, "=")
	if !ok || id == "" || rest == "" {
		return Peer{}, fmt.Errorf("%q is not id=host or id=raft/sidecars/admin", s)
	}
	parts := strings.Split(rest, "/")
	switch len(parts) {
	case 1:
		if _, err := netip.ParseAddr(rest); err != nil && strings.Contains(rest, ":") {
			return Peer{}, fmt.Errorf("%q: a host alone takes no port: id=host, or id=raft/sidecars/admin, each host:port", s)
		}
		join := func(port string) string { return net.JoinHostPort(rest, port) }
		return Peer{ID: id, RaftAddress: join("7071"), ClientAddress: join("7070"), AdminAddress: join("7072")}, nil
	case 3:
		return Peer{ID: id, RaftAddress: parts[0], ClientAddress: parts[1], AdminAddress: parts[2]}, nil
	}
	return Peer{}, fmt.Errorf("%q: three addresses are needed: raft/sidecars/admin", s)
}

// Setting is one key: what sets it in a file, in the environment (Env) and as a flag (Flag).
type Setting struct {
	Key   string // in the file; nested keys are joined by dots
	Usage string
	Set   func(c *Config, value string) error
}

// Env is the environment variable of a setting.
func (s Setting) Env() string {
	return "SLUICE_QUOTAD_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Flag is the command-line flag of a setting.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key) }

// Settings lists every key.
func Settings() []Setting {
	text := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, v string) error { *field(c) = v; return nil }
	}
	return []Setting{
		{"id", "name of this node", text(func(c *Config) *string { return &c.ID })},
		{"data_dir", "directory of log, state and snapshots", text(func(c *Config) *string { return &c.DataDir })},
		{"listen", "sidecar plane (gRPC), host:port", text(func(c *Config) *string { return &c.Listen })},
		{"raft_listen", "raft, host:port", text(func(c *Config) *string { return &c.RaftListen })},
		{"admin_listen", "admin API and metrics, host:port", text(func(c *Config) *string { return &c.AdminListen })},
		{"peers", "every node, comma between them: id=host or id=raft/sidecars/admin", func(c *Config, v string) error {
			c.Peers = nil
			if strings.TrimSpace(v) == "" {
				return nil
			}
			for s := range strings.SplitSeq(v, ",") {
				p, err := ParsePeer(strings.TrimSpace(s))
				if err != nil {
					return err
				}
				c.Peers = append(c.Peers, p)
			}
			return nil
		}},
		{"join", "true: wait to be added to a running cluster (quotad member add), never make one", func(c *Config, v string) (err error) {
			if c.Join, err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("%q is neither true nor false", v)
			}
			return nil
		}},
		{"key_file", "file with the keys that seal provider credentials", text(func(c *Config) *string { return &c.KeyFile })},
		{"admin.operators", "SPIFFE ids that may use the admin API, comma between them; * stands for anything but a slash. None: every certificate that is no sidecar's",
			func(c *Config, v string) error {
				c.Operators = nil
				for o := range strings.SplitSeq(v, ",") {
					if o = strings.TrimSpace(o); o != "" {
						c.Operators = append(c.Operators, o)
					}
				}
				if len(c.Operators) == 0 { // taken for no list, it would let everybody in
					return errors.New("names nobody: to let every certificate in that is no sidecar's, leave it out")
				}
				return nil
			}},
		{"log_level", "debug, info, warn or error", func(c *Config, v string) error {
			return c.LogLevel.UnmarshalText([]byte(v))
		}},
		{"tls.ca", "PEM file of the authority that signs all certificates", text(func(c *Config) *string { return &c.TLS.CA })},
		{"tls.cert", "PEM file of this node's certificate", text(func(c *Config) *string { return &c.TLS.Cert })},
		{"tls.key", "PEM file of its private key", text(func(c *Config) *string { return &c.TLS.Key })},
	}
}
