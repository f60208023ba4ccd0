//go:build !libtorch

package models

// NewBackend gives the backend that is built in: none.
func NewBackend() Backend { return NoBackend{} }
