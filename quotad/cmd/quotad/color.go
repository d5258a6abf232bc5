package main

import (
	"io"
	"os"
)

// The colours of a diff, and the end of one.
const (
	green, red, yellow, plain = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
)

// colourful reports whether w is a terminal whose owner has not asked for text without colours (no-color.org).
func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// coloured is a line of a diff in the colour of its sign, +, -, ~ or !.
func coloured(line string) string {
	switch line[:min(1, len(line))] {
	case "+":
		return green + line + plain
	case "-":
		return red + line + plain
	case "~", "!":
		return yellow + line + plain
	}
	return line
}
