// Package gguf reads the GGUF container: metadata, tensor descriptions and the
// tensors' bytes, mapped rather than copied. It knows the container only; what
// the keys mean and how a quantised block is read is the business of packages
// weights and tokenizer. Of this module it imports internal/text and internal/malformed
// only.
//
// A file is never trusted: every count is held against the bytes that are left
// before anything is allocated for it, and every error is one line that names
// the file and the field.
package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sort"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
)

// ErrNotGGUF is wrapped by the error for a file that does not start with the
// GGUF magic.
var ErrNotGGUF = errors.New("not a GGUF file")

// ValueType is the type of a metadata value, numbered as in the file.
type ValueType uint32

// The value types of the format.
const (
	Uint8 ValueType = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

// TensorType is the number of a tensor's encoding, as ggml numbers them.
type TensorType uint32

// The encodings whose layout this package knows.
const (
	F32  TensorType = 0
	F16  TensorType = 1
	Q4_0 TensorType = 2
	Q4_1 TensorType = 3
	Q5_0 TensorType = 6
	Q5_1 TensorType = 7
	Q8_0 TensorType = 8
	Q2_K TensorType = 10
	Q3_K TensorType = 11
	Q4_K TensorType = 12
	Q5_K TensorType = 13
	Q6_K TensorType = 14
	Q8_K TensorType = 15

	IQ2_XXS TensorType = 16
	IQ2_XS  TensorType = 17
	IQ3_XXS TensorType = 18
	IQ1_S   TensorType = 19
	IQ4_NL  TensorType = 20
	IQ3_S   TensorType = 21
	IQ2_S   TensorType = 22
	IQ4_XS  TensorType = 23

	I8    TensorType = 24
	I16   TensorType = 25
	I32   TensorType = 26
	I64   TensorType = 27
	F64   TensorType = 28
	IQ1_M TensorType = 29
	BF16  TensorType = 30
	TQ1_0 TensorType = 34
	TQ2_0 TensorType = 35
	MXFP4 TensorType = 39
	NVFP4 TensorType = 40
	Q1_0  TensorType = 41
)

type layout struct {
	name  string
	block int64 // values a block
	size  int64 // bytes a block
}

var layouts = map[TensorType]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, F64: {"F64", 1, 8},
	I8: {"I8", 1, 1}, I16: {"I16", 1, 2}, I32: {"I32", 1, 4}, I64: {"I64", 1, 8},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210}, Q8_K: {"Q8_K", 256, 292},
	IQ2_XXS: {"IQ2_XXS", 256, 66}, IQ2_XS: {"IQ2_XS", 256, 74}, IQ2_S: {"IQ2_S", 256, 82}, IQ3_XXS: {"IQ3_XXS", 256, 98},
	IQ3_S: {"IQ3_S", 256, 110}, IQ1_S: {"IQ1_S", 256, 50}, IQ1_M: {"IQ1_M", 256, 56}, IQ4_NL: {"IQ4_NL", 32, 18},
	IQ4_XS: {"IQ4_XS", 256, 136}, TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66}, MXFP4: {"MXFP4", 32, 17},
	NVFP4: {"NVFP4", 64, 36}, Q1_0: {"Q1_0", 128, 18},
}

// String is ggml's name of the type.
func (t TensorType) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Limits of the format that no real file comes near.
const (
	maxDims      = 8
	maxKeyLen    = 64 << 10
	maxDepth     = 4 // arrays of arrays
	defaultAlign = 32
	minKV        = 8 + 4 + 1     // bytes of the smallest metadata entry
	minTensor    = 8 + 4 + 4 + 8 // bytes of the smallest tensor description
)

// Tensor describes one tensor. Dims are in the file's order, the fastest first
// (the reverse of a row-major shape).
type Tensor struct {
	Name   string
	Type   TensorType
	Dims   []uint64
	Offset uint64 // from the start of the data section
	Size   uint64 // bytes
}

// File is an open GGUF file. It is safe for concurrent use; slices taken from
// it are valid until Close.
type File struct {
	Path    string
	Version uint32
	Tensors []Tensor

	mapped *Mapping
	data   []byte // the data section
	kv     map[string]Value
	keys   []string
	byName map[string]int
}

// Value is one metadata value: a scalar, a string, or an array of one element
// type. Arrays are kept as Go slices of the element's own type ([]string,
// []int32, []float32 …).
type Value struct {
	Type ValueType
	Elem ValueType // of an array
	V    any
}

// Open maps a file and reads its header.
func Open(path string) (*File, error) {
	m, err := Map(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(path, m.Bytes())
	if err != nil {
		m.Close()
		return nil, err
	}
	f.mapped = m
	return f, nil
}

// Close unmaps the file. Slices taken from it must not be used any more.
func (f *File) Close() error {
	if f.mapped == nil {
		return nil
	}
	return f.mapped.Close()
}

// Sniff reports whether the file starts with the GGUF magic.
func Sniff(path string) bool {
	h, err := os.Open(path)
	if err != nil {
		return false
	}
	defer h.Close()
	var b [4]byte
	n, _ := h.Read(b[:])
	return n == 4 && string(b[:]) == "GGUF"
}

// Parse reads a whole file that is already in memory; path is for messages.
func Parse(path string, b []byte) (*File, error) {
	f := &File{Path: path, kv: map[string]Value{}, byName: map[string]int{}}
	r := &reader{path: path, b: b}
	if len(b) < 4 || string(b[:4]) != "GGUF" {
		return nil, fmt.Errorf("%s: %w (it does not start with the bytes GGUF)", path, ErrNotGGUF)
	}
	r.off = 4
	f.Version = r.u32("version")
	if r.err == nil && f.Version != 2 && f.Version != 3 {
		if f.Version&0xffff == 0 {
			return nil, malformed.At(path, "byte order", malformed.Unsupported, "the file is big-endian, which is not supported")
		}
		return nil, malformed.At(path, "version", malformed.Unsupported, "%d is not supported, only 2 and 3 are", f.Version)
	}
	nt := r.u64("tensor count")
	nkv := r.u64("metadata count")
	r.room(nkv, minKV, "metadata count")
	r.room(nt, minTensor, "tensor count")
	if r.err != nil {
		return nil, r.err
	}
	for i := uint64(0); i < nkv && r.err == nil; i++ {
		key := r.str(fmt.Sprintf("key of metadata entry %d", i), maxKeyLen)
		v := r.value(key)
		if r.err != nil {
			return nil, r.err
		}
		if _, dup := f.kv[key]; dup {
			return nil, malformed.At(path, clip(key), malformed.Duplicate, "the key occurs twice")
		}
		f.kv[key] = v
		f.keys = append(f.keys, key)
	}
	align := uint64(defaultAlign)
	if v, ok := f.kv["general.alignment"]; ok {
		n, isInt := v.asInt()
		if !isInt || n <= 0 || n > 1<<20 || n&(n-1) != 0 {
			return nil, malformed.At(path, "general.alignment", malformed.Range, "%v is not a power of two", v.V)
		}
		align = uint64(n)
	}
	for i := uint64(0); i < nt; i++ {
		t, err := r.tensor(i, align)
		if err != nil {
			return nil, err
		}
		if _, dup := f.byName[t.Name]; dup {
			return nil, malformed.At(path, "tensor "+clip(t.Name), malformed.Duplicate, "the name occurs twice")
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	start := (uint64(r.off) + align - 1) &^ (align - 1)
	if start > uint64(len(b)) {
		start = uint64(len(b))
	}
	f.data = b[start:]
	return f, f.checkSpans()
}

// checkSpans holds the tensors' offsets against the file and each other.
func (f *File) checkSpans() error {
	order := make([]int, len(f.Tensors))
	for i, t := range f.Tensors {
		order[i] = i
		if t.Offset > uint64(len(f.data)) || t.Size > uint64(len(f.data))-t.Offset {
			return malformed.At(f.Path, "tensor "+clip(t.Name), malformed.Truncated,
				"offset %d + %d bytes is past the end of the file (%d bytes of data); the file is cut off or damaged",
				t.Offset, t.Size, len(f.data))
		}
	}
	sort.Slice(order, func(a, b int) bool { return f.Tensors[order[a]].Offset < f.Tensors[order[b]].Offset })
	end, prev := uint64(0), ""
	for _, i := range order {
		t := f.Tensors[i]
		if t.Size == 0 {
			continue
		}
		if t.Offset < end {
			return malformed.At(f.Path, "tensor "+clip(t.Name), malformed.Mismatch, "offset %d overlaps tensor %s", t.Offset, clip(prev))
		}
		end, prev = t.Offset+t.Size, t.Name
	}
	return nil
}

// Keys lists the metadata keys in the file's order.
func (f *File) Keys() []string { return f.keys }

// Get returns a metadata value.
func (f *File) Get(key string) (Value, bool) {
	v, ok := f.kv[key]
	return v, ok
}

// Str returns a string value; false if it is absent or no string.
func (f *File) Str(key string) (string, bool) {
	s, ok := f.kv[key].V.(string)
	return s, ok
}

// Int returns an integer value of any width; false if absent or no integer.
func (f *File) Int(key string) (int64, bool) { return f.kv[key].asInt() }

// Float returns a number of any type; false if absent or no number.
func (f *File) Float(key string) (float64, bool) {
	switch v := f.kv[key].V.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	n, ok := f.Int(key)
	return float64(n), ok
}

// Bool returns a boolean value; false, false if absent or no boolean.
func (f *File) Bool(key string) (val, ok bool) {
	val, ok = f.kv[key].V.(bool)
	return val, ok
}

// Strings returns an array of strings; nil if absent or of another type.
func (f *File) Strings(key string) []string {
	s, _ := f.kv[key].V.([]string)
	return s
}

// Ints returns an array of integers of any width, or of booleans as 0 and 1; nil
// if absent or of another type.
func (f *File) Ints(key string) []int64 {
	switch v := f.kv[key].V.(type) {
	case []bool:
		out := make([]int64, len(v))
		for i, x := range v {
			if x {
				out[i] = 1
			}
		}
		return out
	case []uint8:
		return widen(v)
	case []int8:
		return widen(v)
	case []uint16:
		return widen(v)
	case []int16:
		return widen(v)
	case []uint32:
		return widen(v)
	case []int32:
		return widen(v)
	case []uint64:
		return widen(v)
	case []int64:
		return widen(v)
	}
	return nil
}

func widen[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64](v []T) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}

func (v Value) asInt() (int64, bool) {
	switch n := v.V.(type) {
	case uint8:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint64:
		return int64(n), n <= math.MaxInt64
	case int64:
		return n, true
	}
	return 0, false
}

// Lookup finds a tensor by name.
func (f *File) Lookup(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// Data is the tensor's bytes within the mapped file: read only.
func (f *File) Data(t Tensor) []byte {
	return f.data[t.Offset : t.Offset+t.Size : t.Offset+t.Size]
}

// clip keeps a hostile name fit for an error.
func clip(s string) string { return text.Name(s, 80) }

var le = binary.LittleEndian
