package weights

// File is one safetensors file on its own, without a model around it: a
// checkpoint's state.
type File struct{ s *shard }

// OpenSafetensors maps a safetensors file.
func OpenSafetensors(path string) (*File, error) {
	s, err := openShard(path)
	if err != nil {
		return nil, err
	}
	return &File{s}, nil
}

// Bytes is a tensor's raw little-endian data, mapped: valid until Close.
func (f *File) Bytes(name string) ([]byte, bool) {
	if _, ok := f.s.infos[name]; !ok {
		return nil, false
	}
	return f.s.data(name), true
}

// Tensor is a tensor, its data mapped: valid until Close.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.s.infos[name]
	if !ok {
		return Tensor{}, false
	}
	return Tensor{Name: name, DType: i.DType, Shape: i.Shape, Data: f.s.data(name)}, true
}

// Names are those of its tensors.
func (f *File) Names() []string { return f.s.names }

// Len is the number of tensors.
func (f *File) Len() int { return len(f.s.names) }

// Close unmaps the file.
func (f *File) Close() error { return f.s.m.Close() }
