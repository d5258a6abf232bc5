package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mayBeEmpty are the flags to which an empty text says something: all in one sum, or no TLS whatever the environment says.
var mayBeEmpty = []string{"group-by", "tls-ca", "tls-cert", "tls-key"}

// strict has a verb and those below it refuse what is probably a mistake, and say which word it was. An empty text is
// most often a shell variable that is not set: `--run "$RUN"` must not credit the whole team, `--alias "$A"` not allow all.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(explainFlag)
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
	if !cmd.Runnable() {
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, onlyVerbs
		return
	}
	count := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := count(cmd, args); err != nil {
			return fmt.Errorf("%s: takes other arguments than the %d given: %s", cmd.CommandPath(), len(args), usage(cmd))
		}
		return texts(cmd, args)
	}
}

// onlyVerbs runs what only gathers verbs.
func onlyVerbs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var verbs []string
	for _, sub := range cmd.Commands() {
		verbs = append(verbs, sub.Name())
	}
	return fmt.Errorf("%s: no verb %q (there are %s)", cmd.CommandPath(), args[0], strings.Join(verbs, ", "))
}

// usage is how a verb is called.
func usage(cmd *cobra.Command) string {
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

// texts names the argument or flag that was given as an empty text, or as none at all.
func texts(cmd *cobra.Command, args []string) (err error) {
	names := strings.Fields(cmd.Use)[1:]
	for i, a := range args {
		if err := isText(strings.Trim(names[i], "[]"), a); err != nil {
			return err
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		given := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given = list.GetSlice()
			if len(given) == 0 { // which is what an empty text makes
				given = []string{""}
			}
		}
		for _, text := range given {
			if text != "" || !slices.Contains(mayBeEmpty, f.Name) {
				err = cmp.Or(err, isText("--"+f.Name, text))
			}
		}
	})
	return err
}

// files are the arguments and flags that name files, which may be called anything.
var files = []string{"FILE", "DATA_DIR", "--output", "--file"}

func isText(name, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%s: must not be empty", name)
	case !utf8.ValidString(text) && !slices.Contains(files, name):
		return fmt.Errorf("%s: %q is not text in UTF-8", name, text)
	}
	return nil
}

// explainFlag says what is wrong with a flag.
func explainFlag(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s: %q is %s", invalid.GetFlag().Name, invalid.GetValue(), wrong(invalid))
	case errors.As(err, &unknown) && strings.Trim(unknown.GetSpecifiedShortnames(), ".0123456789") == "" && unknown.GetSpecifiedShortnames() != "":
		n := "-" + unknown.GetSpecifiedShortnames()
		return fmt.Errorf("%s is read as a flag: arguments that begin with - come last, after --: %s [flags] -- … %s", n, cmd.CommandPath(), n)
	}
	return err
}

// wrong is what a value is, or is not.
func wrong(v *pflag.InvalidValueError) string {
	switch kind := v.GetFlag().Value.Type(); {
	case errors.Is(v, strconv.ErrRange):
		return "out of range"
	case strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint"):
		return "not a whole number"
	case kind == "duration":
		return "not a duration such as 30s or 5m"
	case kind == "bool":
		return "neither true nor false"
	}
	return "not a " + v.GetFlag().Value.Type()
}
