//go:build !libtorch

package models

// NewBackend gives the backend that is built in: none.
func NewBackend() Backend { return NoBackend{} }

// DeviceNote says which device is taken where none is named: here none is.
func DeviceNote(string) string { return "" }
