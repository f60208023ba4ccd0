//go:build !libtorch

package models

// NewBackend gives the backend that is built in: none.
func NewBackend() Backend { return NoBackend{} }

// DeviceNote is what there is to say of a device that is named: here there is none.
func DeviceNote(string) string { return "" }
