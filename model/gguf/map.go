package gguf

import (
	"fmt"
	"os"
	"sync"
)

// Mapping is a file mapped into memory, read only. It lives here because this
// is in layer 0 and both weight formats need it.
type Mapping struct {
	b     []byte
	close func() error
	once  sync.Once
	err   error
}

// Map maps a regular file (symbolic links are followed). An empty file gives
// an empty mapping.
func Map(path string) (*Mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if st.Size() == 0 {
		return &Mapping{}, nil
	}
	if int64(int(st.Size())) != st.Size() {
		return nil, fmt.Errorf("%s: %d bytes do not fit in this machine's address space", path, st.Size())
	}
	b, unmap, err := mapFile(f, int(st.Size()))
	if err != nil {
		return nil, fmt.Errorf("%s: cannot map the file: %w", path, err)
	}
	return &Mapping{b: b, close: unmap}, nil
}

// Bytes is the file's content, valid until Close and never to be written.
func (m *Mapping) Bytes() []byte { return m.b }

// Close unmaps the file; a second call does nothing.
func (m *Mapping) Close() error {
	m.once.Do(func() {
		if m.close != nil {
			m.err = m.close()
		}
		m.b = nil
	})
	return m.err
}
