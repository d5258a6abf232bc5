package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Control is what bare Raft does on this machine with quotad's log store, timers, entry sizes, batching and number of
// nodes, and a state machine that does nothing: the ceiling for anything replicated this way. Its nodes are in one
// process and talk over loopback TCP.
type Control struct {
	Nodes        int     `json:"nodes"`
	OpsPerEntry  float64 `json:"ops_per_entry"`   // as the product's run had
	BytesPerOp   float64 `json:"bytes_per_op"`    // the same
	EntriesPerS  float64 `json:"entries_per_s"`   //
	OpsPerSecond float64 `json:"ops_per_second"`  // entries × operations of an entry
	CPU          CPU     `json:"cpu"`             // all of it is the driver's
	Entry        Latency `json:"entry"`           // from Apply to its future
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

// runControl keeps controlFlying entries of so many bytes in flight for a while.
func runControl(ctx context.Context, dir string, nodes int, opsPerEntry, bytesPerOp float64, length time.Duration) (out Control, err error) {
	out = Control{Nodes: nodes, OpsPerEntry: opsPerEntry, BytesPerOp: bytesPerOp}
	var all []*bare
	var servers raft.Configuration
	defer func() {
		for _, b := range all {
			err = errors.Join(err, b.close())
		}
	}()
	for i := range nodes {
		b, err := openBare(dir, fmt.Sprintf("bare-%d", i))
		if err != nil {
			return out, err
		}
		all = append(all, b)
		servers.Servers = append(servers.Servers, raft.Server{
			ID: raft.ServerID(fmt.Sprintf("bare-%d", i)), Address: b.trans.LocalAddr(),
		})
	}
	if err := all[0].raft.BootstrapCluster(servers).Error(); err != nil {
		return out, err
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var lead *raft.Raft
	for lead == nil {
		for _, b := range all {
			if b.raft.State() == raft.Leader {
				lead = b.raft
			}
		}
		if err := sleep(limited, 10*time.Millisecond); err != nil {
			return out, errors.New("control: no node leads")
		}
	}

	var h histogram
	var load sync.WaitGroup
	var mu sync.Mutex
	var fault error
	m := startMeter(nil)
	end := m.began.Add(length)
	for range controlFlying {
		load.Go(func() {
			data := make([]byte, int(opsPerEntry*bytesPerOp))
			for time.Now().Before(end) && ctx.Err() == nil {
				at := time.Now()
				if err := lead.Apply(data, time.Second).Error(); err != nil {
					mu.Lock()
					fault = err
					mu.Unlock()
					return
				}
				h.add(time.Since(at))
			}
		})
	}
	load.Wait()
	took := time.Since(m.began).Seconds()
	out.CPU, out.Entry = m.stop(), h.latency()
	out.EntriesPerS = float64(out.Entry.Count) / took
	out.OpsPerSecond = out.EntriesPerS * opsPerEntry
	return out, errors.Join(fault, ctx.Err())
}
