package replica

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	raftlogv1 "github.com/sluice-gateway/sluice/proto/gen/raftlog/v1"
	"github.com/sluice-gateway/sluice/quotad/internal/store"
	"github.com/sluice-gateway/sluice/quotad/ledger"
)

// generated decodes an entry with the generated code.
func generated(data []byte) (*entry, error) {
	e := &raftlogv1.Entry{}
	if err := proto.Unmarshal(data, e); err != nil {
		return nil, err
	}
	out := &entry{stampMS: e.GetStampMs()}
	for _, o := range e.GetOps() {
		if r := o.GetRenew(); r != nil {
			out.ops = append(out.ops, op{renew: renewOf(r)})
		} else {
			out.ops = append(out.ops, op{other: o})
		}
	}
	return out, nil
}

func renewOf(r *raftlogv1.Renew) *ledger.Renew {
	return &ledger.Renew{
		Identity: r.GetIdentity(), Incarnation: r.GetIncarnation(), Seq: r.GetSeq(),
		Counters: each(r.GetCounters(), counterOf),
		Asks: each(r.GetAsks(), func(a *raftlogv1.Ask) ledger.Ask {
			return ledger.Ask{ID: a.GetId(), Needs: each(a.GetNeeds(), func(n *raftlogv1.Need) ledger.Need {
				return ledger.Need{Resource: n.GetResource(), Period: n.GetPeriod(), Amount: n.GetAmount(), Name: n.GetName()}
			})}
		}),
		ShareVersion: r.GetShareVersion(), Leaving: r.GetLeaving(), Epoch: r.GetEpoch(),
	}
}

// plain makes empty lists nil.
func plain(r *ledger.Renew) *ledger.Renew {
	out := *r
	out.Counters, out.Asks = append([]ledger.Counter(nil), r.Counters...), append([]ledger.Ask(nil), r.Asks...)
	for i := range out.Asks {
		out.Asks[i].Needs = append([]ledger.Need(nil), out.Asks[i].Needs...)
	}
	return &out
}

func sameEntry(a, b *entry) bool {
	if a.stampMS != b.stampMS || len(a.ops) != len(b.ops) {
		return false
	}
	for i := range a.ops {
		x, y := a.ops[i], b.ops[i]
		if (x.renew == nil) != (y.renew == nil) || x.renew == nil && !proto.Equal(x.other, y.other) ||
			x.renew != nil && !reflect.DeepEqual(plain(x.renew), plain(y.renew)) {
			return false
		}
	}
	return true
}

// What decodes is what the generated code makes of it, and what does not is refused by it too, or is of a newer version.
func FuzzRenewCodec(f *testing.F) {
	left := int64(-1)
	for _, e := range []*raftlogv1.Entry{
		{}, {StampMs: 5, Ops: []*raftlogv1.Op{sealOp("k")}}, {Ops: []*raftlogv1.Op{{}}}, {StampMs: -1, Format: 3},
		{StampMs: 7, Ops: []*raftlogv1.Op{sealOp("k"), {Op: &raftlogv1.Op_Renew{Renew: &raftlogv1.Renew{
			Identity: "gw", Incarnation: 1, Seq: 1 << 63, Leaving: true, Epoch: 5, ShareVersion: 300,
			Counters: []*raftlogv1.Counter{{}, {Resource: 1 << 40, Period: 202611, Spent: -5, Returned: 1, Held: 2, Demand: 3, Close: true, Granted: 4, ProviderLeft: &left}},
			Asks:     []*raftlogv1.Ask{{}, {Id: 9, Needs: []*raftlogv1.Need{{}, {Resource: 3, Period: 1, Amount: 1 << 50, Name: "batch/red"}}}},
		}}}, {Op: &raftlogv1.Op_Tick{Tick: &raftlogv1.Tick{}}}}},
	} {
		b, err := proto.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, 0x12, 0x02, 0x0a, 0x00)) // an empty renew more
	}
	f.Add([]byte("\x12\x05\x0a\x03\x0a\x01\xff"))     // an identity that is not UTF-8
	f.Add([]byte("\x12\x06\x0a\x00\x0a\x02\x10\x01")) // a renew twice in one operation
	f.Fuzz(func(t *testing.T, data []byte) {
		want, failed := generated(data)
		got, err := (&decoder{knows: levelKnown}).decode(data)
		switch {
		case err == nil && failed != nil:
			t.Fatalf("decoded what the generated code refuses: %v", failed)
		case err != nil && failed == nil && !errors.Is(err, store.ErrNewerFormat):
			t.Fatalf("refused: %v", err)
		case err == nil && !sameEntry(got, want):
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// What is written is what the generated code reads, and a decoder that is used again gives back none of what it had.
func TestRenewsAreWrittenAsTheContractSays(t *testing.T) {
	d := &decoder{knows: levelKnown}
	rapid.Check(t, func(rt *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), rapid.Int64Range(0, 300))
		unsigned := rapid.Map(number, func(n int64) uint64 { return uint64(n) })
		period := rapid.Map(number, func(n int64) uint32 { return uint32(n) })
		name := rapid.OneOf(rapid.Just(""), rapid.String())
		counter := rapid.Custom(func(rt *rapid.T) ledger.Counter {
			c := ledger.Counter{
				Resource: unsigned.Draw(rt, "resource"), Period: period.Draw(rt, "period"), Spent: number.Draw(rt, "spent"),
				Returned: number.Draw(rt, "returned"), Held: number.Draw(rt, "held"), Demand: number.Draw(rt, "demand"),
				Close: rapid.Bool().Draw(rt, "close"), Granted: number.Draw(rt, "granted"),
			}
			if rapid.Bool().Draw(rt, "told") {
				left := number.Draw(rt, "left")
				c.ProviderLeft = &left
			}
			return c
		})
		need := rapid.Custom(func(rt *rapid.T) ledger.Need {
			return ledger.Need{
				Resource: unsigned.Draw(rt, "resource"), Period: period.Draw(rt, "period"), Amount: number.Draw(rt, "amount"),
				Name: name.Draw(rt, "name"),
			}
		})
		ask := rapid.Custom(func(rt *rapid.T) ledger.Ask {
			return ledger.Ask{ID: unsigned.Draw(rt, "id"), Needs: rapid.SliceOfN(need, 0, 5).Draw(rt, "needs")}
		})
		want := &entry{stampMS: number.Draw(rt, "stamp")}
		data := appendStamp(nil, want.stampMS)
		for range rapid.IntRange(0, 4).Draw(rt, "ops") {
			var o op
			var b []byte
			var err error
			if rapid.Bool().Draw(rt, "other") {
				o.other = sealOp("k")
				b, err = encodeOps([]*raftlogv1.Op{o.other})
			} else {
				o.renew = &ledger.Renew{
					Identity: name.Draw(rt, "identity"), Incarnation: unsigned.Draw(rt, "incarnation"), Seq: unsigned.Draw(rt, "seq"),
					Counters: rapid.SliceOfN(counter, 0, 5).Draw(rt, "counters"), Asks: rapid.SliceOfN(ask, 0, 5).Draw(rt, "asks"),
					ShareVersion: unsigned.Draw(rt, "shares"), Leaving: rapid.Bool().Draw(rt, "leaving"), Epoch: unsigned.Draw(rt, "epoch"),
				}
				b, err = encodeRenew(o.renew)
			}
			if err != nil {
				rt.Fatal(err)
			}
			want.ops = append(want.ops, o)
			data = append(data, b...)
		}
		for name, decode := range map[string]func([]byte) (*entry, error){"own": d.decode, "generated": generated} {
			got, err := decode(data)
			if err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			if !sameEntry(got, want) {
				rt.Fatalf("%s: got %+v, want %+v", name, got, want)
			}
		}
	})
	for _, r := range []ledger.Renew{{Identity: "\xff"}, {Asks: []ledger.Ask{{Needs: []ledger.Need{{Name: "\xff"}}}}}} {
		if _, err := encodeRenew(&r); !errors.Is(err, errUTF8) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
