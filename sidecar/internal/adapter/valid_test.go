package adapter

import (
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		doc  string
		want bool
	}{
		"an object":                   {`{"a":[1,"x"]}`, true},
		"nothing":                     {``, false},
		"half":                        {`{"a":`, false},
		"a page":                      {`<html>`, false},
		"as deep as allowed":          {nest(depthMax), true},
		"too deep":                    {nest(depthMax + 1), false},
		"an exhausted stack":          {strings.Repeat("[", 32<<20), false},
		"objects too":                 {strings.Repeat(`{"a":`, 8<<20), false},
		"wide is not deep":            {`[` + strings.Repeat("[],", depthMax) + `0]`, true},
		"brackets in text":            {`"` + strings.Repeat("[", depthMax+1) + `"`, true},
		"behind an escaped quote":     {`"\"` + strings.Repeat("{", depthMax+1) + `"`, true},
		"behind an escaped backslash": {`["\\",` + nest(depthMax) + `]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Valid([]byte(c.doc)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
