// Package weights reads and writes model files in plain Go: Hugging Face
// folders (config.json and safetensors, one file or sharded) and GGUF. Weights
// are mapped, not copied; a GGUF's tensors are given under their Hugging Face
// names and in Hugging Face's order of rows.
//
// It is in layer 1: of this module it may import model/gguf only.
package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"agentcli/internal/codes"
	"agentcli/internal/malformed"
	"agentcli/model/gguf"
)

// DType is how numbers are stored, named as in a safetensors header.
type DType string

// The number formats of safetensors.
const (
	F64    DType = "F64"
	F32    DType = "F32"
	F16    DType = "F16"
	BF16   DType = "BF16"
	I64    DType = "I64"
	I32    DType = "I32"
	I16    DType = "I16"
	I8     DType = "I8"
	U8     DType = "U8"
	Bool   DType = "BOOL"
	F8E4M3 DType = "F8_E4M3"
	F8E5M2 DType = "F8_E5M2"
	F8E8M0 DType = "F8_E8M0"
)

// Size is the number of bytes of one value; 0 for an unknown type.
func (d DType) Size() int64 {
	switch d {
	case F64, I64, "U64":
		return 8
	case F32, I32, "U32":
		return 4
	case F16, BF16, I16, "U16":
		return 2
	case I8, U8, Bool, F8E4M3, F8E5M2, F8E8M0:
		return 1
	}
	return 0
}

// TensorInfo describes a tensor without its data.
type TensorInfo struct {
	Name  string
	DType DType
	Shape []int64
}

// Tensor is a tensor in row-major order, little endian. Data may lie in a
// mapped file: it must not be written, and it is valid until the model is
// closed.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64
	Data  []byte
	Codes *codes.Matrices // of InCodes alone
}

// Formats of a model.
const (
	FormatSafetensors = "safetensors"
	FormatGGUF        = "gguf"
)

// Model is an open model. It is safe for concurrent use.
type Model struct {
	path     string
	format   string
	config   Config
	template string
	names    []string
	infos    map[string]TensorInfo
	files    []string
	source   tensorSource
	adapted  *adaptedTensors // the source where the model is an adapter over a base, else nil
}

// tensorSource is where a model's tensors are: in a folder, in a GGUF, or in a base with
// an adapter over it.
type tensorSource interface {
	tensor(i TensorInfo) (Tensor, error)
	mapped(name string) [][]byte // bytes of its files that tensor reads, or most of them
	storedAs() map[string]int    // number format on disk → tensors
	close() error
}

// Open opens a Hugging Face folder with a config.json, a GGUF file, or a folder
// with a LoRA adapter in PEFT's layout, whose tensors are then those of the base
// with the adapter merged in. It checks every tensor's place and shape.
func Open(path string) (*Model, error) {
	m, err := open(path)
	if err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// missing is the error of a path that is not there.
type missing string

func (m missing) Error() string      { return string(m) + ": no such file or folder; look at the path" }
func (m missing) Is(kind error) bool { return kind == fs.ErrNotExist }

func open(path string) (*Model, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(path)
	}
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		if IsAdapter(path) {
			return openAdapter(path)
		}
		return openFolder(path)
	}
	if gguf.Sniff(path) || filepath.Ext(path) == ".gguf" {
		return openGGUF(path)
	}
	return nil, fmt.Errorf("%s: neither a folder with a config.json nor a GGUF file", path)
}

// Config is the model's shape.
func (m *Model) Config() Config { return m.config }

// Names lists the tensors by their Hugging Face names, in the file's order.
func (m *Model) Names() []string { return m.names }

// Has reports whether there is such a tensor.
func (m *Model) Has(name string) bool { _, ok := m.infos[name]; return ok }

// Info describes a tensor as Tensor will return it.
func (m *Model) Info(name string) (TensorInfo, bool) { i, ok := m.infos[name]; return i, ok }

// ChatTemplate is the template inside the model's files (a GGUF's metadata,
// chat_template.jinja or tokenizer_config.json), "" if none.
func (m *Model) ChatTemplate() string { return m.template }

// Path is what Open was given.
func (m *Model) Path() string { return m.path }

// Format is FormatSafetensors or FormatGGUF.
func (m *Model) Format() string { return m.format }

// Files lists the weight files.
func (m *Model) Files() []string { return m.files }

// Parameters is the number of values in all tensors; tied embeddings count
// once.
func (m *Model) Parameters() int64 {
	n := int64(0)
	for _, i := range m.infos {
		n += count(i.Shape)
	}
	return n
}

// Storage lists the number formats on disk with the number of tensors in each,
// as "Q4_1 ×210", the most frequent first.
func (m *Model) Storage() []string {
	c := m.source.storedAs()
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if c[a] != c[b] {
			return c[b] - c[a]
		}
		if a < b {
			return -1
		}
		return 1
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s ×%d", k, c[k])
	}
	return keys
}

// Tensor returns a tensor. From safetensors it is the mapped data as stored;
// from a GGUF it is float32, computed anew at each call unless it is stored so.
func (m *Model) Tensor(name string) (Tensor, error) {
	i, ok := m.infos[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: no tensor %s", m.path, name)
	}
	return m.source.tensor(i)
}

// TensorFor is Tensor for whoever computes in d, which is float32 or bfloat16: in the type in which the file has it, and
// where its numbers are first computed (a quantised model), in d. The numbers in d are those of Tensor, with fewer bytes on
// the way.
func (m *Model) TensorFor(name string, d DType) (Tensor, error) {
	if x := m.adapted; x != nil && !x.changes(name) {
		return x.base.TensorFor(name, d)
	}
	source, ok := m.source.(interface {
		tensorFor(i TensorInfo, d DType) (Tensor, error)
	})
	if !ok {
		return m.Tensor(name)
	}
	i, ok := m.infos[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: no tensor %s", m.path, name)
	}
	return source.tensorFor(i, d)
}

// Close unmaps the files; the tensors' data must not be used any more.
func (m *Model) Close() error { return m.source.close() }

func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// check holds names and shapes against the config.
func (m *Model) check() error {
	for _, want := range m.config.Tensors() {
		i, ok := m.infos[want.Name]
		if !ok {
			if want.Name == lmHead && m.config.Tied {
				continue
			}
			return malformed.At(m.path, "tensor "+want.Name, malformed.Missing, "it is missing; %s with %d layers needs it",
				m.config.Architecture, len(m.config.Layers))
		}
		if !slices.Equal(i.Shape, want.Shape) {
			return malformed.At(m.path, "tensor "+want.Name, malformed.Mismatch, "shape is %v, but the config says %v", i.Shape, want.Shape)
		}
		switch i.DType {
		case F32, F16, BF16, F64:
		default:
			return malformed.At(m.path, "tensor "+want.Name, malformed.Unsupported, "dtype %s is not supported; F32, F16 and BF16 are", i.DType)
		}
	}
	return nil
}
