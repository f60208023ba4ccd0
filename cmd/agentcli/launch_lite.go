//go:build !libtorch && unix

package main

import (
	"os"
	"syscall"
)

// becomeTorch replaces this process by the program with libtorch, if the command
// line may need it. It returns if it does not, or if that program is not there.
func becomeTorch() {
	if !wantsTorch(os.Args[1:]) {
		return
	}
	path := torchProgram()
	if path == "" {
		return
	}
	_ = syscall.Exec(path, append([]string{os.Args[0]}, os.Args[1:]...), spinShort(os.Environ()))
}
