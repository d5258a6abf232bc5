package api

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	adminv1 "github.com/sluice-gateway/sluice/proto/gen/admin/v1"
)

// TestRefusalsNameTheField: each is refused before anything is proposed, and says which field it was.
func TestRefusalsNameTheField(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	add := func(id, raft, sidecar, admin string) *connect.Error {
		return refusal(p, client.AddMember, &adminv1.AddMemberRequest{Id: id, RaftAddress: raft, SidecarAddress: sidecar, AdminAddress: admin})
	}
	credit := func(team string, nano int64, reason, id string) *connect.Error {
		return refusal(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: team, AmountNano: nano, Reason: reason, Id: id})
	}
	const bad, gone = connect.CodeInvalidArgument, connect.CodeNotFound
	call(p, client.CreditBudget, &adminv1.CreditBudgetRequest{Team: "red", AmountNano: 1 << 59, Reason: "r"})
	for _, tc := range []struct {
		got  *connect.Error
		code connect.Code
		want string
	}{
		{add("", "h:1", "h:2", "h:3"), bad, `id: "" is not a name (1 to 128 of a-z A-Z 0-9 . _ -)`},
		{add("a\nb", "h:1", "h:2", "h:3"), bad, `id: "a\nb" is not a name`},
		{add("a/../b", "h:1", "h:2", "h:3"), bad, `id: "a/../b" is not a name`},
		{add("ä", "h:1", "h:2", "h:3"), bad, `id: "ä" is not a name`},
		{add(strings.Repeat("a", 129), "h:1", "h:2", "h:3"), bad, `id: "aaa`},
		{add("n", "h", "h:2", "h:3"), bad, `raft_address: "h" is not host:port`},
		{add("n", "h:1", ":2", "h:3"), bad, `sidecar_address: ":2" is not host:port`},
		{add("n", "h:1", "h:2", "h:65536"), bad, `admin_address: "h:65536": the port is not a number from 1 to 65535`},
		{add("n", "h:0", "h:2", "h:3"), bad, `raft_address: "h:0": the port`},
		{add("n", "h:-1", "h:2", "h:3"), bad, `raft_address: "h:-1": the port`},
		{add("n", "h:raft", "h:2", "h:3"), bad, `raft_address: "h:raft": the port`},
		{refusal(p, client.RemoveMember, &adminv1.RemoveMemberRequest{}), bad, "id: required"},
		{refusal(p, client.RemoveMember, &adminv1.RemoveMemberRequest{Id: "nobody"}), gone, `id: no node of the cluster is called "nobody"`},
		{credit("red", 1, strings.Repeat("a", reasonMax+1), ""), bad, "reason: at most 1024 bytes"},
		{credit("red", 1, "r", strings.Repeat("a", creditIDMax+1)), bad, "id: at most 128 bytes"},
		{credit("red", 1<<60, "r", ""), bad, "amount_nano: together with the credits of $576460752.303423488 that there are"},
		{credit("red", -1<<62, "r", ""), bad, "amount_nano: "},
		{credit("nobody", 1, "r", ""), gone, `no team "nobody"`},
		{credit("blue", 1, "r", ""), gone, `team "blue" has no budget`},
		{refusal(p, client.ListKeys, &adminv1.ListKeysRequest{Team: "nobody"}), gone, `no team "nobody"`},
		{refusal(p, client.QueryUsage, &adminv1.QueryUsageRequest{From: "2026-12-01", To: "2026-11-01"}), bad,
			"from: 2026-12-01T00:00:00Z is not before 2026-11-01T00:00:00Z"},
	} {
		if tc.got.Code() != tc.code || !strings.HasPrefix(tc.got.Message(), tc.want) {
			t.Errorf("got %v, want %v: %s", tc.got, tc.code, tc.want)
		}
	}
}

// TestRestoreRefusesAsItComes: a stream without an end that is no backup, or none any more, is refused at that point.
func TestRestoreRefusesAsItComes(t *testing.T) {
	p := newPlane(t)
	p.apply(orgYAML)
	var good []byte
	backup, err := p.client.Backup(ctxFor(t), connect.NewRequest(&adminv1.BackupRequest{}))
	must(t, err)
	for backup.Receive() {
		good = append(good, backup.Msg().GetData()...)
	}
	must(t, backup.Err())
	for _, tc := range []struct {
		name, want string
		begin      []byte
	}{
		{"nothing of one", "nothing was restored: it does not begin like one", nil},
		{"a whole one first", "nothing was restored: something follows its end", good},
		{"a part of one first", "nothing was restored: ", good[:len(good)/2]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stream := p.client.Restore(ctxFor(t))
			err := stream.Send(&adminv1.RestoreRequest{Data: tc.begin})
			for err == nil {
				err = stream.Send(&adminv1.RestoreRequest{Data: make([]byte, pieceBytes)})
			}
			_, err = stream.CloseAndReceive()
			var ce *connect.Error
			if !errors.As(err, &ce) || ce.Code() != connect.CodeInvalidArgument || !strings.HasPrefix(ce.Message(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
