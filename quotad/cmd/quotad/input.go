package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// input is a file, or standard input when it is called -. It ends with the verb's context: a terminal, a pipe or the
// opening of a FIFO may never do.
func input(cmd *cobra.Command, name string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		_ = w.CloseWithError(copyOf(w, cmd.InOrStdin(), name))
	}()
	context.AfterFunc(cmd.Context(), func() { _ = w.CloseWithError(cmd.Context().Err()) })
	return r
}

func copyOf(w io.Writer, stdin io.Reader, name string) error {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		from = f
	}
	_, err := io.Copy(w, from)
	return err
}

// whole reads all of an input, of so many bytes at most: a device may have no end. what is the flag or the argument that
// names it.
func whole(cmd *cobra.Command, what, name string, bytesMax int64) ([]byte, error) {
	in := input(cmd, name)
	defer func() { _ = in.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(in, bytesMax+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %s: %w", what, shown(name), bare(err))
	case int64(len(b)) > bytesMax:
		return nil, fmt.Errorf("%s: %s is longer than %d bytes", what, shown(name), bytesMax)
	}
	return b, nil
}

// shown is how an input is called.
func shown(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// bare is what is wrong with a file, without the name, which the caller has said.
func bare(err error) error {
	var at *fs.PathError
	var between *os.LinkError
	switch {
	case errors.As(err, &at):
		return at.Err
	case errors.As(err, &between):
		return between.Err
	}
	return err
}
