// Command summary reads `go test -json` and prints what failed and how many tests ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	var passed, failed, skipped int
	output := map[string]*strings.Builder{}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e struct{ Action, Package, Test, Output string }
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // not of the test runner: a build error
			continue
		}
		name := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			b := output[name]
			if b == nil {
				b = &strings.Builder{}
				output[name] = b
			}
			b.WriteString(e.Output)
		case "pass":
			if e.Test != "" {
				passed++
			}
			delete(output, name)
		case "skip":
			if e.Test != "" {
				skipped++
			}
			delete(output, name)
		case "fail":
			failed++
			if b := output[name]; b != nil {
				fmt.Print(b)
			}
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}
