package gguf

import (
	"os"
	"syscall"
	"unsafe"
)

// willNeedPiece is how many bytes a call names: where it names more than a device's longest request or
// its read-ahead, Linux reads the first part only.
const willNeedPiece = 512 << 10

// WillNeed has the system begin to read bytes of a mapped file; it does not wait for them.
func WillNeed(b []byte) {
	for pages := pagesOf(b); len(pages) > 0; {
		n := min(len(pages), willNeedPiece)
		_ = syscall.Madvise(pages[:n], syscall.MADV_WILLNEED) // without it they are read all the same
		pages = pages[n:]
	}
}

// madvPopulateRead is MADV_POPULATE_READ, since Linux 5.14.
const madvPopulateRead = 22

// Populate reads bytes of a mapped file, so that whoever touches them does not wait.
func Populate(b []byte) {
	if pages := pagesOf(b); len(pages) > 0 {
		_ = syscall.Madvise(pages, madvPopulateRead)
	}
}

// pagesOf is b from the beginning of its first page.
func pagesOf(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	start := unsafe.Pointer(&b[0])
	over := int(uintptr(start) % uintptr(os.Getpagesize()))
	return unsafe.Slice((*byte)(unsafe.Add(start, -over)), over+len(b))
}
