package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML reads one document; nil is an empty one.
func parseYAML(text []byte) (root *yaml.Node, wrong *Fault) {
	if len(text) > FileBytesMax {
		return nil, &Fault{Line: 1, What: fmt.Sprintf("the file is longer than %d bytes", FileBytesMax)}
	}
	in := &byLine{rest: text}
	root, err := decodeYAML(in)
	if err != nil {
		return nil, syntaxFault(text, in.lines, err)
	}
	return root, nil
}

func decodeYAML(text io.Reader) (root *yaml.Node, err error) {
	// The YAML library reports some broken texts by a panic. A text from outside must never stop the process.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("not readable as YAML: %v", r)
		}
	}()
	dec := yaml.NewDecoder(text)
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: a second YAML document (---): one file is one document", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

// byLine gives a text line by line, and so knows how far its reader came.
type byLine struct {
	rest  []byte
	lines int
}

func (r *byLine) Read(to []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	line := len(r.rest)
	if end := bytes.IndexByte(r.rest, '\n'); end >= 0 {
		line = end + 1
	}
	n := copy(to, r.rest[:line])
	if n == line {
		r.lines++
	}
	r.rest = r.rest[n:]
	return n, nil
}

var lineAndWhat = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(?s)(.*)$`)

// syntaxFault says in which line of a text a mistake is of which the library told when it had read so many lines. Mostly
// the library names the line before the block around it. The mistake is in the last line without which the text is not
// wrong in the same way, and the library reads but a few lines ahead.
func syntaxFault(text []byte, read int, err error) *Fault {
	line, what := told(err)
	for last := read; last > 0 && read-last < suspectsMax; last-- {
		before := firstLines(text, last-1)
		if len(before) > suspectBytesMax {
			break
		}
		if _, err := decodeYAML(bytes.NewReader(before)); err != nil {
			if _, same := told(err); same == what {
				continue
			}
		}
		return &Fault{Line: last, What: what}
	}
	if strings.HasPrefix(what, "did not find expected") {
		return &Fault{Line: max(read, 1), What: fmt.Sprintf("%s (here or before, in what begins in line %d)", what, line+1)}
	}
	return &Fault{Line: max(line, 1), What: what}
}

// told takes the line out of the library's message; 0 when it names none.
func told(err error) (line int, what string) {
	g := lineAndWhat.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(g[1]) // digits, or nothing
	return line, g[2]
}

func firstLines(text []byte, n int) []byte {
	end := 0
	for ; n > 0; n-- {
		next := bytes.IndexByte(text[end:], '\n')
		if next < 0 {
			return text
		}
		end += next + 1
	}
	return text[:end]
}
