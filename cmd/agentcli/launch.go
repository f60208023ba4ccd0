//go:build !libtorch && unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// torchName is the program with libtorch. It is beside agentcli, which is built
// without: libtorch takes a third of a second and 100 MB to load.
const torchName = "agentcli-torch"

// torchProgram is the path of the program with libtorch, "" if it is not there.
func torchProgram() string {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(exe), torchName)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return ""
	}
	return path
}

// wantsTorch reports whether a command line may open a local model. It errs on the
// side of yes: a program without libtorch cannot.
func wantsTorch(args []string) bool {
	i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if i < 0 {
		return false
	}
	command, rest := args[i], args[i+1:]
	if slices.ContainsFunc(args, func(a string) bool {
		return slices.Contains([]string{"--help", "--help-all", "-h", "--version", "-v", "--print-config"}, a)
	}) {
		return false
	}
	switch command {
	case "train", "loop", "doctor", "serve":
		return true
	case "model":
		return slices.Contains(rest, "generate") || slices.Contains(rest, "logprobs")
	case "eval", "rollout":
	default:
		return false
	}
	if _, server := valueOf(rest, "base-url"); server {
		return false
	}
	for _, a := range []string{"resume", "config"} { // which may name a server, or may not
		if _, given := valueOf(rest, a); given {
			return true
		}
	}
	if os.Getenv("OPENAI_BASE_URL") == "" {
		return true
	}
	model, given := valueOf(rest, "model")
	if !given {
		model, _ = valueOf(rest, "m")
	}
	if model == "" {
		return false
	}
	_, err := os.Stat(model)
	return err == nil // what is here is opened here
}
