package sidecar

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

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
	path := filepath.Join(t.TempDir(), "sidecar.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// faults wants each of these lines in the error, whole.
func faults(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no fault")
	}
	lines := map[string]bool{}
	for line := range strings.Lines(err.Error()) {
		lines[strings.TrimSpace(line)] = true
	}
	for _, w := range want {
		if !lines[w] {
			t.Errorf("missing: %s", w)
		}
	}
	if len(lines) != len(want) || t.Failed() {
		t.Errorf("%d faults, want %d:\n%v", len(lines), len(want), err)
	}
}

// TestEveryFaultAtOnce: whatever is wrong is reported together, each with the place where it stands.
func TestEveryFaultAtOnce(t *testing.T) {
	path := file(t, `listen: nowhere
ops_lisen: 127.0.0.1:1
log_level: loud
quotad: [a:1, b]
tls:
  ca: a.pem
  crt: b.pem
drain_timeout: -3s
listen: 127.0.0.1:2
data_dir: relative
default_key_file: { path: k }
identity: [{ a: b }]
`)
	_, err := Load(path, []string{"SLUICE_DRAIN_TIMEOUT=soon", "SLUICE_OPS_LISTEN=4001", "OTHER=1", "odd"},
		map[string]string{"log_level": "quiet"}, false)
	faults(t, err, []string{
		path + `:1: listen: "nowhere" is not host:port`,
		path + `:2: unknown key "ops_lisen"`,
		path + `:3: log_level: unrecognized level: "loud"`,
		path + `:4: quotad: "b" is not host:port`,
		path + `:7: unknown key "tls.crt"`,
		path + `:9: listen: already set on line 1`,
		path + `:10: data_dir: must be an absolute path`,
		path + `:11: unknown key "default_key_file.path"`,
		path + `:12: identity: must be a plain value`,
		`SLUICE_DRAIN_TIMEOUT: "soon" is not a duration such as 10m`,
		`SLUICE_OPS_LISTEN: "4001" is not host:port`,
		`--log-level: unrecognized level: "quiet"`,
		`SLUICE_DRAIN_TIMEOUT: must not be negative`, // the file's value stayed
		`tls: tls.ca, tls.cert and tls.key are required outside --dev`,
	})
}

// TestFaultOfEachKey: each key that has rules reports them under its own name, with file and line.
func TestFaultOfEachKey(t *testing.T) {
	const rest = "data_dir: /d\nquotad: [127.0.0.1:7070]\n"
	for line, want := range map[string]string{
		"listen: x":                 `listen: "x" is not host:port`,
		"listen: 0.0.0.0:4000":      `listen: 0.0.0.0:4000 is not on loopback, which --dev demands`,
		"ops_listen: 10.0.0.1:4001": `ops_listen: 10.0.0.1:4001 is not on loopback, which --dev demands`,
		"ops_listen: 'host:'":       `ops_listen: "host:" is not host:port`,
		"drain_timeout: 10":         `drain_timeout: "10" is not a duration such as 10m`,
		"drain_timeout: -1s":        `drain_timeout: must not be negative`,
		"events_keep_mib: all":      `events_keep_mib: "all" is not a whole number`,
		"events_keep_mib: -1":       `events_keep_mib: must not be negative`,
		"log_level: all":            `log_level: unrecognized level: "all"`,
		"unix_socket: { a: b }":     `unknown key "unix_socket.a"`,
		"identity: [{}]":            `identity: must be a plain value`,
		"quoted: a":                 `unknown key "quoted"`,
	} {
		path := file(t, rest+line+"\n")
		_, err := Load(path, nil, nil, true)
		faults(t, err, []string{path + ":3: " + want})
	}
	for text, want := range map[string]string{
		"quotad: [127.0.0.1:1]": "data_dir: required: the journal and the last good configuration live there",
		"data_dir: d":           "quotad: required: host:port of at least one node's sidecar plane",
	} {
		_, err := Load(file(t, text), nil, nil, true)
		faults(t, err, []string{want})
	}
	path := file(t, "data_dir: d\nquotad: [127.0.0.1:1, 10.0.0.1:2]\n")
	_, err := Load(path, nil, nil, true)
	faults(t, err, []string{path + ":2: quotad: 10.0.0.1:2 is not on loopback, which --dev demands"})
}

func TestFileThatIsNone(t *testing.T) {
	need := map[string]string{"data_dir": "d", "quotad": "localhost:1"}
	for name, c := range map[string]struct{ text, want string }{
		"syntax":        {"identity: a\nlisten: [\n", ":2: "},
		"list":          {"- a\n", ":1: the file must be a mapping"},
		"plain value":   {"\nhello\n", ":2: the file must be a mapping"},
		"two documents": {"identity: a\n---\nidentity: b\n", ": the file must be one YAML document"},
		"alias":         {"identity: &a x\nunix_socket: *a\n", ":2: unix_socket: must be a plain value"},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, c.text)
			if _, err := Load(path, nil, need, true); err == nil || !strings.HasPrefix(err.Error(), path+c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := Load("no/such/file", nil, need, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, text := range []string{"", "# nothing set\n"} {
		if _, err := Load(file(t, text), nil, need, true); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// plain is what of a configuration can be compared: not the functions of its host.
func plain(c Config) Config {
	c.Host = Host{}
	return c
}

// TestLaterSettingsWin: the environment is above the file, flags are above both, for each key on its own.
func TestLaterSettingsWin(t *testing.T) {
	path := file(t, "identity: file\nunix_socket: file\ndata_dir: /file\nquotad: [f:1, g:2]\ntls: { ca: file, cert: c, key: k }\n")
	c, err := Load(path, []string{"SLUICE_IDENTITY=env", "SLUICE_UNIX_SOCKET=env", "SLUICE_QUOTAD= h:3 ,, i:4", "SLUICE_TLS_CA=env"},
		map[string]string{"identity": "flag", "log_level": "error", "drain_timeout": "3s"}, false)
	must(t, err)
	host := c.WithDefaults()
	want := Config{
		Listen: "127.0.0.1:4000", UnixSocket: "env", OpsListen: "127.0.0.1:4001", Quotad: []string{"h:3", "i:4"}, DataDir: "/file",
		Identity: "flag", LogLevel: zapcore.ErrorLevel, EventsKeepMiB: 1024, DrainTimeout: 3 * time.Second, TLS: TLSFiles{"env", "c", "k"},
	}
	if !reflect.DeepEqual(plain(c), want) || !reflect.DeepEqual(plain(host), want) {
		t.Errorf("got %+v", c)
	}
	c, err = Load("", []string{"SLUICE_DATA_DIR=d", "SLUICE_QUOTAD=[::1]:7070"}, nil, true)
	must(t, err)
	name, _ := os.Hostname()
	if c.Identity != name || c.DrainTimeout != 10*time.Minute || !c.Dev {
		t.Errorf("defaults %+v", c)
	}
}

// TestEverySettingWorksEverywhere: each key can be set in the file, by its variable and by its flag, to the same end.
func TestEverySettingWorksEverywhere(t *testing.T) {
	values := map[string]string{"log_level": "warn", "drain_timeout": "7s", "events_keep_mib": "9", "quotad": "127.0.0.1:9", "listen": "127.0.0.1:8", "ops_listen": "127.0.0.1:7"}
	seen := map[string]bool{}
	for _, s := range Settings() {
		for _, name := range []string{s.Key, s.Env(), s.Flag()} {
			if seen[name] && name != s.Key {
				t.Errorf("%s names two settings", name)
			}
			seen[name] = true
		}
		value := values[s.Key]
		if value == "" {
			value = "x"
		}
		text := s.Key + ": " + value + "\n"
		if outer, inner, nested := strings.Cut(s.Key, "."); nested {
			text = outer + ": { " + inner + ": " + value + " }\n"
		}
		inFile, _ := Load(file(t, text), nil, nil, true)
		byEnv, _ := Load("", []string{s.Env() + "=" + value}, nil, true)
		byFlag, _ := Load("", nil, map[string]string{s.Key: value}, true)
		none, _ := Load("", nil, nil, true)
		if !reflect.DeepEqual(plain(inFile), plain(byEnv)) || !reflect.DeepEqual(plain(byEnv), plain(byFlag)) ||
			reflect.DeepEqual(plain(byFlag), plain(none)) {
			t.Errorf("%s: %+v, %+v, %+v", s.Key, inFile, byEnv, byFlag)
		}
	}
}
