package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// decodeJSON reads JSON into the tree that YAML is read into, keeping the order of keys, doubles and the exact text
// of numbers: the same reader then serves both.
func decodeJSON(text []byte) (*yaml.Node, error) {
	if len(text) > specBytesMax {
		return nil, fmt.Errorf("is longer than %d bytes", specBytesMax)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	n, err := jsonValue(dec, 0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is not JSON: more follows after its end")
	}
	return n, nil
}

// isObject reports that text is an object that decodeJSON takes. It makes no tree, which is most of what it would take to
// load hundreds of thousands of keys at a start; of what is none, decodeJSON says why.
func isObject(text []byte) bool {
	if len(text) > specBytesMax || !bytes.HasPrefix(text, []byte("{")) || !json.Valid(text) {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > depthMax {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}

func jsonValue(dec *json.Decoder, depth int) (*yaml.Node, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("nested deeper than %d", depthMax)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := tok.(type) {
	case json.Delim:
		return jsonNest(dec, t, depth)
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}, nil
}

func jsonNest(dec *json.Decoder, open json.Delim, depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for dec.More() {
		v, err := jsonValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, v)
	}
	// Keys come as tokens like any other value, so a mapping is filled pairwise without more ado.
	_, err := dec.Token()
	return n, err
}

// storedTree is the tree of a stored spec. A stored spec has been decoded before.
func storedTree(spec []byte) *yaml.Node {
	n, err := decodeJSON(spec)
	if err != nil {
		panic("BUG: a stored spec does not decode: " + err.Error())
	}
	return n
}
