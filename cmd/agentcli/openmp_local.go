//go:build libtorch && linux

package main

import (
	"os"
	"syscall"
)

// libtorch's threads wait for each other by spinning, by default for so long
// that one other busy process makes everything several times slower. A short
// spin costs nothing on an idle machine (docs/benchmarks.md). libgomp reads the
// variable when it is loaded, before main: so the program starts itself again.
func init() {
	if os.Getenv("GOMP_SPINCOUNT") != "" || os.Getenv("OMP_WAIT_POLICY") != "" {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		return
	}
	if os.Setenv("GOMP_SPINCOUNT", "1000") == nil {
		_ = syscall.Exec(exe, os.Args, os.Environ()) // returns only if it failed: go on as we are
	}
}
