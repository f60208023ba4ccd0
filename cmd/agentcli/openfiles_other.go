//go:build !unix

package main

// checkOpenFiles knows of no limit here.
func checkOpenFiles(int) error { return nil }
