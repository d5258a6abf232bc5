package pricelist

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// once refuses JSON, which is known to be some, with a name twice in an object: nobody can tell which of the two is meant.
func once(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	line := func(offset int64) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }
	var value func() error
	value = func() error {
		t, err := d.Token()
		if _, within := t.(json.Delim); err != nil || !within {
			return err
		}
		seen := map[string]int64{}
		for d.More() {
			if t == json.Delim('{') {
				name, err := d.Token()
				if err != nil {
					return err
				}
				if first, twice := seen[name.(string)]; twice {
					return fmt.Errorf("has %q twice, in lines %d and %d", name, line(first), line(d.InputOffset()))
				}
				seen[name.(string)] = d.InputOffset()
			}
			if err := value(); err != nil {
				return err
			}
		}
		_, err = d.Token()
		return err
	}
	return value()
}
