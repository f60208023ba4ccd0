//go:build libtorch || !unix

package main

// becomeTorch does nothing in the program that has libtorch.
func becomeTorch() {}
