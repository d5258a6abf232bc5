package sim

import "testing"

func TestSeeds(t *testing.T) {
	for seed := range uint64(20) {
		r := Run(seed+1, nil)
		t.Logf("seed %d: %d events, %d faults, %v, %x", seed+1, r.Events, r.Faults, r.Passed, r.Hash)
		if r.Err != nil {
			t.Errorf("seed %d: %v", seed+1, r.Err)
		}
	}
}
