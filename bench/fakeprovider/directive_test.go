package fakeprovider

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseDirectives(t *testing.T) {
	tests := []struct {
		name    string
		text    string
		want    []Setting
		wantErr bool
	}{
		{"none", "hello", nil, false},
		{"one", "[[tokens=20]] hello", []Setting{{"tokens", "20"}}, false},
		{"several words", "a [[tokens=20  first=50ms\tfault=cut]] b",
			[]Setting{{"tokens", "20"}, {"first", "50ms"}, {"fault", "cut"}}, false},
		{"two directives in order", "[[gap=1ms]] x [[gap=2ms]]", []Setting{{"gap", "1ms"}, {"gap", "2ms"}}, false},
		{"empty value", "[[code=]]", []Setting{{"code", ""}}, false},
		{"equals sign in the value", "[[code=a=b]]", []Setting{{"code", "a=b"}}, false},
		{"wiki link is text", "see [[Main Page]] and [[x]]", nil, false},
		{"upper case is text", "[[Tokens=1]]", nil, false},
		{"space first is text", "[[ tokens=1]]", nil, false},
		{"never closed is text", "[[tokens=1", nil, false},
		{"nested array is text", "[[1,2],[3,4]]", nil, false},
		{"third bracket before", "[[[tokens=1]]", []Setting{{"tokens", "1"}}, false},
		{"text before a directive", "[[x]] [[tokens=1]]", []Setting{{"tokens", "1"}}, false},
		{"bare word inside", "[[tokens=1 fast]]", nil, true},
		{"bracket inside a value", "[[tokens=1] fault=cut]]", nil, true},
		{"upper case inside", "[[tokens=1 Fault=cut]]", nil, true},
		{"too many", "[[" + strings.Repeat("tokens=1 ", settingsMax+1) + "]]", nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseDirectives(tt.text)
			if (err != nil) != tt.wantErr {
				t.Fatalf("ParseDirectives(%q) error = %v, want error %v", tt.text, err, tt.wantErr)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("ParseDirectives(%q) = %v, want %v", tt.text, got, tt.want)
			}
		})
	}
}

func TestBehaviorApply(t *testing.T) {
	change := func(f func(b *Behavior)) Behavior {
		b := NewBehavior()
		f(&b)
		return b
	}
	tests := []struct {
		name string
		text string
		want Behavior
	}{
		{"nothing", "", NewBehavior()},
		{"pace", "[[tokens=3 head=1ms first=2ms gap=3ms burst=4]]", change(func(b *Behavior) {
			b.Tokens, b.Head, b.First, b.Gap, b.Burst = 3, time.Millisecond, 2*time.Millisecond, 3*time.Millisecond, 4
		})},
		{"tier", "[[tier=flex]]", change(func(b *Behavior) { b.Tier = "flex" })},
		{"usage", "[[reasoning=1 cache-read=2 cache-write=3 cache-write-1h=4]]", change(func(b *Behavior) {
			b.Reasoning, b.CacheRead, b.CacheWrite5m, b.CacheWrite1h = 1, 2, 3, 4
		})},
		{"fault with a place", "[[fault=cut after=5]]", change(func(b *Behavior) { b.Fault, b.After = FaultCut, 5 })},
		{"before the head", "[[fault=hang after=head]]", change(func(b *Behavior) { b.Fault, b.After = FaultHang, AfterHead })},
		{"status as fault", "[[fault=429 retry-after=2]]", change(func(b *Behavior) {
			b.Fault, b.Status, b.RetryAfter = FaultStatus, 429, 2*time.Second
		})},
		{"status", "[[status=529 retry-after=1500ms should-retry=false code=x]]", change(func(b *Behavior) {
			b.Fault, b.Status, b.RetryAfter, b.ShouldRetry, b.Code = FaultStatus, 529, 1500*time.Millisecond, "false", "x"
		})},
		{"taken back", "[[fault=500 fault=none]]", NewBehavior()},
		{"later fault wins over a status", "[[status=500 fault=cut]]", change(func(b *Behavior) { b.Fault = FaultCut })},
		{"styles", "[[sse=crlf,nospace,comment,split text=unicode]]", change(func(b *Behavior) {
			b.Style, b.Unicode = Style{true, true, true, true}, true
		})},
		{"calls", "[[call=a,b]]", change(func(b *Behavior) { b.Calls = []string{"a", "b"} })},
		{"rate headers", "[[limit-requests=1 remaining-requests=2 limit-tokens=3 remaining-tokens=4 reset-requests=5s reset-tokens=6s]]",
			change(func(b *Behavior) { b.Rate = RateHeaders{1, 2, 3, 4, 5 * time.Second, 6 * time.Second} })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			settings, err := ParseDirectives(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			got := NewBehavior()
			if err := got.Apply(settings); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("behaviour of %q = %+v, want %+v", tt.text, got, tt.want)
			}
		})
	}
}

func TestBehaviorApplyRefuses(t *testing.T) {
	for _, setting := range []Setting{
		{"token", "1"}, {"tokens", "-1"}, {"tokens", "x"}, {"tokens", "1048577"}, {"first", "5"}, {"first", "-1s"},
		{"gap", "2h"}, {"burst", "0"}, {"fault", "boom"}, {"fault", "200"}, {"status", "200"}, {"status", "600"},
		{"after", "soon"}, {"retry-after", "later"}, {"should-retry", "maybe"}, {"sse", "lf"}, {"text", "klingon"},
		{"call", strings.Repeat("a,", callsMax)}, {"limit-tokens", "-1"}, {"reset-tokens", "1"},
	} {
		t.Run(setting.Key+"="+setting.Value[:min(8, len(setting.Value))], func(t *testing.T) {
			b := NewBehavior()
			if err := b.Apply([]Setting{setting}); err == nil {
				t.Errorf("Apply(%v) = nil, want an error", setting)
			}
		})
	}
}

// FuzzParseDirectives checks that what is parsed can be written down and parsed again, and that Apply neither panics
// nor lets a value out of its bounds through.
func FuzzParseDirectives(f *testing.F) {
	for _, seed := range []string{"", "[[tokens=20 first=50ms gap=10ms fault=cut after=5]]", "[[status=429 retry-after=2]]",
		"[[[tokens=1]]", "[[a=]]]", "[[x]] [[y=1 z]]", "[[sse=crlf,split call=a,b]] [[burst=9]]", "[[a=\xff]]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := ParseDirectives(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for _, s := range settings {
			again.WriteString("[[" + s.Key + "=" + s.Value + "]] text ")
		}
		got, err := ParseDirectives(again.String())
		if err != nil || !slices.Equal(got, settings) {
			t.Fatalf("second reading of %q = %v, %v, want %v", text, got, err, settings)
		}
		b := NewBehavior()
		if b.Apply(settings) != nil {
			return
		}
		if b.Tokens > outputTokensMax || b.Gap > durationMax || b.First < 0 || b.Burst < 1 || b.After < AfterDefault ||
			b.Fault == FaultStatus && (b.Status < 400 || b.Status > 599) {
			t.Fatalf("%q passed as %+v", text, b)
		}
	})
}
