package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
	"github.com/sluice-gateway/sluice/proto/gen/admin/v1/adminv1connect"
	"github.com/sluice-gateway/sluice/quotad/internal/api"
)

// keyLister is an admin plane that lists one key, or refuses and names a leader.
type keyLister struct {
	adminv1connect.UnimplementedAdminServiceHandler
	leader string // empty: it leads
	calls  atomic.Int64
	addr   string // host:port, as a node names it
}

func newKeyLister(t *testing.T, leader string) *keyLister {
	t.Helper()
	l := &keyLister{leader: leader}
	mux := http.NewServeMux()
	mux.Handle(adminv1connect.NewAdminServiceHandler(l))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	l.addr = srv.Listener.Addr().String()
	return l
}

func (l *keyLister) ListKeys(context.Context, *connect.Request[adminv1.ListKeysRequest]) (*connect.Response[adminv1.ListKeysResponse], error) {
	l.calls.Add(1)
	if l.leader != "" {
		e := connect.NewError(connect.CodeFailedPrecondition, errors.New("this node does not lead"))
		e.Meta().Set(api.LeaderHeader, l.leader)
		return nil, e
	}
	return connect.NewResponse(&adminv1.ListKeysResponse{Keys: []*adminv1.KeyInfo{{Id: "from-the-leader"}}}), nil
}

// listKeys runs `quotad key list`.
func listKeys(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"key", "list"}, args...))
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestFollowsTheLeader(t *testing.T) {
	leader := newKeyLister(t, "")
	follower := newKeyLister(t, leader.addr)
	behind := newKeyLister(t, follower.addr) // names one that has handed over since
	lost := newKeyLister(t, "")
	lost.leader = lost.addr // names itself
	gone := newKeyLister(t, "127.0.0.1:1")
	for _, tc := range []struct {
		name                          string
		ask                           *keyLister
		fails                         string
		behind, follower, leads, lost int64 // calls
	}{
		{"the leader itself", leader, "", 0, 0, 1, 0},
		{"a follower", follower, "", 0, 1, 1, 0},
		{"one that names another follower", behind, "", 1, 1, 1, 0},
		{"one that names itself", lost, "this node does not lead", 0, 0, 0, 1 + leadersMax},
		{"one that names a dead one", gone, "no quotad answers at 127.0.0.1:1, where " + gone.addr + " says the leader is: ", 0, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, l := range []*keyLister{leader, follower, behind, lost} {
				l.calls.Store(0)
			}
			out, err := listKeys("--addr", tc.ask.addr)
			if tc.fails == "" && (err != nil || !strings.Contains(out, "from-the-leader")) ||
				tc.fails != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.fails)) {
				t.Errorf("got %q, %v", out, err)
			}
			got := [...]int64{behind.calls.Load(), follower.calls.Load(), leader.calls.Load(), lost.calls.Load()}
			if got != [...]int64{tc.behind, tc.follower, tc.leads, tc.lost} {
				t.Errorf("calls: %v", got)
			}
		})
	}
}

// electing is a cluster that has no leader at first.
type electing struct {
	adminv1connect.UnimplementedAdminServiceHandler
	calls atomic.Int64
}

func (e *electing) ListKeys(context.Context, *connect.Request[adminv1.ListKeysRequest]) (*connect.Response[adminv1.ListKeysResponse], error) {
	if e.calls.Add(1) == 1 {
		none := connect.NewError(connect.CodeUnavailable, errors.New("no leader at present: nothing was done, try again"))
		none.Meta().Set(api.RetryHeader, "1")
		return nil, none
	}
	return connect.NewResponse(&adminv1.ListKeysResponse{Keys: []*adminv1.KeyInfo{{Id: "elected"}}}), nil
}

func TestVerbsWaitForALeader(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(adminv1connect.NewAdminServiceHandler(&electing{}))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	if out, err := listKeys("--addr", srv.Listener.Addr().String()); err != nil || !strings.Contains(out, "elected") {
		t.Errorf("%q, %v", out, err)
	}
}

// handingOver is a leader that is to be removed: the next one is not ready at first.
type handingOver struct {
	adminv1connect.UnimplementedAdminServiceHandler
	calls atomic.Int64
}

func (h *handingOver) RemoveMember(context.Context, *connect.Request[adminv1.RemoveMemberRequest]) (*connect.Response[adminv1.RemoveMemberResponse], error) {
	if h.calls.Add(1) == 1 {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no leader at present: nothing was done, try again"))
	}
	return connect.NewResponse(&adminv1.RemoveMemberResponse{Members: []*adminv1.Member{{Id: "left"}}}), nil
}

func TestRemovingTheLeaderWaitsForTheNext(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle(adminv1connect.NewAdminServiceHandler(&handingOver{}))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	o := &operator{t: t, addr: srv.Listener.Addr().String()}
	if out := o.run("member", "remove", "quotad-0"); !strings.Contains(out, "left") {
		t.Error(out)
	}
}

// TestConnectionBreaks: a leader that dies during a call may have done what was asked, and the error says so.
func TestConnectionBreaks(t *testing.T) {
	o := newOperator(t)
	file := filepath.Join(o.dir, "backup")
	o.run("backup", "-o", file)
	for name, end := range map[string]func(http.ResponseWriter, *http.Request){
		"before it reads": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"after it has read": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		},
		"while it answers": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		dying := httptest.NewServer(http.HandlerFunc(end))
		t.Cleanup(dying.Close)
		d := &operator{t: t, addr: dying.Listener.Addr().String()}
		for _, verb := range [][]string{{"restore", file}, {"budget", "credit", "red", "1", "--reason", "x"}, {"backup"}} {
			if _, err := d.try("", verb...); err == nil || err.Error() != "the connection broke to "+d.addr+" (--addr or SLUICE_ADMIN_ADDR): "+perhapsDone {
				t.Errorf("%s, %v: %v", name, verb, err)
			}
		}
	}
}

// TestSomethingElseAnswers: whatever is at the address, the error says which address, and that it is none of ours.
func TestSomethingElseAnswers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error": {"message": "unknown route", "code": "unknown_route"}}`)) // as a sidecar does
	}))
	t.Cleanup(other.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = mute.Close() })
	go func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("\x00\x00\x06\x04\x00\n")) // as a gRPC server might
				_, _ = io.Copy(io.Discard, c)                    // until the verb has had enough
				_ = c.Close()
			}()
		}
	}()
	for _, verb := range [][]string{{"status"}, {"backup"}} {
		for addr, want := range map[string]string{
			other.Listener.Addr().String():              "what is there is not quotad's admin API",
			mute.Addr().String():                        "what is there is not quotad's admin API",
			secure.Listener.Addr().String():             "speaks TLS: --tls-ca, --tls-cert and --tls-key are needed",
			"https://" + other.Listener.Addr().String(): "no quotad answers at https://",
		} {
			o := &operator{t: t, addr: addr}
			o.refused(addr, verb...)
			o.refused(want, verb...)
		}
	}
	for addr, want := range map[string]string{
		"":                    "--addr: must not be empty",
		"nowhere":             `--addr: "nowhere" is not host:port`,
		"ftp://127.0.0.1:1":   "is not host:port, nor an URL of http or https",
		"http://two words":    "is not host:port",
		"127.0.0.1:70000":     "the port is not a number from 1 to 65535",
		"http://127.0.0.1:0/": "the port is not a number from 1 to 65535",
	} {
		o := &operator{t: t, addr: addr}
		o.refused(want, "status")
	}
}

func TestAddress(t *testing.T) {
	l := newKeyLister(t, "")
	t.Setenv("SLUICE_ADMIN_ADDR", "127.0.0.1:1") // where nobody is
	for _, addr := range []string{l.addr, "http://" + l.addr} {
		if out, err := listKeys("--addr", addr); err != nil || !strings.Contains(out, "from-the-leader") {
			t.Errorf("--addr %s before the environment: %q, %v", addr, out, err)
		}
	}
	t.Setenv("SLUICE_ADMIN_ADDR", l.addr)
	if out, err := listKeys(); err != nil || !strings.Contains(out, "from-the-leader") {
		t.Errorf("from the environment: %q, %v", out, err)
	}
}
