package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Control is what bare Raft does on this machine with quotad's log store, timers, batching and number of nodes, and a
// state machine that does nothing: operations of 64 bytes, each of a client that waits for it, up to 512 in an entry or
// what comes within a millisecond, four entries in flight. Its nodes are in one process and talk over loopback TCP.
type Control struct {
	Nodes        int     `json:"nodes"`
	OpsPerSecond float64 `json:"ops_per_second"`
	OpsPerEntry  float64 `json:"ops_per_entry"`
	CPU          CPU     `json:"cpu"`             // all of it is the driver's
	Latency      Latency `json:"latency"`         // of an operation
	Ratio        float64 `json:"product_to_this"` // the product's closed loop / this
}

// nothing is a state machine.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                  { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error)  { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error        { return r.Close() }
func (nothing) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (nothing) Release()                             {}

// bare is one node of the control.
type bare struct {
	raft  *raft.Raft
	store *raftboltdb.BoltStore
	trans *raft.NetworkTransport
}

func (b *bare) close() error {
	if b == nil {
		return nil
	}
	var errs []error
	if b.raft != nil {
		errs = append(errs, b.raft.Shutdown().Error())
	}
	if b.trans != nil {
		errs = append(errs, b.trans.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	return errors.Join(errs...)
}

// openBare opens a node as quotad/internal/store and replica do.
func openBare(dir, id string) (b *bare, err error) {
	b = &bare{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.store, err = raftboltdb.New(raftboltdb.Options{
		Path:        filepath.Join(dir, id+".db"),
		BoltOptions: &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	}); err != nil {
		return b, err
	}
	if b.trans, err = raft.NewTCPTransportWithLogger("127.0.0.1:0", nil, 3, 5*time.Second, hclog.NewNullLogger()); err != nil {
		return b, err
	}
	cache, err := raft.NewLogCache(512, b.store)
	if err != nil {
		return b, err
	}
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.HeartbeatTimeout, c.ElectionTimeout = 350*time.Millisecond, 350*time.Millisecond
	c.LeaderLeaseTimeout = 200 * time.Millisecond
	c.SnapshotThreshold, c.SnapshotInterval, c.TrailingLogs = 16384, 30*time.Second, 20000
	c.NoLegacyTelemetry = true
	c.Logger = hclog.NewNullLogger()
	b.raft, err = raft.NewRaft(c, nothing{}, cache, b.store, raft.NewDiscardSnapshotStore(), b.trans)
	return b, err
}

// startBare starts so many nodes as one cluster and returns its leader.
func startBare(ctx context.Context, dir string, nodes int) (all []*bare, lead *raft.Raft, err error) {
	var servers raft.Configuration
	for i := range nodes {
		id := fmt.Sprintf("bare-%d", i)
		b, err := openBare(dir, id)
		if err != nil {
			return all, nil, err
		}
		all = append(all, b)
		servers.Servers = append(servers.Servers, raft.Server{ID: raft.ServerID(id), Address: b.trans.LocalAddr()})
	}
	if err := all[0].raft.BootstrapCluster(servers).Error(); err != nil {
		return all, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		for _, b := range all {
			if b.raft.State() == raft.Leader {
				return all, b.raft, nil
			}
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return all, nil, errors.New("control: no node leads")
		}
	}
}

// runControl measures for a while.
func runControl(ctx context.Context, dir string, nodes int, length time.Duration) (out Control, err error) {
	out = Control{Nodes: nodes}
	all, lead, err := startBare(ctx, dir, nodes)
	defer func() {
		for _, b := range all {
			err = errors.Join(err, b.close())
		}
	}()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	queue := make(chan chan error, controlClients)
	slots := make(chan struct{}, controlFlying)
	var entries atomic.Int64
	var fault atomic.Pointer[error]
	var h histogram
	var clients, flights sync.WaitGroup
	m := startMeter(nil)
	for range controlClients {
		clients.Go(func() {
			done := make(chan error, 1)
			for ctx.Err() == nil {
				at := time.Now()
				queue <- done
				if err := <-done; err != nil {
					fault.CompareAndSwap(nil, &err)
					return
				}
				h.add(time.Since(at))
			}
		})
	}
	go func() { clients.Wait(); close(queue) }()
	for first := range queue {
		batch := gather(queue, first, len(slots) > 0)
		slots <- struct{}{}
		entries.Add(1)
		future := lead.Apply(make([]byte, len(batch)*controlOpBytes), time.Second)
		flights.Go(func() {
			err := future.Error()
			<-slots
			for _, done := range batch {
				done <- err
			}
		})
	}
	flights.Wait()
	took := time.Since(m.began).Seconds()
	out.CPU, out.Latency = m.stop(), h.latency()
	out.OpsPerSecond = float64(out.Latency.Count) / took
	out.OpsPerEntry = float64(out.Latency.Count) / float64(max(1, entries.Load()))
	if f := fault.Load(); f != nil {
		return out, *f
	}
	return out, nil
}

// gather makes a batch: what is there, and while others are in flight what comes within a millisecond.
func gather(queue <-chan chan error, first chan error, busy bool) []chan error {
	batch := []chan error{first}
	var late <-chan time.Time
	if busy {
		late = time.After(time.Millisecond)
	}
	for len(batch) < controlEntryOps {
		select {
		case next, more := <-queue:
			if !more {
				return batch
			}
			batch = append(batch, next)
			continue
		default:
		}
		if late == nil {
			return batch
		}
		select {
		case next, more := <-queue:
			if !more {
				return batch
			}
			batch = append(batch, next)
		case <-late:
			return batch
		}
	}
	return batch
}
