package replica

import (
	"context"
	"reflect"
	"testing"
)

func TestUnreadSignalsAreMerged(t *testing.T) {
	h := newHub()
	h.publish(Signal{ConfigVersion: 7})
	ctx, cancel := context.WithCancel(context.Background())
	slow, quick := h.watch(ctx), h.watch(ctx)
	if got, want := <-quick, (Signal{Leadership: true, ConfigVersion: 7}); !reflect.DeepEqual(got, want) {
		t.Fatalf("first signal: got %+v, want %+v", got, want)
	}
	h.publish(Signal{Wake: []uint64{5, 9}, ConfigVersion: 8})
	h.publish(Signal{Wake: []uint64{1, 5}, Credentials: true})
	h.publish(Signal{Alerts: true})
	h.publish(Signal{ConfigVersion: 6})
	want := Signal{
		ConfigVersion: 8, Credentials: true, Leadership: true, Wake: []uint64{1, 5, 9},
		Alerts: true,
	}
	if got := <-slow; !reflect.DeepEqual(got, want) {
		t.Fatalf("slow watcher: got %+v, want %+v", got, want)
	}
	want.Leadership = false
	if got := <-quick; !reflect.DeepEqual(got, want) {
		t.Fatalf("quick watcher: got %+v, want %+v", got, want)
	}
	cancel()
	for _, c := range []<-chan Signal{slow, quick} {
		for range c { // ends when the channel is closed
			t.Fatal("a signal from nowhere")
		}
	}
	h.publish(Signal{Leadership: true}) // to nobody
}
