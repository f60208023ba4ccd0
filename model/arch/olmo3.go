package arch

// OLMo 3 (OLMo team 2025): OLMo 2 with a window on three layers of four, which rotate
// without the scaling of the others.
var olmo3 = family{name: "olmo3", class: "Olmo3ForCausalLM", read: func(k *Keys, d *Decoder) {
	a, m := readOLMo(d, k)
	stack(d, k, olmoNorms, a, m)
	window := k.SizeOr("sliding_window", 1<<30, 4096)
	sliding := layerTypes(d, k, window, func(i int) bool { return (i+1)%4 != 0 })
	ropeByType(d, k, a.HeadDim, sliding, 500000, "rope_theta", 500000)
}}

// ropeByType reads rope parameters of two kinds of layers: those that see everything, and
// those with a window, whose base the key `slow` names in older files.
func ropeByType(d *Decoder, k *Keys, dim int, sliding []bool, full float64, slow string, window float64) {
	full = k.Positive("rope_theta", full)
	window = k.Positive(slow, window)
	p := k.Sub("rope_parameters")
	none := func() *Keys { return &Keys{path: k.path, read: map[string]bool{}, err: k.err} }
	fullOf, windowOf := none(), none()
	switch {
	case p == nil:
		if s := k.Sub("rope_scaling"); s != nil {
			fullOf = s
		}
	case p.Has("full_attention") || p.Has("sliding_attention"):
		if s := p.Sub("full_attention"); s != nil {
			fullOf = s
		}
		if s := p.Sub("sliding_attention"); s != nil {
			windowOf = s
		}
	default: // one for all
		fullOf = p
	}
	at := map[bool]int{}
	for i := range d.Layers {
		s := sliding[i]
		if _, ok := at[s]; !ok {
			if s {
				at[s] = ropeOf(d, k, windowOf, dim, window, 1)
			} else {
				at[s] = ropeOf(d, k, fullOf, dim, full, 1)
			}
		}
		d.Layers[i].Attention.Rope = at[s]
	}
	for _, p := range []*Keys{fullOf, windowOf} { // of a kind that no layer is of
		for key := range p.values {
			p.read[key] = true
		}
	}
}
