package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"agentcli/internal/malformed"
)

// Writer writes a safetensors file tensor by tensor, in any order. The file
// appears under its name only when Close has succeeded. It serves one
// goroutine.
type Writer struct {
	f     *os.File
	path  string
	start int64
	spans map[string][2]int64
	done  map[string]bool
	err   error
}

// CreateSafetensors starts a file that will hold the given tensors. meta is the
// header's __metadata__; "format": "pt", which transformers asks for, is added
// if it is not set.
func CreateSafetensors(path string, infos []TensorInfo, meta map[string]string) (*Writer, error) {
	md := map[string]string{"format": "pt"}
	for k, v := range meta {
		md[k] = v
	}
	w := &Writer{path: path, spans: map[string][2]int64{}, done: map[string]bool{}}
	var head bytes.Buffer
	put := func(v any) error {
		b, err := json.Marshal(v)
		head.Write(b)
		return err
	}
	head.WriteString(`{"__metadata__":`)
	if err := put(md); err != nil {
		return nil, err
	}
	off := int64(0)
	for _, i := range infos {
		size := i.DType.Size()
		if size == 0 {
			return nil, malformed.At(path, "tensor "+i.Name, malformed.Unsupported, "dtype %q is not known", string(i.DType))
		}
		if _, dup := w.spans[i.Name]; dup || i.Name == "__metadata__" {
			return nil, malformed.At(path, "tensor "+i.Name, malformed.Duplicate, "the name occurs twice")
		}
		n := count(i.Shape) * size
		shape := i.Shape
		if shape == nil {
			shape = []int64{}
		}
		head.WriteByte(',')
		if err := put(i.Name); err != nil {
			return nil, err
		}
		head.WriteByte(':')
		err := put(struct {
			DType   DType    `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{i.DType, shape, [2]int64{off, off + n}})
		if err != nil {
			return nil, err
		}
		w.spans[i.Name] = [2]int64{off, off + n}
		off += n
	}
	head.WriteByte('}')
	for head.Len()%8 != 0 { // data starts aligned
		head.WriteByte(' ')
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w.f = f
	w.start = 8 + int64(head.Len())
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(head.Len()))
	if _, err := f.Write(append(n[:], head.Bytes()...)); err != nil {
		w.Abort()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// Write writes one tensor's data, whole.
func (w *Writer) Write(name string, data []byte) error {
	if w.err != nil {
		return w.err
	}
	sp, ok := w.spans[name]
	switch {
	case w.f == nil:
		return fmt.Errorf("%s: the file is closed", w.path)
	case !ok:
		return malformed.At(w.path, "tensor "+name, malformed.Unsupported, "it was not announced")
	case w.done[name]:
		return malformed.At(w.path, "tensor "+name, malformed.Duplicate, "it was written twice")
	case int64(len(data)) != sp[1]-sp[0]:
		return malformed.At(w.path, "tensor "+name, malformed.Mismatch, "it has %d bytes; its shape takes %d", len(data), sp[1]-sp[0])
	}
	if _, err := w.f.WriteAt(data, w.start+sp[0]); err != nil {
		w.err = fmt.Errorf("%s: tensor %s: %w", w.path, name, err)
		return w.err
	}
	w.done[name] = true
	return nil
}

// Close checks that every tensor was written and gives the file its name. On
// any error nothing is left behind.
func (w *Writer) Close() error {
	if w.f == nil {
		return w.err
	}
	err := w.err
	for name := range w.spans {
		if err == nil && !w.done[name] {
			err = malformed.At(w.path, "tensor "+name, malformed.Missing, "it was not written")
		}
	}
	if err != nil {
		w.Abort()
		return err
	}
	f := w.f
	w.f = nil
	err = errors.Join(f.Chmod(0o644), f.Sync(), f.Close())
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

// Save writes the model as a Hugging Face folder's model.safetensors in the
// given type, tensor by tensor. The tokenizer and the config are not its
// business: see Config.WriteHF.
func (m *Model) Save(path string, d DType) error {
	var names []string
	var infos []TensorInfo
	for _, want := range m.config.Tensors() {
		if m.config.Tied && want.Name == lmHead {
			continue
		}
		names = append(names, want.Name)
		want.Name, want.DType = m.config.StoredName(want.Name), d
		infos = append(infos, want)
	}
	w, err := CreateSafetensors(path, infos, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	for k, i := range infos {
		t, err := m.Tensor(names[k])
		if err != nil {
			return err
		}
		if t, err = t.As(d); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		if err := w.Write(i.Name, t.Data); err != nil {
			return err
		}
	}
	return w.Close()
}
