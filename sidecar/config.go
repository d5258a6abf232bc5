package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Config is how one sidecar runs. Load fills it from a file, the environment and flags.
type Config struct {
	Listen         string        // data listener; default 127.0.0.1:4000
	UnixSocket     string        // path of a further data listener; none by default
	OpsListen      string        // health, metrics and status; default 127.0.0.1:4001
	Quotad         []string      // host:port of quotad's sidecar planes; required
	DataDir        string        // journal, events and the last good snapshot; required
	Identity       string        // the sidecar's name; default the host name
	DefaultKeyFile string        // holds the key of callers that send none
	LogLevel       zapcore.Level // default info
	EventsKeepMiB  int           // space for usage event files that quotad has counted, MiB; default 1024, oldest go first
	DrainTimeout   time.Duration // how long running streams may take on SIGTERM; default 10 min
	TLS            TLSFiles      // to quotad; required unless Dev
	Dev            bool          // no TLS, loopback only
	Host           Host          // what it has of its machine
}

// Host is the machine that a sidecar runs on, as far as it can be another one than the real: tests run whole systems
// on a network and a clock of their own. The zero value is the real one.
type Host struct {
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // to quotad and to providers
	Now    func() int64                                                         // nanoseconds of a clock that runs on while the machine sleeps
}

// TLSFiles are the PEM files of mutual TLS.
type TLSFiles struct{ CA, Cert, Key string }

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	or := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	or(&c.Listen, "127.0.0.1:4000")
	or(&c.OpsListen, "127.0.0.1:4001")
	if c.Identity == "" {
		c.Identity, _ = os.Hostname()
		or(&c.Identity, "sidecar")
	}
	if c.EventsKeepMiB == 0 {
		c.EventsKeepMiB = 1024
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 10 * time.Minute
	}
	if c.Host.Listen == nil {
		c.Host.Listen = net.Listen
	}
	return c
}

// Fault is what is wrong with the value of a key.
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
	endpoint := func(key, addr string) {
		if err := address(addr); err != nil {
			fault(key, "%v", err)
		} else if c.Dev && !loopback(addr) {
			fault(key, "%s is not on loopback, which --dev demands", addr)
		}
	}
	endpoint("listen", c.Listen)
	endpoint("ops_listen", c.OpsListen)
	if len(c.Quotad) == 0 {
		fault("quotad", "required: host:port of at least one node's sidecar plane")
	}
	for _, a := range c.Quotad {
		endpoint("quotad", a)
	}
	if c.DataDir == "" {
		fault("data_dir", "required: the journal and the last good configuration live there")
	} else if !filepath.IsAbs(c.DataDir) && !c.Dev {
		fault("data_dir", "must be an absolute path")
	}
	if c.EventsKeepMiB < 0 {
		fault("events_keep_mib", "must not be negative")
	}
	if c.DrainTimeout < 0 {
		fault("drain_timeout", "must not be negative")
	}
	if !c.Dev && (c.TLS.CA == "" || c.TLS.Cert == "" || c.TLS.Key == "") {
		fault("tls", "tls.ca, tls.cert and tls.key are required outside --dev")
	}
	return faults
}

func address(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil || port == "" {
		return fmt.Errorf("%q is not host:port", a)
	}
	return nil
}

func loopback(a string) bool {
	host, _, _ := net.SplitHostPort(a)
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Setting is one key: what sets it in a file, in the environment (Env) and as a flag (Flag).
type Setting struct {
	Key   string // in the file; nested keys are joined by dots
	Usage string
	Set   func(c *Config, value string) error
}

// Env is the environment variable of a setting.
func (s Setting) Env() string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Flag is the command-line flag of a setting.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key) }

// Settings lists every key.
func Settings() []Setting {
	text := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, v string) error { *field(c) = v; return nil }
	}
	return []Setting{
		{"listen", "data listener, host:port", text(func(c *Config) *string { return &c.Listen })},
		{"unix_socket", "path of a further data listener", text(func(c *Config) *string { return &c.UnixSocket })},
		{"ops_listen", "health, metrics and status, host:port", text(func(c *Config) *string { return &c.OpsListen })},
		{"quotad", "sidecar planes of quotad, host:port, comma between them", func(c *Config, v string) error {
			c.Quotad = nil
			for a := range strings.SplitSeq(v, ",") {
				if a = strings.TrimSpace(a); a != "" {
					c.Quotad = append(c.Quotad, a)
				}
			}
			return nil
		}},
		{"data_dir", "directory of the journal, events and last good configuration",
			text(func(c *Config) *string { return &c.DataDir })},
		{"identity", "name of this sidecar", text(func(c *Config) *string { return &c.Identity })},
		{"default_key_file", "file with the key of callers that send none",
			text(func(c *Config) *string { return &c.DefaultKeyFile })},
		{"log_level", "debug, info, warn or error", func(c *Config, v string) error {
			return c.LogLevel.UnmarshalText([]byte(v))
		}},
		{"events_keep_mib", "space for usage event files that quotad has counted, MiB; the oldest are deleted",
			func(c *Config, v string) (err error) {
				if c.EventsKeepMiB, err = strconv.Atoi(v); err != nil {
					return fmt.Errorf("%q is not a whole number", v)
				}
				return nil
			}},
		{"drain_timeout", "how long running streams may take on SIGTERM, for example 10m", func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil {
				return fmt.Errorf("%q is not a duration such as 10m", v)
			}
			c.DrainTimeout = d
			return nil
		}},
		{"tls.ca", "PEM file of the authority that signs quotad's certificates",
			text(func(c *Config) *string { return &c.TLS.CA })},
		{"tls.cert", "PEM file of this sidecar's certificate", text(func(c *Config) *string { return &c.TLS.Cert })},
		{"tls.key", "PEM file of its private key", text(func(c *Config) *string { return &c.TLS.Key })},
	}
}
