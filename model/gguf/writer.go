package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"agentcli/internal/malformed"
)

// KeyValue is one metadata entry to be written. V is a uint32, int32, float32,
// bool, string, []string, []bool, []int32 or []float32.
type KeyValue struct {
	Key string
	V   any
}

// Writer writes a GGUF file of version 3. Tensors are written in the order in
// which they were announced. The file appears under its name only when Close has
// succeeded. It serves one goroutine.
type Writer struct {
	f       *os.File
	w       *bufio.Writer
	path    string
	tensors []Tensor
	next    int
	at      uint64 // bytes of the data section so far
	err     error
}

// Create starts a file with this metadata, which will hold these tensors: their
// names, types and dimensions count; offsets and sizes are set here.
func Create(path string, kv []KeyValue, tensors []Tensor) (*Writer, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w := &Writer{f: f, w: bufio.NewWriterSize(f, 1<<20), path: path}
	n := &counter{w: w}
	n.raw("GGUF")
	n.put(uint32(3), uint64(len(tensors)), uint64(len(kv)))
	for _, e := range kv {
		n.put(e.Key)
		if err := n.value(e.V); err != nil {
			w.err = fmt.Errorf("%s: %s: %w", path, e.Key, err)
		}
	}
	at := uint64(0)
	for _, t := range tensors {
		l, ok := layouts[t.Type]
		values := uint64(1)
		for _, d := range t.Dims {
			values *= d
		}
		if !ok || len(t.Dims) == 0 || t.Dims[0]%uint64(l.block) != 0 {
			w.err = malformed.At(path, "tensor "+t.Name, malformed.Mismatch, "rows of %v do not divide into blocks of %s", t.Dims, t.Type)
			break
		}
		t.Offset, t.Size = at, values/uint64(l.block)*uint64(l.size)
		at = align(at + t.Size)
		w.tensors = append(w.tensors, t)
		n.put(t.Name, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			n.put(d)
		}
		n.put(uint32(t.Type), t.Offset)
	}
	n.pad()
	if w.err != nil {
		w.Abort()
		return nil, w.err
	}
	return w, nil
}

func align(n uint64) uint64 { return (n + defaultAlign - 1) &^ (defaultAlign - 1) }

// counter writes the header and counts its bytes.
type counter struct {
	w     *Writer
	bytes uint64
}

func (c *counter) raw(s string) {
	if _, err := c.w.w.WriteString(s); err != nil && c.w.err == nil {
		c.w.err = fmt.Errorf("%s: %w", c.w.path, err)
	}
	c.bytes += uint64(len(s))
}

func (c *counter) put(vs ...any) {
	for _, v := range vs {
		if s, ok := v.(string); ok {
			c.put(uint64(len(s)))
			c.raw(s)
			continue
		}
		if err := binary.Write(c.w.w, le, v); err != nil && c.w.err == nil {
			c.w.err = fmt.Errorf("%s: %w", c.w.path, err)
		}
		c.bytes += uint64(binary.Size(v))
	}
}

func (c *counter) value(v any) error {
	switch v := v.(type) {
	case uint32:
		c.put(uint32(Uint32), v)
	case int32:
		c.put(uint32(Int32), v)
	case float32:
		c.put(uint32(Float32), v)
	case bool:
		c.put(uint32(Bool), v)
	case string:
		c.put(uint32(String), v)
	case []bool:
		c.put(uint32(Array), uint32(Bool), uint64(len(v)), v)
	case []int32:
		c.put(uint32(Array), uint32(Int32), uint64(len(v)), v)
	case []float32:
		c.put(uint32(Array), uint32(Float32), uint64(len(v)), v)
	case []string:
		c.put(uint32(Array), uint32(String), uint64(len(v)))
		for _, s := range v {
			c.put(s)
		}
	default:
		return fmt.Errorf("values of type %T are not written", v)
	}
	return nil
}

func (c *counter) pad() {
	for c.bytes%defaultAlign != 0 {
		c.raw("\x00")
	}
}

// Write writes the next tensor's data, whole.
func (w *Writer) Write(name string, data []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.next == len(w.tensors) || w.tensors[w.next].Name != name {
		return malformed.At(w.path, "tensor "+name, malformed.Mismatch, "it is not the one that was announced next")
	}
	t := w.tensors[w.next]
	if uint64(len(data)) != t.Size {
		return malformed.At(w.path, "tensor "+name, malformed.Mismatch, "it has %d bytes; its shape takes %d", len(data), t.Size)
	}
	w.next++
	_, err := w.w.Write(data)
	for w.at += t.Size; w.at%defaultAlign != 0 && err == nil; w.at++ {
		err = w.w.WriteByte(0)
	}
	if err != nil {
		w.err = fmt.Errorf("%s: tensor %s: %w", w.path, name, err)
	}
	return w.err
}

// Close checks that every tensor was written and gives the file its name. On any
// error nothing is left behind.
func (w *Writer) Close() error {
	if w.f == nil {
		return w.err
	}
	if w.err == nil && w.next < len(w.tensors) {
		w.err = malformed.At(w.path, "tensor "+w.tensors[w.next].Name, malformed.Missing, "it was not written")
	}
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err != nil {
		w.Abort()
		return w.err
	}
	f := w.f
	w.f = nil
	err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), w.path)
	}
	if err != nil {
		os.Remove(f.Name())
		w.err = fmt.Errorf("%s: %w", w.path, err)
	}
	return w.err
}

// Abort throws the unfinished file away; after Close it does nothing.
func (w *Writer) Abort() {
	if w.f == nil {
		return
	}
	w.f.Close()
	os.Remove(w.f.Name())
	w.f = nil
	if w.err == nil {
		w.err = fmt.Errorf("%s: writing was given up", w.path)
	}
}
