package pricelist

import (
	"slices"
	"testing"
)

// TestKeep: what a table does not say of a price stays, and is told; what it says holds. A stored rate that is only what an
// unstated one is goes with the rate that it is like.
func TestKeep(t *testing.T) {
	const stays = " is not in the table and stays as it was"
	for name, c := range map[string]struct {
		entry, stored, want string
		remarks             []string
	}{
		"rates that follow others": {
			`{"input":5}`, `{"input":2,"cache_read":2,"cache_write_5m":2,"cache_write_1h":2,"output":0}`, `{"input":5}`, nil,
		},
		"rates of their own": {
			`{"input":5,"cache_read":0.5}`,
			`{"input":2,"cache_read":0.2,"cache_write_5m":3,"cache_write_1h":3,"output":9,"audio_input":7,"image_output":30}`,
			`{"audio_input":7,"cache_read":0.5,"cache_write_5m":3,"image_output":30,"input":5,"output":9}`,
			[]string{"audio_input" + stays, "cache_write_5m" + stays, "image_output" + stays, "output" + stays},
		},
		"a longer write of its own": {
			`{"input":5}`, `{"input":2,"cache_read":2,"cache_write_5m":2,"cache_write_1h":4,"output":0}`,
			`{"cache_write_1h":4,"input":5}`, []string{"cache_write_1h" + stays},
		},
		"multiples and searches": {
			`{"input":5,"service_tiers":{"flex":0.5}}`,
			`{"input":2,"service_tiers":{"flex":0.4,"priority":2},"speeds":{"fast":6},"inference_geo":{"us":1.1},"per_call_usd":{"web_search":0.01}}`,
			`{"inference_geo":{"us":1.1},"input":5,"per_call_usd":{"web_search":0.01},"service_tiers":{"flex":0.5,"priority":2},"speeds":{"fast":6}}`,
			[]string{"inference_geo.us" + stays, "per_call_usd.web_search" + stays, "service_tiers.priority" + stays, "speeds.fast" + stays},
		},
		"steps that the table lacks": {
			`{"input":5,"audio_input":8}`, `{"input":2,"above":[{"tokens":200000,"input":9,"output":0}]}`,
			`{"above":[{"audio_input":8,"input":9,"output":0,"tokens":200000}],"audio_input":8,"input":5}`,
			[]string{"above" + stays, "audio_input above 200000 tokens is not in the table: 8 is taken"},
		},
		"steps beside what stays": {
			`{"input":5,"above":[{"tokens":100,"input":6},{"tokens":200,"input":7}]}`,
			`{"input":2,"cache_write_5m":4,"above":[{"tokens":50,"input":2,"cache_write_5m":4},{"tokens":200,"input":3,"cache_write_5m":12}]}`,
			`{"above":[{"cache_write_5m":6,"input":6,"tokens":100},{"cache_write_5m":12,"input":7,"tokens":200}],"cache_write_5m":4,"input":5}`,
			[]string{
				"cache_write_5m" + stays,
				"above 50 tokens is no step in the table, which has others: it goes",
				"cache_write_5m above 100 tokens is not in the table: 6 is taken",
				"cache_write_5m above 200 tokens is not in the table: 12 is taken",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, remarks, err := Keep([]byte(c.entry), []byte(c.stored))
			if err != nil || string(got) != c.want {
				t.Errorf("got %s %v\nwant %s", got, err, c.want)
			}
			if !slices.Equal(remarks, c.remarks) {
				t.Errorf("told %q\nwant %q", remarks, c.remarks)
			}
		})
	}
	for _, bad := range [][2]string{{`[]`, `{}`}, {`{}`, `[]`}, {`{"speeds":1}`, `{"speeds":{"fast":1}}`}, {`{"above":1}`, `{}`}, {`{}`, `{"above":[1]}`}} {
		if _, _, err := Keep([]byte(bad[0]), []byte(bad[1])); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
