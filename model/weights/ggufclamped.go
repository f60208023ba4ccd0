package weights

import (
	"fmt"
	"slices"
	"strings"

	"agentcli/internal/codes"
	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

// clampedPart is how a tensor of gpt-oss's experts follows from those of a file, where gate and up
// are tensors of their own and matrices are [experts, out, in]; ours are [experts, in, out].
type clampedPart struct {
	up     string // the other half of a tensor whose columns are gate, up, gate, up, …; "": it is whole
	matrix bool   // rather than a bias
}

// clampedNames are those of a layer in a file and ours. Gates stand for gates and ups.
var clampedNames = map[string]string{
	"ffn_gate_exps.weight": arch.ClampedGateUp, "ffn_gate_exps.bias": arch.ClampedGateUpBias,
	"ffn_down_exps.weight": arch.ClampedDown, "ffn_down_exps.bias": arch.ClampedDownBias,
}

// isClamped reports whether a tensor of ours is of those experts.
func isClamped(name string) bool {
	for _, ours := range clampedNames {
		if strings.HasSuffix(name, "."+ours) {
			return true
		}
	}
	return false
}

// addClamped takes a tensor of experts; false: it is another.
func (g *ggufTensors) addClamped(t gguf.Tensor, shape []int64, take func(string, []int64, ggufPart)) (bool, error) {
	layer, rest, ok := layerOf(t.Name)
	ours, known := clampedNames[strings.Replace(rest, "_up_", "_gate_", 1)]
	if !ok || !known {
		return false, nil
	}
	part := &clampedPart{matrix: strings.HasSuffix(rest, ".weight")}
	if want := map[bool]int{true: 3, false: 2}[part.matrix]; len(shape) != want {
		return true, malformed.At(g.file.Path, "tensor "+printable(t.Name), malformed.Mismatch, "it has %d dimensions, not %d", len(shape), want)
	}
	shape = slices.Clone(shape)
	last := len(shape) - 1
	if part.matrix {
		shape[1], shape[2] = shape[2], shape[1]
	}
	if !strings.Contains(rest, "_down_") {
		other := strings.Replace(t.Name, "_gate_", "_up_", 1)
		if other == t.Name {
			other = strings.Replace(t.Name, "_up_", "_gate_", 1)
		}
		if u, ok := g.file.Lookup(other); !ok || !slices.Equal(u.Dims, t.Dims) {
			return true, malformed.At(g.file.Path, "tensor "+printable(t.Name), malformed.Mismatch, "%s is missing or has another shape",
				printable(other))
		}
		if strings.Contains(rest, "_up_") { // is read with the gate
			return true, nil
		}
		part.up = other
		shape[last] *= 2
	}
	take(arch.LayerPrefix(layer)+ours, shape, ggufPart{name: t.Name, n: 1, clamped: part})
	return true, nil
}

// clampedTensor makes a tensor of ours.
func (g *ggufTensors) clampedTensor(i TensorInfo, part ggufPart, t gguf.Tensor) (Tensor, error) {
	out := Tensor{Name: i.Name, DType: i.DType, Shape: i.Shape}
	data := [][]byte{dequantise(t.Type, g.file.Data(t))}
	if up := part.clamped.up; up != "" {
		u, _ := g.file.Lookup(up) // addClamped found it
		data = append(data, dequantise(u.Type, g.file.Data(u)))
	}
	columns := int(i.Shape[len(i.Shape)-1]) // of ours
	rows, experts := 1, int(i.Shape[0])
	if part.clamped.matrix {
		rows = int(i.Shape[1])
	}
	out.Data = make([]byte, 4*experts*rows*columns)
	theirs := columns / len(data)
	parallel(experts, 1, func(from, to int) {
		for e := from; e < to; e++ {
			for r := range rows {
				for k := range columns {
					src := 4 * ((e*theirs+k/len(data))*rows + r)
					copy(out.Data[4*((e*rows+r)*columns+k):], data[k%len(data)][src:src+4])
				}
			}
		}
	})
	return out, nil
}

// codesOf are gpt-oss's experts in MXFP4 or NVFP4, laid out as in its own safetensors; nil: it is another tensor.
func (g *ggufTensors) codesOf(i TensorInfo) *codes.Matrices {
	part := g.names[i.Name]
	t, ok := g.file.Lookup(part.name)
	if !ok || part.clamped == nil || !part.clamped.matrix {
		return nil
	}
	stored := [][]byte{g.file.Data(t)}
	if part.clamped.up != "" { // its rows and those of the gates take turns
		up, ok := g.file.Lookup(part.clamped.up)
		if !ok || up.Type != t.Type {
			return nil
		}
		stored = append(stored, g.file.Data(up))
	}
	c := floatCodes(t.Type, int(i.Shape[0]), int(i.Shape[2]), int(i.Shape[1]), stored...)
	if c != nil {
		c.Transposed = true
	}
	return c
}

// clampedOutputs are the tensors of a file that follow from one of ours: the reverse.
func clampedOutputs(want TensorInfo, t gguf.TensorType) []ggufOutput {
	prefix, rest, _ := strings.Cut(strings.TrimPrefix(want.Name, "model.layers."), ".")
	shape := slices.Clone(want.Shape)
	last := len(shape) - 1
	matrix := last == 2
	if matrix {
		shape[1], shape[2] = shape[2], shape[1]
	}
	var out []ggufOutput
	for stem, ours := range clampedNames {
		if rest != ours {
			continue
		}
		stems := []string{stem}
		if !strings.Contains(stem, "_down_") {
			stems = append(stems, strings.Replace(stem, "_gate_", "_up_", 1))
			shape[1] /= 2
		}
		for k, stem := range stems {
			o := TensorInfo{Name: stem, Shape: shape}
			kind := gguf.F32 // of biases
			if matrix {
				kind = ggufType(t, o)
			}
			out = append(out, ggufOutput{Tensor: gguf.Tensor{Name: "blk." + prefix + "." + stem, Type: kind, Dims: ggufDims(o)},
				from: []string{want.Name}, take: func(data []byte, from []int64) []byte { return clampedHalf(data, from, k, len(stems)) }})
		}
	}
	return out
}

// clampedHalf takes every step-th column from the first on, [experts, in, out], as [experts, out, in].
func clampedHalf(data []byte, shape []int64, first, step int) []byte {
	experts, rows, columns := int(shape[0]), 1, int(shape[len(shape)-1])
	if len(shape) == 3 {
		rows = int(shape[1])
	}
	out := make([]byte, 0, len(data)/step)
	for e := range experts {
		for k := first; k < columns; k += step {
			for r := range rows {
				at := 4 * ((e*rows+r)*columns + k)
				out = append(out, data[at:at+4]...)
			}
		}
	}
	return out
}

func sayGptOss(c Config, say func(string, any)) error {
	first, sliding := c.First(), make([]bool, len(c.Layers))
	alternate := true
	for i, l := range c.Layers {
		a, e := l.Attention, l.Experts.Clamped
		sliding[i] = a.Window > 0
		alternate = alternate && sliding[i] == (i%2 == 0)
		switch {
		case e == nil || e.Alpha != 1.702 || e.Limit != 7:
			return fmt.Errorf("layer %d: experts whose swiglu_alpha and swiglu_limit are not 1.702 and 7", i)
		case !a.OBias:
			return fmt.Errorf("layer %d: attention without biases", i)
		}
		if a.Window > 0 {
			say("attention.sliding_window", uint32(a.Window))
		}
	}
	if c.Tied {
		return fmt.Errorf("llama.cpp wants an output matrix of its own (tie_word_embeddings)")
	}
	if !slices.Contains(sliding, true) {
		return fmt.Errorf("llama.cpp wants layers with a sliding window")
	}
	if !alternate {
		say("attention.sliding_window_pattern", sliding)
	}
	say("expert_count", uint32(first.Experts.Count))
	say("expert_used_count", uint32(first.Experts.Active))
	say("expert_feed_forward_length", uint32(first.Experts.Size))
	return nil
}

func readGptOssKeys(g *ggufKeys, _ map[string]TensorInfo) {
	g.int("num_local_experts", "expert_count", true)
	g.int("num_experts_per_tok", "expert_used_count", true)
	g.int("intermediate_size", "expert_feed_forward_length", false)
	g.values["head_dim"] = g.headSize()
	g.slidingLayers(func(layer int) bool { return layer%2 == 0 })
	if s, ok := g.values["rope_scaling"].(map[string]any); ok && s["rope_type"] == "yarn" {
		s["truncate"] = false // as in all models of the family; no key says it
	}
}
