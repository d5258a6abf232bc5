package quotad

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file writes a configuration and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotad.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadReportsEveryFaultAtOnce(t *testing.T) {
	path := file(t, `id: x
listen: nowhere
raft_lisen: 127.0.0.1:1
id: y
log_level: loud
tls:
  ca: a.pem
  crt: b.pem
peers: [a=h, b]
key_file: { path: k }
admin: { operators: [] }
admin_listen: [{ a: b }]
`)
	_, err := Load(path, []string{"SLUICE_QUOTAD_LOG_LEVEL=quiet", "OTHER=1", "odd"}, map[string]string{"peers": "c=1/2", "admin.operators": " , "}, false)
	if err == nil {
		t.Fatal("loaded")
	}
	for _, want := range []string{
		path + `:3: unknown key "raft_lisen"`,
		path + ":4: id: already set on line 1",
		path + ":5: log_level: unrecognized level",
		path + `:8: unknown key "tls.crt"`,
		path + `:9: peers: "b" is not id=host`,
		path + `:10: unknown key "key_file.path"`,
		path + ":11: admin.operators: names nobody",
		path + ":12: admin_listen: must be a plain value",
		`SLUICE_QUOTAD_LOG_LEVEL: unrecognized level: "quiet"`,
		"--admin-operators: names nobody",
		`--peers: "c=1/2": three addresses are needed`,
		"data_dir: required",
		path + `:2: listen: "nowhere" is not host:port`,
		"tls: tls.ca, tls.cert and tls.key are required outside --dev",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

func TestLoadOfAFileThatIsNone(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"syntax", "id: a\nlisten: [\n", ":2: "},
		{"list", "- a\n", ":1: the file must be a mapping"},
		{"plain value", "\nhello\n", ":2: the file must be a mapping"},
		{"two documents", "id: a\n---\nid: b\n", ": the file must be one YAML document"},
		{"alias", "id: &a x\ndata_dir: *a\n", ":2: data_dir: must be a plain value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := file(t, tc.text)
			_, err := Load(path, nil, map[string]string{"data_dir": "d"}, true)
			if err == nil || !strings.Contains(err.Error(), path+tc.want) || strings.Contains(err.Error(), ": yaml: ") {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := Load("no/such/file", nil, map[string]string{"data_dir": "d"}, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, text := range []string{"", "# nothing set\n"} {
		if _, err := Load(file(t, text), nil, map[string]string{"data_dir": "d"}, true); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLaterSettingsWin(t *testing.T) {
	path := file(t, "data_dir: file\nlog_level: debug\nid: file\ntls: { ca: file }\npeers: [file=h, b=h2, c=h3]\n")
	environ := []string{"SLUICE_QUOTAD_ID=env", "SLUICE_QUOTAD_TLS_CA=env", "SLUICE_QUOTAD_PEERS=env=h,flag=h2,c=r:1/s:2/a:3"}
	flags := map[string]string{"id": "flag", "tls.cert": "c", "tls.key": "k"}
	c, err := Load(path, environ, flags, false)
	must(t, err)
	if c.ID != "flag" || c.TLS.CA != "env" || c.DataDir != "file" || c.LogLevel != zapcore.DebugLevel || len(c.Peers) != 3 {
		t.Errorf("got %+v", c)
	}
	if p := c.Peers[1]; p.ID != "flag" || p.RaftAddress != "h2:7071" || p.ClientAddress != "h2:7070" || p.AdminAddress != "h2:7072" {
		t.Errorf("peer: %+v", p)
	}
	if p := c.Peers[2]; p.RaftAddress != "r:1" || p.ClientAddress != "s:2" || p.AdminAddress != "a:3" {
		t.Errorf("peer: %+v", p)
	}
	if c.KeyFile != filepath.Join("file", "key") || c.Listen != ":7070" || c.RaftListen != ":7071" || c.AdminListen != ":7072" {
		t.Errorf("defaults: %+v", c)
	}
	if c, err := Load(path, append(environ, "SLUICE_QUOTAD_PEERS="), flags, false); err != nil || len(c.Peers) != 0 {
		t.Errorf("peers taken away: %v, %v", c.Peers, err)
	}
}

func TestEverySettingHasItsOwnNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Settings() {
		for _, name := range []string{s.Env(), "--" + s.Flag()} {
			if seen[name] {
				t.Errorf("%s stands for two settings", name)
			}
			seen[name] = true
		}
	}
	for _, want := range []string{"SLUICE_QUOTAD_TLS_CA", "--tls-ca", "SLUICE_QUOTAD_DATA_DIR", "--data-dir"} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
}

func TestValidate(t *testing.T) {
	peers := func(ids ...string) (out []Peer) {
		for _, id := range ids {
			out = append(out, Peer{ID: id, RaftAddress: "127.0.0.1:1", ClientAddress: "127.0.0.1:2", AdminAddress: "127.0.0.1:3"})
		}
		return out
	}
	for _, tc := range []struct {
		name string
		edit func(*Config)
		want string // empty: valid
	}{
		{"defaults", func(*Config) {}, ""},
		{"IPv6 loopback", func(c *Config) { c.Listen = "[::1]:1" }, ""},
		{"localhost", func(c *Config) { c.AdminListen = "localhost:1" }, ""},
		{"three peers", func(c *Config) { c.Peers = peers("quotad-0", "b", "c") }, ""},
		{"all addresses", func(c *Config) { c.Listen = ":7070" }, "listen: :7070 is not on loopback, which --dev demands"},
		{"other raft host", func(c *Config) { c.RaftListen = "10.0.0.1:1" }, "raft_listen: 10.0.0.1:1 is not on loopback"},
		{"other admin host", func(c *Config) { c.AdminListen = "example.org:1" }, "admin_listen: example.org:1 is not on loopback"},
		{"no port", func(c *Config) { c.Listen = "127.0.0.1:" }, "listen: \"127.0.0.1:\" is not host:port"},
		{"peer elsewhere", func(c *Config) {
			c.Peers = peers("quotad-0")
			c.Peers[0].ClientAddress = "10.0.0.1:1"
		}, "peers: quotad-0: 10.0.0.1:1 is not on loopback"},
		{"peer without port", func(c *Config) {
			c.Peers = peers("quotad-0")
			c.Peers[0].RaftAddress = "127.0.0.1"
		}, `peers: quotad-0: "127.0.0.1" is not host:port`},
		{"peer with a port too high", func(c *Config) {
			c.Peers = peers("quotad-0")
			c.Peers[0].AdminAddress = "127.0.0.1:70000"
		}, `peers: quotad-0: "127.0.0.1:70000": the port is not a number from 1 to 65535`},
		{"peer with a port that is none", func(c *Config) {
			c.Peers = peers("quotad-0")
			c.Peers[0].ClientAddress = "127.0.0.1:raft"
		}, `peers: quotad-0: "127.0.0.1:raft": the port is not a number`},
		{"peer nowhere", func(c *Config) {
			c.Peers = peers("quotad-0")
			c.Peers[0].RaftAddress = ":1"
		}, `peers: quotad-0: ":1" is not host:port`},
		{"peer that is no name", func(c *Config) { c.Peers = peers("quotad-0", "b/../c", "d") }, `peers: "b/../c" is not a name (1 to 128 of a-z A-Z 0-9 . _ -)`},
		{"id that is no name", func(c *Config) { c.ID = "my node" }, `id: "my node" is not a name`},
		{"port too high", func(c *Config) { c.Listen = "127.0.0.1:70000" }, `listen: "127.0.0.1:70000": the port is not a number from 0 to 65535`},
		{"peer twice", func(c *Config) { c.Peers = peers("quotad-0", "b", "b") }, "peers: b appears twice"},
		{"not a peer", func(c *Config) { c.Peers = peers("a") }, "id: quotad-0 is not among the peers"},
		{"even", func(c *Config) { c.Peers = peers("quotad-0", "b") }, "peers: 2 nodes: an odd number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{DataDir: "d", Dev: true}.WithDefaults()
			tc.edit(&c)
			err := c.Validate()
			if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
