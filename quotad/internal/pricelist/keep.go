package pricelist

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-gateway/sluice/quotad/internal/registry"
)

// parts are the members of an entry of per_million_usd, or of one of its steps.
type parts map[string]json.RawMessage

// Keep adds to an entry of a table what the stored entry says and it does not: some of it no table has words for, more is
// missing in most. A remark tells each. Steps are taken from the table as a whole, if it has any.
func Keep(entry, stored []byte) (merged []byte, remarks []string, err error) {
	var now, old parts
	if err := json.Unmarshal(entry, &now); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(stored, &old); err != nil {
		return nil, nil, err
	}
	stays := func(what string) { remarks = append(remarks, what+" is not in the table and stays as it was") }
	for _, key := range slices.Sorted(maps.Keys(old)) {
		switch text := old[key]; {
		case text[0] == '[': // the steps need all that stays beside them
		case text[0] == '{':
			each, have := parts{}, parts{}
			if err := json.Unmarshal(text, &each); err != nil {
				return nil, nil, err
			}
			if now[key] != nil {
				if err := json.Unmarshal(now[key], &have); err != nil {
					return nil, nil, err
				}
			}
			for _, name := range slices.Sorted(maps.Keys(each)) {
				if have[name] == nil {
					have[name] = each[name]
					stays(key + "." + name)
				}
			}
			now[key] = marshal(have)
		case now[key] == nil && old.states(key):
			now[key] = text
			stays(key)
		}
	}
	more, err := now.keepSteps(old, stays)
	return marshal(now), append(remarks, more...), err
}

// states reports whether a stored rate is another one than it would be if nobody had stated it.
func (p parts) states(key string) bool {
	switch key {
	case "output":
		return string(p[key]) != "0"
	case "cache_read", "cache_write_5m":
		return !bytes.Equal(p[key], p["input"])
	case "cache_write_1h":
		return !bytes.Equal(p[key], p["cache_write_5m"])
	}
	return true
}

const above = "above"

// keepSteps takes over the stored steps where the table has none, and gives each step the rates that stay beside it.
func (p parts) keepSteps(old parts, stays func(what string)) (remarks []string, err error) {
	stored, err := old.steps()
	if err != nil {
		return nil, err
	}
	steps, err := p.steps()
	switch {
	case err != nil:
		return nil, err
	case len(steps) == 0 && len(stored) == 0:
		return nil, nil
	case len(steps) == 0:
		steps = stored
		stays(above)
	}
	for _, was := range stored {
		if of(steps, was) == nil {
			remarks = append(remarks, fmt.Sprintf("above %s tokens is no step in the table, which has others: it goes", was["tokens"]))
		}
	}
	for _, step := range steps {
		for _, key := range slices.Sorted(maps.Keys(p)) {
			if step[key] != nil || strings.ContainsAny(string(p[key][:1]), "{[") {
				continue
			}
			if step[key] = of(stored, step)[key]; step[key] == nil {
				if step[key], err = p.dearer(key, step); err != nil {
					return nil, err
				}
			}
			remarks = append(remarks, fmt.Sprintf("%s above %s tokens is not in the table: %s is taken", key, step["tokens"], step[key]))
		}
	}
	p[above] = marshal(steps)
	return remarks, nil
}

func (p parts) steps() (steps []parts, err error) {
	if p[above] != nil {
		err = json.Unmarshal(p[above], &steps)
	}
	return steps, err
}

// of finds the step of as many tokens as another one, nil for none.
func of(steps []parts, other parts) parts {
	i := slices.IndexFunc(steps, func(s parts) bool { return bytes.Equal(s["tokens"], other["tokens"]) })
	if i < 0 {
		return nil
	}
	return steps[i]
}

// dearer is a rate that a step does not state: as below the step, and cached input as dear as any.
func (p parts) dearer(key string, step parts) (json.RawMessage, error) {
	if !strings.HasPrefix(key, "cache_") {
		return p[key], nil
	}
	var below, input registry.Nano
	if err := json.Unmarshal(p[key], &below); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(step["input"], &input); err != nil {
		return nil, err
	}
	return marshal(max(below, input)), nil
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a price does not encode: " + err.Error())
	}
	return b
}
