package weights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

// ggufFileTypes are llama.cpp's numbers for general.file_type.
var ggufFileTypes = map[gguf.TensorType]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q8_0: 7, gguf.Q4_K: 14, gguf.BF16: 32}

// SaveGGUF writes the model as a GGUF for llama.cpp. Matrices are stored in the
// given type, F32, F16, BF16, Q8_0 or Q4_K; norms and biases in float32. With
// Q4_K the embeddings and the output matrix are Q8_0, as are matrices whose rows
// do not divide into its blocks; where those of Q8_0 do not either, F16.
// tokenizer is the metadata of the tokenizer, of a vocabulary of VocabSize.
func SaveGGUF(m *Model, path string, t gguf.TensorType, tokenizer []gguf.KeyValue) error {
	fileType, ok := ggufFileTypes[t]
	if !ok {
		return fmt.Errorf("%s: %s cannot be written; F32, F16, BF16, Q8_0 and Q4_K can", path, t)
	}
	c := m.config
	family, ok := ggufOf(c.Architecture)
	if !ok || c.Score {
		return malformed.At(m.path, "architecture", malformed.Unsupported, "%s cannot be written as a GGUF; %s can", c.Architecture, ggufKinds())
	}
	if why := ggufRefusal(c, family); why != "" {
		return malformed.At(m.path, "config.json", malformed.Unsupported, "it cannot be written as a GGUF: %s", why)
	}
	kv, err := c.ggufMetadata(family, fileType)
	if err != nil {
		return malformed.At(m.path, "config.json", malformed.Unsupported, "it cannot be written as a GGUF: %w", err)
	}
	outputs, err := ggufOutputs(m, family, t)
	if err != nil {
		return err
	}
	tensors := make([]gguf.Tensor, len(outputs))
	for i, o := range outputs {
		tensors[i] = o.Tensor
	}
	w, err := gguf.Create(path, append(kv, tokenizer...), tensors)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, o := range outputs {
		data, err := o.bytes(m)
		if err != nil {
			return err
		}
		if err := w.Write(o.Name, data); err != nil {
			return err
		}
	}
	return w.Close()
}

// ggufOutput is a tensor of a file that is written.
type ggufOutput struct {
	gguf.Tensor
	from []string                                // our tensors, one behind the other
	take func(data []byte, shape []int64) []byte // what of them it is, in float32; nil: all
	data []byte                                  // where it is from no tensor
}

// ggufOutputs are the tensors of a file, in order.
func ggufOutputs(m *Model, family ggufFamily, t gguf.TensorType) ([]ggufOutput, error) {
	c, at := m.config, map[string]int{} // by the name in the file
	var out []ggufOutput
	for _, want := range c.Tensors() {
		if want.Name == lmHead && c.Tied {
			continue
		}
		if family.clamped && isClamped(want.Name) {
			out = append(out, clampedOutputs(want, t)...)
			continue
		}
		name := family.expertStack(want.Name)
		if name == "" {
			var known bool
			if name, known = family.ggufName(want.Name); !known {
				return nil, malformed.At(m.path, "tensor "+want.Name, malformed.Unsupported, "a GGUF of %s has no name for it", family.kind)
			}
		}
		if i, ok := at[name]; ok {
			out[i].from = append(out[i].from, want.Name)
			continue
		}
		at[name] = len(out)
		out = append(out, ggufOutput{Tensor: gguf.Tensor{Name: name, Type: ggufType(t, want), Dims: ggufDims(want)}, from: []string{want.Name}})
	}
	for i, o := range out {
		if len(o.from) > 0 && family.expertStack(o.from[0]) != "" {
			out[i].Dims = append(o.Dims, uint64(len(o.from)))
		}
	}
	factors := ropeTensors(c)
	for _, name := range slices.Sorted(maps.Keys(factors)) {
		data := factors[name]
		out = append(out, ggufOutput{Tensor: gguf.Tensor{Name: name, Type: gguf.F32, Dims: []uint64{uint64(len(data) / 4)}}, data: data})
	}
	return out, nil
}

// ggufDims are a tensor's dimensions in a file.
func ggufDims(i TensorInfo) []uint64 {
	var dims []uint64
	for k, d := range slices.Backward(i.Shape) {
		if k != 1 || !isConv(i.Name) {
			dims = append(dims, uint64(d))
		}
	}
	return dims
}

// bytes are the tensor's data.
func (o ggufOutput) bytes(m *Model) (data []byte, err error) {
	if o.data != nil {
		return o.data, nil
	}
	for _, name := range o.from {
		part, err := ggufData(m, name, o)
		if err != nil {
			return nil, err
		}
		if len(o.from) == 1 {
			return part, nil
		}
		data = append(data, part...)
	}
	return data, nil
}

// ggufData is a tensor in llama.cpp's order of rows and in the type of an output.
func ggufData(m *Model, name string, o ggufOutput) ([]byte, error) {
	x, err := m.Tensor(name)
	if err != nil {
		return nil, err
	}
	if x, err = x.As(F32); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	if o.take != nil {
		return quantise(o.Type, o.take(x.Data, x.Shape))
	}
	return quantise(o.Type, changeOf(m.config, name).do(x.Data))
}

// ggufName is the reverse of hfName.
func (f ggufFamily) ggufName(name string) (string, bool) {
	stem, suffix, prefix := strings.TrimSuffix(name, ".weight"), ".weight", ""
	if s, ok := strings.CutSuffix(name, ".bias"); ok {
		stem, suffix = s, ".bias"
	}
	if rest, ok := strings.CutPrefix(stem, "model.layers."); ok {
		n, r, _ := strings.Cut(rest, ".")
		prefix, stem = "blk."+n+".", r
		for theirs, ours := range f.whole {
			if strings.HasSuffix(name, "."+n+"."+ours) {
				return prefix + theirs, true
			}
		}
	}
	g, ok := f.stem(stem)
	return prefix + g + suffix, ok
}

// routers are matrices that llama.cpp has in float32.
var routers = []string{arch.RouterWeight, arch.NumberedRouter, arch.ClampedRouter + ".weight", arch.BesideRouter + ".weight",
	arch.SharedGate + ".weight"}

// ggufType is the type in which a tensor is stored.
func ggufType(t gguf.TensorType, i TensorInfo) gguf.TensorType {
	if len(i.Shape) == 1 || isConv(i.Name) || slices.ContainsFunc(routers, func(r string) bool { return strings.HasSuffix(i.Name, "."+r) }) {
		return gguf.F32
	}
	row := i.Shape[len(i.Shape)-1]
	if t == gguf.Q4_K && (row%256 != 0 || i.Name == lmHead || i.Name == embedTokens) {
		t = gguf.Q8_0
	}
	if t == gguf.Q8_0 && row%32 != 0 {
		t = gguf.F16
	}
	return t
}

// ggufMetadata is what llama.cpp needs to know of the model.
func (c Config) ggufMetadata(f ggufFamily, fileType uint32) ([]gguf.KeyValue, error) {
	a, l := f.kind+".", c.First()
	heads, rope := globalAttention(c), globalRope(c)
	n := func(v int) uint32 { return uint32(v) }
	kv := []gguf.KeyValue{
		{Key: "general.architecture", V: f.kind}, {Key: "general.file_type", V: fileType},
		{Key: "general.quantization_version", V: uint32(2)},
		{Key: a + "vocab_size", V: n(c.VocabSize)}, {Key: a + "context_length", V: n(c.MaxPositions)},
		{Key: a + "embedding_length", V: n(c.HiddenSize)},
		{Key: a + "block_count", V: n(len(c.Layers))}, {Key: a + "feed_forward_length", V: n(max(l.MLP.Size, l.Experts.Size))},
		{Key: a + "attention.head_count", V: n(heads.Heads)}, {Key: a + "attention.head_count_kv", V: n(heads.KVHeads)},
		{Key: a + "attention.key_length", V: n(heads.HeadDim)}, {Key: a + "attention.value_length", V: n(heads.HeadDim)},
		{Key: a + "attention.layer_norm_rms_epsilon", V: float32(c.Eps)},
		{Key: a + "rope.dimension_count", V: n(rope.Dim)}, {Key: a + "rope.freq_base", V: float32(rope.Theta)},
	}
	said := map[string]int{}
	say := func(key string, v any) {
		if i, ok := said[a+key]; ok {
			kv[i].V = v
			return
		}
		said[a+key] = len(kv)
		kv = append(kv, gguf.KeyValue{Key: a + key, V: v})
	}
	for i, e := range kv {
		said[e.Key] = i
	}
	if f.write != nil {
		if err := f.write(c, say); err != nil {
			return nil, err
		}
	}
	return kv, sayScaling(c, f, say)
}

// GGUFTypes are the types that SaveGGUF writes, by the names of model convert.
func GGUFTypes() map[string]gguf.TensorType {
	out := map[string]gguf.TensorType{}
	for t := range ggufFileTypes {
		out[strings.ToLower(t.String())] = t
	}
	return out
}
