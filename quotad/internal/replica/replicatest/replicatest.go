// Package replicatest runs a node of one for the tests of what stands on it.
package replicatest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-gateway/sluice/quotad/internal/replica"
)

// Single runs a node "a" that is a cluster of its own, in a directory of the test, until the end of the test. It leads
// when Single returns.
func Single(t testing.TB, log *zap.Logger) *replica.Node {
	t.Helper()
	const quick = 50 * time.Millisecond
	node, err := replica.Open(replica.Config{
		ID: "a", DataDir: t.TempDir(), RaftListen: "127.0.0.1:0", Bootstrap: true, FlushEvery: time.Hour,
		HeartbeatTimeout: quick, ElectionTimeout: quick, LeaderLeaseTimeout: quick,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	for range node.Watch(ctx) {
		if _, _, _, self := node.Leader(); self {
			break
		}
	}
	return node
}
