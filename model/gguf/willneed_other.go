//go:build !linux

package gguf

// WillNeed does nothing here: the bytes are read when they are touched.
func WillNeed([]byte) {}

// Populate does nothing here, as WillNeed.
func Populate([]byte) {}
