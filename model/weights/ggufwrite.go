package weights

import (
	"fmt"
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
	names := map[string][]string{} // in the GGUF → ours, one behind the other
	var tensors []gguf.Tensor
	for _, want := range c.Tensors() {
		if want.Name == lmHead && c.Tied {
			continue
		}
		name := expertStack(want.Name)
		if name == "" {
			if name, ok = family.ggufName(want.Name); !ok {
				return malformed.At(m.path, "tensor "+want.Name, malformed.Unsupported, "a GGUF of %s has no name for it", family.kind)
			}
		}
		names[name] = append(names[name], want.Name)
		if len(names[name]) > 1 {
			continue
		}
		dims := make([]uint64, len(want.Shape))
		for i, d := range want.Shape {
			dims[len(dims)-1-i] = uint64(d)
		}
		tensors = append(tensors, gguf.Tensor{Name: name, Type: ggufType(t, want), Dims: dims})
	}
	for i, g := range tensors {
		if n := len(names[g.Name]); expertStack(names[g.Name][0]) != "" {
			tensors[i].Dims = append(g.Dims, uint64(n))
		}
	}
	freqs := c.llama3Factors()
	if freqs != nil {
		tensors = append(tensors, gguf.Tensor{Name: ropeFreqs, Type: gguf.F32, Dims: []uint64{uint64(len(freqs) / 4)}})
	}
	w, err := gguf.Create(path, append(kv, tokenizer...), tensors)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, g := range tensors {
		data := freqs
		if g.Name != ropeFreqs {
			data = nil
			for _, name := range names[g.Name] {
				part, err := ggufData(m, name, g.Type)
				if err != nil {
					return err
				}
				if data = append(data, part...); len(names[g.Name]) == 1 {
					data = part
				}
			}
		}
		if err := w.Write(g.Name, data); err != nil {
			return err
		}
	}
	return w.Close()
}

// ggufData is a tensor in llama.cpp's order of rows and in the given type.
func ggufData(m *Model, name string, t gguf.TensorType) ([]byte, error) {
	x, err := m.Tensor(name)
	if err != nil {
		return nil, err
	}
	if x, err = x.As(F32); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	if heads := m.config.permutedHeads(name); heads > 0 {
		x.Data = permute(x.Data, int(x.Shape[0]), heads)
	}
	return quantise(t, plusEach(x.Data, ggufOffset(m.config, name)))
}

// permutedHeads is the number of heads of the tensors whose rows llama.cpp has in
// another order; 0 for all others.
func (c Config) permutedHeads(name string) int {
	if f, ok := ggufOf(c.Architecture); !ok || !f.permuted {
		return 0
	}
	switch {
	case strings.Contains(name, "self_attn.q_proj"):
		return c.First().Attention.Heads
	case strings.Contains(name, "self_attn.k_proj"):
		return c.First().Attention.KVHeads
	}
	return 0
}

// permute is the reverse of unpermute.
func permute(b []byte, rows, heads int) []byte {
	w := len(b) / rows
	half := rows / heads / 2
	out := make([]byte, len(b))
	for h := range heads {
		for j := range 2 {
			for i := range half {
				src, dst := h*2*half+j*half+i, h*2*half+i*2+j
				copy(out[dst*w:(dst+1)*w], b[src*w:(src+1)*w])
			}
		}
	}
	return out
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
	}
	g, ok := f.stem(stem)
	return prefix + g + suffix, ok
}

// ggufType is the type in which a tensor is stored.
func ggufType(t gguf.TensorType, i TensorInfo) gguf.TensorType {
	if len(i.Shape) == 1 || strings.HasSuffix(i.Name, arch.RouterWeight) {
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
	heads, rope := l.Attention, globalRope(c)
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
	if f.write != nil {
		said := map[string]bool{}
		err := f.write(c, func(key string, v any) {
			if !said[key] {
				kv = append(kv, gguf.KeyValue{Key: a + key, V: v})
			}
			said[key] = true
		})
		if err != nil {
			return nil, err
		}
	}
	if s := rope.Scaling; s != nil {
		switch s.Type {
		case "llama3": // is a tensor
		case "linear", "yarn":
			if !plainScaling(c, rope) {
				return nil, fmt.Errorf("rope scaling of type %s with more than a factor and an original length", s.Type)
			}
			kv = append(kv, gguf.KeyValue{Key: a + "rope.scaling.type", V: s.Type},
				gguf.KeyValue{Key: a + "rope.scaling.factor", V: float32(s.Factor)})
			if s.Original > 0 {
				kv = append(kv, gguf.KeyValue{Key: a + "rope.scaling.original_context_length", V: n(s.Original)})
			}
		default:
			return nil, fmt.Errorf("rope scaling of type %q; linear, llama3 and yarn can be", s.Type)
		}
	}
	return kv, nil
}

// llama3Factors are the divisors of the frequencies by which llama.cpp stores
// Llama 3's scaling; nil where there is none.
func (c Config) llama3Factors() []byte {
	r := globalRope(c)
	if r.Scaling == nil || r.Scaling.Type != "llama3" {
		return nil
	}
	out := make([]byte, 4*(r.Dim/2))
	plain := arch.Rope{Theta: r.Theta, Dim: r.Dim}.InverseFrequencies(1)
	for i, scaled := range r.InverseFrequencies(1) {
		put(out, i, float32(plain[i]/scaled))
	}
	return out
}

// GGUFTypes are the types that SaveGGUF writes, by the names of model convert.
func GGUFTypes() map[string]gguf.TensorType {
	out := map[string]gguf.TensorType{}
	for t := range ggufFileTypes {
		out[strings.ToLower(t.String())] = t
	}
	return out
}
