package weights

import "agentcli/model/gguf"

// blockTypes are those whose matrices InBlocks gives.
var blockTypes = map[gguf.TensorType]bool{gguf.Q8_0: true, gguf.Q4_0: true, gguf.Q4_1: true, gguf.Q5_0: true, gguf.Q5_1: true,
	gguf.Q2_K: true, gguf.Q3_K: true, gguf.Q4_K: true, gguf.Q5_K: true, gguf.Q6_K: true, gguf.IQ4_NL: true, gguf.IQ4_XS: true,
	gguf.IQ1_S: true, gguf.IQ1_M: true, gguf.IQ2_XXS: true, gguf.IQ2_XS: true, gguf.IQ2_S: true, gguf.IQ3_XXS: true, gguf.IQ3_S: true,
	gguf.TQ1_0: true, gguf.TQ2_0: true, gguf.MXFP4: true, gguf.NVFP4: true}

// InBlocks is a matrix, or matrices of one tensor, in the blocks of its GGUF, for whoever computes the numbers: rows are in our
// order, and DType is the file's name for the type, which is none of numbers. False where the format has other numbers
// than the model, and where an adapter changes them.
func InBlocks(m *Model, name string) (Tensor, bool) {
	if x := m.adapted; x != nil && !x.changes(name) {
		return InBlocks(x.base, name)
	}
	g, ok := m.source.(*ggufTensors)
	i, known := m.infos[name]
	if !ok || !known || len(i.Shape) < 2 {
		return Tensor{}, false
	}
	part, change := g.names[name], changeOf(g.config, name)
	t, ok := g.file.Lookup(part.name)
	if !ok || !blockTypes[t.Type] || part.clamped != nil || change.needsFloat32() ||
		len(i.Shape) > 2 && change.rows != nil {
		return Tensor{}, false
	}
	return Tensor{Name: name, DType: DType(t.Type.String()), Shape: i.Shape, Data: change.undo(g.bytesOf(name))}, true
}

// LeastValuesFit reports whether the least values of a matrix of InBlocks are finite float16 numbers, as multiplying it
// as stored needs. In Q4_0 the least value of a block is −8 times its scale; the other types have none or store it.
func LeastValuesFit(t Tensor) bool {
	const most = 0x6fff // an eighth of the largest float16
	if t.DType != DType(gguf.Q4_0.String()) {
		return true
	}
	size := decoders[gguf.Q4_0].bytes
	for at := 0; at < len(t.Data); at += size {
		if le.Uint16(t.Data[at:])&0x7fff > most {
			return false
		}
	}
	return true
}
