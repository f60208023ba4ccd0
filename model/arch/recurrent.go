package arch

// ShortConv is LFM2's mixer: out(c·conv(b·x)) of [b, c, x] = in(h), with a convolution of each
// channel over Kernel tokens, its own the last (Liquid AI 2025).
type ShortConv struct {
	Kernel int
	Bias   bool
}

func (m ShortConv) tensors(h int64, add func(name string, shape ...int64), matrix func(name string, rows, columns int64, bias bool)) {
	matrix(ConvIn, 3*h, h, m.Bias)
	add(ConvWeight+weightSuffix, h, 1, int64(m.Kernel))
	if m.Bias {
		add(ConvWeight+biasSuffix, h)
	}
	matrix(ConvOut, h, h, m.Bias)
}

// DeltaNet is a mixer by the gated delta rule (Yang et al. 2024): queries, keys and values go
// through a convolution over Kernel tokens and SiLU; each value head has a matrix [KeyDim,
// ValueDim], which is the state between tokens.
type DeltaNet struct{ Kernel, KeyHeads, ValueHeads, KeyDim, ValueDim int }

// Channels are those of the convolution.
func (m DeltaNet) Channels() int { return 2*m.KeyHeads*m.KeyDim + m.ValueHeads*m.ValueDim }

func (m DeltaNet) tensors(h int64, add func(name string, shape ...int64), matrix func(name string, rows, columns int64, bias bool)) {
	values, heads := int64(m.ValueHeads*m.ValueDim), int64(m.ValueHeads)
	matrix(DeltaInQKV, int64(m.Channels()), h, false)
	matrix(DeltaInZ, values, h, false)
	matrix(DeltaInB, heads, h, false)
	matrix(DeltaInA, heads, h, false)
	add(DeltaConv+weightSuffix, int64(m.Channels()), 1, int64(m.Kernel))
	add(DeltaALog, heads)
	add(DeltaDtBias, heads)
	add(DeltaNorm+weightSuffix, int64(m.ValueDim))
	matrix(DeltaOut, h, values, false)
}

// ConvWindow is the shape of what a sequence keeps of a layer's convolution: tokens and channels;
// no tokens where the layer has none.
func (d Decoder) ConvWindow(layer int) (tokens, channels int) {
	switch l := d.Layers[layer]; {
	case l.Conv.Kernel > 0:
		return l.Conv.Kernel - 1, d.HiddenSize
	case l.Delta.Kernel > 0:
		return l.Delta.Kernel - 1, l.Delta.Channels()
	}
	return 0, 0
}

// Recurrent reports whether a layer has a state between tokens.
func (d Decoder) Recurrent() bool {
	for _, l := range d.Layers {
		if l.Conv.Kernel > 0 || l.Delta.Kernel > 0 {
			return true
		}
	}
	return false
}

// StateBytes is what the states of one sequence take, in all layers, where a number of the
// computation takes size bytes. The delta rule's matrices are float32 at least.
func (d Decoder) StateBytes(size int64) int64 {
	n := int64(0)
	for i, l := range d.Layers {
		tokens, channels := d.ConvWindow(i)
		n += int64(tokens) * int64(channels) * size
		n += int64(l.Delta.ValueHeads) * int64(l.Delta.KeyDim) * int64(l.Delta.ValueDim) * max(size, 4)
	}
	return n
}

// readMixers reads which layers attend; the others have a mixer that the caller sets. Types
// are the names in layer_types, other is what a layer is called that does not attend.
func readMixers(d *Decoder, k *Keys, other string, attends func(layer int) bool, set func(l *Layer)) {
	types := k.Strings("layer_types")
	if types != nil && len(types) != len(d.Layers) {
		k.mismatch("layer_types", "%d entries for %d layers", len(types), len(d.Layers))
		return
	}
	for i := range d.Layers {
		a := attends(i)
		if types != nil {
			if a = types[i] == "full_attention"; !a && types[i] != other {
				k.refuse("layer_types", "%q is not supported", types[i])
			}
		}
		if !a {
			d.Layers[i].Attention = Attention{Rope: NoRope}
			set(&d.Layers[i])
		}
	}
}

// readKernel reads over how many tokens a convolution goes.
func readKernel(k *Keys, key string, otherwise int) int {
	n := k.SizeOr(key, 1<<8, otherwise)
	if n < 2 {
		k.refuse(key, "%d is not supported; 2 and more are", n)
		return 2
	}
	return n
}
