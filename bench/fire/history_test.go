package fire

import (
	"errors"
	"testing"
	"time"

	quotav1 "github.com/sluice-gateway/sluice/proto/gen/quota/v1"
)

// TestImpossibleHistories: a check that says yes to everything proves nothing.
func TestImpossibleHistories(t *testing.T) {
	full := Books{Cap: 100, Free: 100}
	granted := Verdict{Granted: true}
	type op struct {
		in, out any // out nil: never answered
	}
	for name, c := range map[string]struct {
		ops []op
		ok  bool
	}{
		"within the cap":              {[]op{{Ask{60}, granted}, {Ask{40}, granted}}, true},
		"more than the cap":           {[]op{{Ask{60}, granted}, {Ask{60}, granted}}, false},
		"refused with room":           {[]op{{Ask{60}, Verdict{Shortage: quotav1.Shortage_SHORTAGE_RESERVED, Left: 100}}}, false},
		"refused with the wrong left": {[]op{{Ask{60}, granted}, {Ask{60}, Verdict{Shortage: quotav1.Shortage_SHORTAGE_RESERVED, Left: 50}}}, false},
		"refused in the right way":    {[]op{{Ask{60}, granted}, {Ask{60}, Verdict{Shortage: quotav1.Shortage_SHORTAGE_RESERVED, Left: 40}}}, true},
		"too large, and is not":       {[]op{{Ask{60}, granted}, {Ask{60}, Verdict{Shortage: quotav1.Shortage_SHORTAGE_TOO_LARGE, Left: 40}}}, false},
		"a settle lost":               {[]op{{Ask{60}, granted}, {Settle{20, 40}, struct{}{}}, {Show{}, Books{Cap: 100, Free: 40, Out: 60}}}, false},
		"a settle doubled":            {[]op{{Ask{60}, granted}, {Settle{20, 40}, struct{}{}}, {Show{}, Books{Cap: 100, Free: 60, Settled: 40}}}, false},
		"a settle once":               {[]op{{Ask{60}, granted}, {Settle{20, 40}, struct{}{}}, {Show{}, Books{Cap: 100, Free: 80, Settled: 20}}}, true},
		"an old look":                 {[]op{{Ask{60}, granted}, {Show{}, full}}, false},
		"unknown, and it happened":    {[]op{{Ask{60}, nil}, {Show{}, Books{Cap: 100, Free: 40, Out: 60}}}, true},
		"unknown, and it did not":     {[]op{{Ask{60}, nil}, {Show{}, full}}, true},
		"a credit":                    {[]op{{Credit{50}, struct{}{}}, {Ask{150}, granted}}, true},
		"a credit lost":               {[]op{{Credit{50}, struct{}{}}, {Show{}, full}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &History{}
			for _, o := range c.ops {
				_ = h.Do(0, o.in, func() (any, error) {
					if o.out == nil {
						return nil, errors.New("no answer")
					}
					return o.out, nil
				})
			}
			if err := h.Check(full, t.TempDir(), time.Minute); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
