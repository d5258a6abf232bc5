package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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

func TestFollowsTheLeaderOnce(t *testing.T) {
	leader := newKeyLister(t, "")
	follower := newKeyLister(t, leader.addr)
	misled := newKeyLister(t, follower.addr)
	for _, tc := range []struct {
		name                    string
		ask                     *keyLister
		fails                   bool
		misled, follower, leads int64 // calls
	}{
		{"the leader itself", leader, false, 0, 0, 1},
		{"a follower", follower, false, 0, 1, 1},
		{"one that names another follower", misled, true, 1, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, l := range []*keyLister{leader, follower, misled} {
				l.calls.Store(0)
			}
			out, err := listKeys("--addr", tc.ask.addr)
			if (err != nil) != tc.fails || strings.Contains(out, "from-the-leader") == tc.fails {
				t.Errorf("got %q, %v", out, err)
			}
			if m, f, l := misled.calls.Load(), follower.calls.Load(), leader.calls.Load(); m != tc.misled || f != tc.follower || l != tc.leads {
				t.Errorf("calls: misled %d, follower %d, leader %d", m, f, l)
			}
		})
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
