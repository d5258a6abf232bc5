package policy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
	"github.com/sluice-gateway/sluice/sidecar/internal/exchange"
)

func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func millis(year int) int64 { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() }

// snapshot has two of everything.
func snapshot(version uint64) *quotav1.Snapshot {
	wait := &quotav1.Timeouts{ConnectMs: 1_000, FirstTokenMs: 2_000, IdleMs: 3_000, TotalMs: 4_000}
	return &quotav1.Snapshot{
		Version: version, ClusterId: "c1",
		Resources: []*quotav1.Resource{
			{Id: 1, Scope: "key", Owner: "k1", Kind: quotav1.Kind_KIND_REQUESTS, Limit: 60, Burst: 10},
			{Id: 2, Scope: "team", Owner: "t", Kind: quotav1.Kind_KIND_MONEY, Limit: 5, Hard: true, PeriodEndsMs: millis(2027)},
			{Id: 3, Scope: "run", Owner: "t", Kind: quotav1.Kind_KIND_CALLS, Limit: 5, Hard: true, Each: quotav1.Each_EACH_NAME},
			{Id: 4, Scope: "deployment", Owner: "d1", Kind: quotav1.Kind_KIND_TOTAL_TOKENS, Limit: 90, Burst: 90, Each: quotav1.Each_EACH_CLAIMANT},
		},
		Deployments: []*quotav1.Deployment{
			{Id: "d1", Provider: "openai", Price: "mid", BaseUrl: "http://a", Pools: []uint64{4}}, {Id: "d2", Provider: "anthropic", Price: "none", UnpricedAllow: true},
		},
		Aliases: []*quotav1.Alias{
			{Name: "b", Timeouts: wait, MaxAttempts: 2, DefaultMaxOutput: 9, ReserveCap: true, Needs: []string{"tools"}, AllowDropped: []string{"seed"},
				Targets: []*quotav1.Target{{Deployment: "d2", Priority: 2, Weight: 5}, {Deployment: "d1", Priority: 1, Weight: 3}}},
			{Name: "a", Timeouts: wait, Targets: []*quotav1.Target{{Deployment: "d1"}}},
		},
		Keys: []*quotav1.Key{
			{Id: "k1", Team: "t", App: "app", SecretSha256: hash("one"), Draws: []uint64{2, 1, 3}, Aliases: []string{"b"}, Priority: "batch", Account: "bu",
				MaxDataClass: "internal", DefaultDataClass: "public", RequestCapNano: 7, Outage: quotav1.Outage_OUTAGE_OPEN,
				ExpiresMs: millis(2030), PaysFailedAttempts: true},
			{Id: "k2", Team: "t", SecretSha256: hash("two"), Revoked: true},
		},
		Prices: []*quotav1.PriceVersion{
			{Id: "old", ValidFromMs: millis(2024), Prices: []*quotav1.Price{{Name: "mid", Input: 1, CacheRead: 2, CacheWrite_5M: 3, CacheWrite_1H: 4, Output: 5}}},
			{Id: "new", ValidFromMs: millis(2026), Prices: []*quotav1.Price{{Name: "mid", Input: 10}}},
		},
	}
}

func compiled(t *testing.T, s *quotav1.Snapshot) *Rules {
	t.Helper()
	r, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCompile(t *testing.T) {
	r := compiled(t, snapshot(7))
	k := r.Principal([sha256.Size]byte(hash("one")))
	if k == nil || k.Key != "k1" || k.Team != "t" || k.App != "app" || k.Account != "bu" || k.MaxDataClass != "internal" ||
		k.DefaultDataClass != "public" || k.RequestCap != 7 || k.Outage != exchange.OutageOpen || !k.PaysFailed || k.Revoked ||
		k.ExpiresAt.UnixMilli() != millis(2030) || len(k.Draws) != 3 || k.Priority != "batch" {
		t.Fatalf("key %+v", k)
	}
	money := k.Draws[0]
	if money != r.Resource(2) || money.Name() != "team_budget" || !money.Hard || money.PeriodEndsAt.UnixMilli() != millis(2027) ||
		k.Draws[1].Name() != "key_requests_per_minute" || !k.Draws[1].PeriodEndsAt.IsZero() {
		t.Errorf("draws %+v %+v", money, k.Draws[1])
	}
	if run := k.Draws[2]; run.Each != exchange.EachName || run.Name() != "run_calls" {
		t.Errorf("draws %+v", run)
	}
	other := r.Principal([sha256.Size]byte(hash("two")))
	if other == nil || !other.Revoked || other.Aliases != nil || other.Priority != "standard" || !other.ExpiresAt.IsZero() || r.Key("k2") != other || r.Key("k3") != nil {
		t.Errorf("key %+v", other)
	}
	if r.Principal([sha256.Size]byte(hash("three"))) != nil || r.Alias("c") != nil || r.Resource(5) != nil || r.Keys() != 2 || r.Version != 7 || r.ClusterID != "c1" {
		t.Error("something that is not there")
	}
	b := r.Alias("b")
	if b.MaxAttempts != 2 || b.DefaultMaxOutput != 9 || !b.ReserveCap || b.Needs[0] != "tools" || b.AllowDropped[0] != "seed" ||
		b.Timeouts != (exchange.Timeouts{Connect: time.Second, FirstToken: 2 * time.Second, Idle: 3 * time.Second, Total: 4 * time.Second}) {
		t.Errorf("alias %+v", b)
	}
	if b.Targets[0].Deployment.ID != "d1" || b.Targets[0].Weight != 3 || b.Targets[1].Deployment.ID != "d2" || !b.Targets[1].Deployment.Unpriced {
		t.Errorf("targets are not by priority: %+v", b.Targets)
	}
	if pools := b.Targets[0].Deployment.Pools; len(pools) != 1 || pools[0] != r.Resource(4) || pools[0].Each != exchange.EachClaimant {
		t.Errorf("pools %+v", pools)
	}
	if r.Alias("a").MaxAttempts != 1 {
		t.Error("an alias is tried at least once")
	}
	names := func(p *exchange.Principal) (out string) {
		for _, a := range r.AliasesOf(p) {
			out += a.Name
		}
		return out
	}
	if names(k) != "b" || names(other) != "ab" {
		t.Errorf("aliases %q and %q", names(k), names(other))
	}
}

// TestPriceIsCompiledWhole: what is stated arrives, and what is not costs what it is a kind of, as before there was a
// price for it.
func TestPriceIsCompiledWhole(t *testing.T) {
	snap := snapshot(7)
	nano := func(n int64) *int64 { return &n }
	snap.Prices[1].Prices = []*quotav1.Price{{
		Name: "mid", Input: 10, Output: 20, InputAudio: nano(0), OutputAudio: nano(80), OutputImage: nano(90), WebSearch: 5,
		Above: []*quotav1.PriceStep{
			{Tokens: 200, Price: &quotav1.Price{Input: 30, InputImage: nano(7)}}, {Tokens: 100, Price: &quotav1.Price{Input: 20, Output: 25}},
		},
		ServiceTiers:  []*quotav1.ServiceTier{{Name: "flex", TimesNano: 500_000_000}},
		Speeds:        []*quotav1.ServiceTier{{Name: "fast", TimesNano: 6_000_000_000}},
		InferenceGeos: []*quotav1.ServiceTier{{Name: "us", TimesNano: 1_100_000_000}},
	}}
	r := compiled(t, snap)
	got, _, _ := r.Price(time.UnixMilli(millis(2026)), r.Alias("b").Targets[0].Deployment)
	want := exchange.Price{
		Rates:     exchange.Rates{Input: 10, Output: 20, OutputAudio: 80, InputImage: 10, OutputImage: 90},
		WebSearch: 5,
		Above: []exchange.Step{
			{Tokens: 100, Rates: exchange.Rates{Input: 20, Output: 25, InputAudio: 20, OutputAudio: 25, InputImage: 20, OutputImage: 25}},
			{Tokens: 200, Rates: exchange.Rates{Input: 30, InputAudio: 30, InputImage: 7}},
		},
		Tiers:  []exchange.Times{{Name: "flex", Times: 500_000_000}},
		Speeds: []exchange.Times{{Name: "fast", Times: 6_000_000_000}}, Geos: []exchange.Times{{Name: "us", Times: 1_100_000_000}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestPriceInForce(t *testing.T) {
	plain := func(r exchange.Rates) exchange.Price { return exchange.Price{Rates: r} }
	r := compiled(t, snapshot(7))
	mid, none := r.Alias("b").Targets[0].Deployment, r.Alias("b").Targets[1].Deployment
	for name, c := range map[string]struct {
		at      int64
		version string
		price   exchange.Price
		ok      bool
	}{
		"before any":              {millis(2024) - 1, "", exchange.Price{}, false},
		"the first, at once":      {millis(2024), "old", plain(exchange.Rates{Input: 1, CacheRead: 2, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5, InputAudio: 1, OutputAudio: 5, InputImage: 1, OutputImage: 5}), true},
		"until the next":          {millis(2026) - 1, "old", plain(exchange.Rates{Input: 1, CacheRead: 2, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5, InputAudio: 1, OutputAudio: 5, InputImage: 1, OutputImage: 5}), true},
		"the next":                {millis(2026), "new", plain(exchange.Rates{Input: 10, InputAudio: 10, InputImage: 10}), true},
		"the newest for all time": {millis(2099), "new", plain(exchange.Rates{Input: 10, InputAudio: 10, InputImage: 10}), true},
	} {
		p, version, ok := r.Price(time.UnixMilli(c.at), mid)
		if !reflect.DeepEqual(p, c.price) || version != c.version || ok != c.ok {
			t.Errorf("%s: %+v %q %v", name, p, version, ok)
		}
	}
	if _, version, ok := r.Price(time.UnixMilli(millis(2026)), none); ok || version != "new" {
		t.Errorf("a price nobody stated: %q %v", version, ok)
	}
}

func TestCompileRefuses(t *testing.T) {
	for want, damage := range map[string]func(*quotav1.Snapshot){
		`alias "b": unknown deployment "d9"`: func(s *quotav1.Snapshot) { s.Aliases[0].Targets[0].Deployment = "d9" },
		`alias "b": a timeout is missing`:    func(s *quotav1.Snapshot) { s.Aliases[0].Timeouts = nil },
		`alias "a": a timeout is missing`: func(s *quotav1.Snapshot) {
			s.Aliases[1].Timeouts = &quotav1.Timeouts{ConnectMs: 1, FirstTokenMs: 1, IdleMs: 1}
		},
		`key "k1": secret hash of 3 bytes`:    func(s *quotav1.Snapshot) { s.Keys[0].SecretSha256 = []byte("abc") },
		`key "k1": unknown resource 9`:        func(s *quotav1.Snapshot) { s.Keys[0].Draws = []uint64{1, 9} },
		`key "k1": unknown priority "urgent"`: func(s *quotav1.Snapshot) { s.Keys[0].Priority = "urgent" },
		`key "k1": resource 4 is one for each name of a scope that requests do not state`: func(s *quotav1.Snapshot) {
			s.Keys[0].Draws = []uint64{4}
		},
		`deployment "d1": resource 9 is no pool`: func(s *quotav1.Snapshot) { s.Deployments[0].Pools = []uint64{9} },
		`deployment "d1": resource 1 is no pool`: func(s *quotav1.Snapshot) { s.Deployments[0].Pools = []uint64{1} },
	} {
		s := snapshot(7)
		damage(s)
		if r, err := Compile(s); err == nil || err.Error() != want || r != nil {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestLastGoodOnDisk: what was in force is in force again after a start without quotad.
func TestLastGoodOnDisk(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	if snap, err := s.Load(); snap != nil || err != nil || s.Rules() != nil {
		t.Fatalf("an empty directory: %v %v", snap, err)
	}
	for version := uint64(7); version <= 8; version++ {
		snap := snapshot(version)
		if err := s.Install(compiled(t, snap), snap); err != nil || s.Rules().Version != version {
			t.Fatalf("%v %d", err, s.Rules().Version)
		}
	}
	s.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{{Name: "main", Secret: []byte("sk-provider")}}})
	if got, ok := s.Secret("main"); !ok || string(got) != "sk-provider" {
		t.Errorf("secret %q %v", got, ok)
	}
	again := NewStore(dir)
	if _, ok := again.Secret("main"); ok {
		t.Error("a secret before any was sent")
	}
	snap, err := again.Load()
	if err != nil || !proto.Equal(snap, snapshot(8)) || again.Rules() == nil || again.Rules().Version != 8 || again.Rules().Key("k1") == nil {
		t.Errorf("%v %v", snap, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
	info, err := os.Stat(filepath.Join(dir, snapshotFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, snapshotFile))
	if err != nil || strings.Contains(string(b), "sk-provider") {
		t.Errorf("a provider's secret is on disk: %v", err)
	}
	s.SetSecrets(&quotav1.Credentials{})
	if _, ok := s.Secret("main"); ok {
		t.Error("a secret that was taken away is still there")
	}
}

// TestDamagedFile: a file that is not what was written is never in force, whatever it would decode to.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	snap := snapshot(7)
	if err := NewStore(dir).Install(compiled(t, snap), snap); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, snapshotFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	load := func(b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := NewStore(dir)
		snap, err := s.Load()
		if err == nil || snap != nil || s.Rules() != nil {
			t.Errorf("%d bytes are in force: %v %v", len(b), snap, err)
		}
		return err
	}
	for n := range good { // cut anywhere: a prefix of a message is often a message
		if err := load(good[:n]); !errors.Is(err, errDamaged) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 4
		if err := load(bad); !errors.Is(err, errDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	signed := func(b []byte) []byte { sum := sha256.Sum256(b); return append(sum[:], b...) }
	if err := load(signed([]byte("\xff"))); !errors.Is(err, errDamaged) {
		t.Errorf("no message: %v", err)
	}
	snap.Keys[0].Draws = []uint64{9}
	b, err := proto.Marshal(snap)
	if err != nil {
		t.Fatal(err)
	}
	if err := load(signed(b)); err == nil || !strings.Contains(err.Error(), `key "k1": unknown resource 9`) {
		t.Errorf("broken rules: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := NewStore(dir).Load(); err == nil || errors.Is(err, errDamaged) {
		t.Errorf("a directory: %v", err)
	}
}

// TestDiskFault: rules are in force even when they cannot be kept, and the fault is told until they are kept after
// all; what comes in between is the one that is kept. Without a directory none is kept, which is no fault.
func TestDiskFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "gone")
		s := NewStore(dir)
		go func() { _ = s.Run(t.Context()) }()
		for version := uint64(7); version <= 8; version++ {
			snap := snapshot(version)
			err := s.Install(compiled(t, snap), snap)
			if want := fmt.Sprintf("keep snapshot %d on disk", version); err == nil || !strings.Contains(err.Error(), want) ||
				!errors.Is(s.Fault(), err) || s.Rules().Version != version {
				t.Errorf("%v, then %v", err, s.Fault())
			}
			<-time.After(10 * keepAgain)
			if s.Fault() == nil {
				t.Error("no fault, and still no directory")
			}
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * keepAgain)
		if s.Fault() != nil {
			t.Errorf("a fault that is over: %v", s.Fault())
		}
		if snap, err := NewStore(dir).Load(); err != nil || snap.GetVersion() != 8 {
			t.Errorf("on disk is %d: %v", snap.GetVersion(), err)
		}
		// What is on disk is not written again.
		if err := os.Remove(filepath.Join(dir, snapshotFile)); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * keepAgain)
		if snap, err := NewStore(dir).Load(); snap != nil || err != nil {
			t.Errorf("%v %v", snap, err)
		}
	})
	snap := snapshot(7)
	s := NewStore("")
	if err := s.Install(compiled(t, snap), snap); err != nil || s.Rules().Version != 7 || s.Fault() != nil {
		t.Errorf("%v", err)
	}
	if snap, err := s.Load(); snap != nil || err != nil {
		t.Errorf("%v %v", snap, err)
	}
}

// TestSecretsChanged: a secret that comes again is as it was; another, and one that was set again, is not.
func TestSecretsChanged(t *testing.T) {
	s := NewStore("")
	set := func(a, b *quotav1.Credential) map[string]bool {
		return s.SetSecrets(&quotav1.Credentials{Items: []*quotav1.Credential{a, b}})
	}
	secret := func(name string, version uint64, text string) *quotav1.Credential {
		return &quotav1.Credential{Name: name, Version: version, Secret: []byte(text)}
	}
	for i, c := range []struct {
		a, b *quotav1.Credential
		want map[string]bool
	}{
		{secret("a", 1, "x"), secret("b", 1, "y"), map[string]bool{"a": true, "b": true}},
		{secret("a", 1, "x"), secret("b", 1, "y"), map[string]bool{"a": false, "b": false}},
		{secret("a", 2, "z"), secret("b", 1, "y"), map[string]bool{"a": true, "b": false}},
		{secret("a", 2, "z"), secret("b", 2, "y"), map[string]bool{"a": false, "b": true}},
	} {
		if got := set(c.a, c.b); !maps.Equal(got, c.want) {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	if got, ok := s.Secret("a"); !ok || string(got) != "z" {
		t.Errorf("%q %v", got, ok)
	}
}
