//go:build libtorch

package policy

import (
	"math"
	"slices"

	"agentcli/internal/splitmix"
	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/weights"
)

// encoder makes features of images. Its blocks see an image's patches in windows, or all.
type encoder struct {
	*arch.Vision
	patch, patchBias, table torch.Tensor
	blocks                  []visionBlock
	mergers                 []merger // the encoder's own, then DeepStack's
	adapted                 bool     // matrices have adapters that are trained
}

type visionBlock struct {
	norm1, norm1Bias, norm2, norm2Bias  torch.Tensor
	qkv, proj, up, down                 matrix // up: gate and up where the MLP has both
	qkvBias, projBias, upBias, downBias torch.Tensor
}

type merger struct {
	norm, normBias  torch.Tensor
	in, out         matrix
	inBias, outBias torch.Tensor
}

func newEncoder(v *arch.Vision) *encoder {
	return &encoder{Vision: v, blocks: make([]visionBlock, v.Depth), mergers: make([]merger, len(v.Mergers()))}
}

// each calls f for every tensor with the names of the files' tensors that stand below each
// other in it, the mergers' last.
func (e *encoder) each(f func(t *torch.Tensor, names ...string)) {
	both := func(w, bias *torch.Tensor, names ...string) {
		f(w, suffixed(names, ".weight")...)
		f(bias, suffixed(names, ".bias")...)
	}
	both(&e.patch, &e.patchBias, arch.VisionPatch)
	f(&e.table, arch.VisionPosition)
	for i := range e.blocks {
		b, names := &e.blocks[i], e.Block(i)
		both(&b.norm1, &b.norm1Bias, names.Norm1)
		both(&b.qkv.w, &b.qkvBias, names.QKV)
		both(&b.proj.w, &b.projBias, names.Proj)
		both(&b.norm2, &b.norm2Bias, names.Norm2)
		if e.Gated {
			both(&b.up.w, &b.upBias, names.Gate, names.Up)
		} else {
			both(&b.up.w, &b.upBias, names.Up)
		}
		both(&b.down.w, &b.downBias, names.Down)
	}
	for i, names := range e.Mergers() {
		m := &e.mergers[i]
		both(&m.norm, &m.normBias, names.Norm)
		both(&m.in.w, &m.inBias, names.In)
		both(&m.out.w, &m.outBias, names.Out)
	}
}

// copied is the encoder with matrices that may get adapters of their own.
func (e *encoder) copied() *encoder {
	out := *e
	out.blocks, out.mergers = slices.Clone(e.blocks), slices.Clone(e.mergers)
	return &out
}

// matrices are those that adapters may change.
func (e *encoder) matrices() (out []*matrix) {
	for i := range e.blocks {
		b := &e.blocks[i]
		out = append(out, &b.qkv, &b.proj, &b.up, &b.down)
	}
	for i := range e.mergers {
		out = append(out, &e.mergers[i].in, &e.mergers[i].out)
	}
	return out
}

// matrix is the one that a module is part of.
func (e *encoder) matrix(m weights.VisionModule) *matrix {
	switch m.Target {
	case weights.VisionQKV:
		return &e.blocks[m.At].qkv
	case weights.VisionProj:
		return &e.blocks[m.At].proj
	case weights.VisionGate, weights.VisionUp:
		return &e.blocks[m.At].up
	case weights.VisionDown:
		return &e.blocks[m.At].down
	case weights.VisionMergerIn:
		return &e.mergers[m.At].in
	}
	return &e.mergers[m.At].out
}

// hasDropout reports whether adapters drop inputs.
func (e *encoder) hasDropout() bool {
	return e.adapted && slices.ContainsFunc(e.matrices(), func(m *matrix) bool { return m.low != nil && m.low.dropout > 0 })
}

// forImage is the encoder for the kth image of a pass, of which adapters drop other inputs than of the
// images before.
func (e *encoder) forImage(k int) *encoder {
	if k == 0 || !e.hasDropout() {
		return e
	}
	out := e.copied()
	for _, m := range out.matrices() {
		if m.low == nil || m.low.dropout == 0 {
			continue
		}
		low := *m.low
		low.parts = slices.Clone(low.parts)
		for i := range low.parts {
			low.parts[i].Seed = splitmix.Next(low.parts[i].Seed + uint64(k)*splitmix.Gamma)
		}
		m.low = &low
	}
	return out
}

// as is the encoder in another type. One with adapters is in that of the computation already.
func (e *encoder) as(s *torch.Scope, d torch.DType, dev torch.Device) *encoder {
	if s.DType(e.patch) == d {
		return e
	}
	var from []torch.Tensor
	e.each(func(t *torch.Tensor, _ ...string) { from = append(from, *t) })
	out, k := newEncoder(e.Vision), 0
	out.each(func(t *torch.Tensor, _ ...string) {
		if from[k].Defined() {
			*t = s.To(from[k], d, dev)
		}
		k++
	})
	return out
}

// features are what the text model takes of an image, [tokens, hidden size]; deep are those
// that are added behind its first layers.
type features struct {
	main torch.Tensor
	deep []torch.Tensor
}

// all are main and deep.
func (f features) all() []torch.Tensor { return append([]torch.Tensor{f.main}, f.deep...) }

// encoderInput is one image: patches [rows · columns, numbers of a patch].
type encoderInput struct {
	patches []float32
	grid    [3]int
}

// encode gives the features of images, which are computed in one pass and do not see each other.
// Records for backward where a weight asks for it.
func (e *encoder) encode(s *torch.Scope, images []encoderInput, d torch.DType, dev torch.Device) []features {
	c := s.Child()
	defer c.Close()
	e = e.as(c, d, dev)
	p := e.plan(images)
	size := int64(e.PatchSize())
	x := c.Float32(p.sorted(images, int(size)), int64(len(p.rows)), size)
	x = c.Linear(c.To(x, d, dev), c.Reshape(e.patch, int64(e.HiddenSize), size), e.patchBias)
	if e.PositionSide > 0 {
		x = c.Add(x, c.To(e.learned(c, p, dev), d, dev))
	}
	cos, sin := p.angles(c, e.Vision, d, dev)
	var deep []torch.Tensor
	for i := range e.blocks {
		lengths := p.windowPatches
		if e.SeesAll(i) {
			lengths = p.imagePatches
		}
		b := c.Child()
		x = b.Keep(e.block(b, i, x, cos, sin, lengths), c)
		b.Close()
		for k, at := range e.DeepStack {
			if at == i {
				deep = append(deep, e.merge(c, k+1, x))
			}
		}
	}
	main := e.merge(c, 0, x)
	if e.Window > 0 {
		back := make([]int32, len(p.order))
		for at, from := range p.order {
			back[from] = int32(at)
		}
		main = c.IndexSelect(main, 0, c.To(c.IDs(back), torch.Int64, dev))
	}
	out := make([]features, len(images))
	for i, at := 0, int64(0); i < len(images); i++ {
		n := p.imagePatches[i] / int64(p.square)
		rowsOfImage := func(all torch.Tensor) torch.Tensor {
			if len(images) > 1 {
				all = c.Narrow(all, 0, at, n)
			}
			return c.Keep(all, s)
		}
		out[i].main = rowsOfImage(main)
		for _, t := range deep {
			out[i].deep = append(out[i].deep, rowsOfImage(t))
		}
		at += n
	}
	return out
}

func (e *encoder) norm(c *torch.Scope, x, w, bias torch.Tensor) torch.Tensor {
	if e.LayerNorm {
		return c.LayerNorm(x, w, bias, arch.VisionEps)
	}
	return c.RMSNorm(x, w, torch.Norm{Eps: arch.VisionEps})
}

func (e *encoder) block(c *torch.Scope, i int, x, cos, sin torch.Tensor, lengths []int64) torch.Tensor {
	b, n, heads, dim := &e.blocks[i], c.Shape(x), int64(e.Heads), int64(e.HeadDim())
	if c.Err() != nil {
		return x
	}
	h := b.qkv.apply(c, e.norm(c, x, b.norm1, b.norm1Bias), b.qkvBias)
	parts := c.Split(c.Reshape(h, n[0], 3*heads, dim), 1, heads, heads, heads)
	q, k := c.Rope(parts[0], cos, sin, false), c.Rope(parts[1], cos, sin, false)
	o := c.Reshape(c.BlockAttention(q, k, parts[2], lengths), n[0], n[1])
	x = c.Add(x, b.proj.apply(c, o, b.projBias))
	h = b.up.apply(c, e.norm(c, x, b.norm2, b.norm2Bias), b.upBias)
	switch {
	case e.Gated:
		h = c.SiluMul(h)
	case e.Act == arch.VisionQuickGELU:
		h = c.Activate(h, torch.QuickGELU)
	default:
		h = c.Activate(h, torch.GELUTanh)
	}
	return c.Add(x, b.down.apply(c, h, b.downBias))
}

// merge makes features of squares of patches: merger 0 norms patches, the others squares.
func (e *encoder) merge(c *torch.Scope, k int, x torch.Tensor) torch.Tensor {
	m, shape, square := &e.mergers[k], c.Shape(x), int64(e.Merge*e.Merge)
	if c.Err() != nil {
		return x
	}
	if k == 0 {
		x = e.norm(c, x, m.norm, m.normBias)
	}
	x = c.Reshape(x, shape[0]/square, shape[1]*square)
	if k > 0 {
		x = e.norm(c, x, m.norm, m.normBias)
	}
	return m.out.apply(c, c.Activate(m.in.apply(c, x, m.inBias), torch.GELU), m.outBias)
}

// visionPlan is the order in which the patches of images are computed, image by image.
type visionPlan struct {
	order         []int // the number of each square of patches among those of all images
	rows, columns []int // of each patch in the grid of its image
	grids         [][3]int
	imagePatches  []int64 // patches of each image
	windowPatches []int64 // patches of each window
	square        int     // patches of a square
}

// plan sorts an image's squares of patches into windows, row by row of windows, and row by row
// within a window; those at the right and the bottom are smaller where the window does not divide.
func (e *encoder) plan(images []encoderInput) *visionPlan {
	p := &visionPlan{square: e.Merge * e.Merge}
	for i := range images {
		p.add(images[i].grid, e.Merge, e.Window)
	}
	return p
}

func (p *visionPlan) add(grid [3]int, m, side int) {
	h, w, first := grid[1]/m, grid[2]/m, len(p.order)
	if side == 0 {
		side = max(h, w)
	}
	for top := 0; top < h; top += side {
		for left := 0; left < w; left += side {
			bottom, right := min(top+side, h), min(left+side, w)
			for r := top; r < bottom; r++ {
				for c := left; c < right; c++ {
					p.order = append(p.order, first+r*w+c)
					for k := range p.square {
						p.rows, p.columns = append(p.rows, r*m+k/m), append(p.columns, c*m+k%m)
					}
				}
			}
			p.windowPatches = append(p.windowPatches, int64((bottom-top)*(right-left)*p.square))
		}
	}
	p.grids, p.imagePatches = append(p.grids, grid), append(p.imagePatches, int64(h*w*p.square))
}

// sorted are the patches of images in the plan's order.
func (p *visionPlan) sorted(images []encoderInput, size int) []float32 {
	n, first, done := p.square*size, 0, 0
	out := make([]float32, 0, len(p.order)*n)
	for i := range images {
		squares := int(p.imagePatches[i]) / p.square
		for _, at := range p.order[done : done+squares] {
			out = append(out, images[i].patches[(at-first)*n:][:n]...)
		}
		first, done = first+squares, done+squares
	}
	return out
}

// angles are cosines and sines of each patch, [patches, head dim / 2]: the first half turns by
// the patch's row, the second by its column.
func (p *visionPlan) angles(c *torch.Scope, v *arch.Vision, d torch.DType, dev torch.Device) (cos, sin torch.Tensor) {
	quarter := v.HeadDim() / 4
	var cs, sn []float64
	for k := range p.rows {
		for _, at := range []int{p.rows[k], p.columns[k]} {
			for j := range quarter {
				a := float64(at) * math.Pow(arch.VisionTheta, -float64(j)/float64(quarter))
				cs, sn = append(cs, math.Cos(a)), append(sn, math.Sin(a))
			}
		}
	}
	acc := torch.Float32
	if d == torch.Float64 {
		acc = d
	}
	shape := []int64{int64(len(p.rows)), int64(2 * quarter)}
	return c.To(c.Float64(cs, shape...), acc, dev), c.To(c.Float64(sn, shape...), acc, dev)
}

// learned are the positions of the table, interpolated between its four neighbours so that
// its corners are the image's.
func (e *encoder) learned(c *torch.Scope, p *visionPlan, dev torch.Device) torch.Tensor {
	along := func(at, n int) (lo, hi int32, share float64) {
		x := 0.0
		if n > 1 {
			x = float64(at) * float64(e.PositionSide-1) / float64(n-1)
		}
		lo = int32(x)
		return lo, min(lo+1, int32(e.PositionSide-1)), x - float64(lo)
	}
	var index [4][]int32
	var weight [4][]float64
	k := 0
	for image, grid := range p.grids {
		for range p.imagePatches[image] {
			r0, r1, r := along(p.rows[k], grid[1])
			c0, c1, q := along(p.columns[k], grid[2])
			side := int32(e.PositionSide)
			for i, at := range [4]int32{r0*side + c0, r0*side + c1, r1*side + c0, r1*side + c1} {
				index[i] = append(index[i], at)
			}
			for i, w := range [4]float64{(1 - r) * (1 - q), (1 - r) * q, r * (1 - q), r * q} {
				weight[i] = append(weight[i], w)
			}
			k++
		}
	}
	var sum torch.Tensor
	acc := torch.Float32
	if c.DType(e.table) == torch.Float64 {
		acc = torch.Float64
	}
	for i := range index {
		rows := c.IndexSelect(e.table, 0, c.To(c.IDs(index[i]), torch.Int64, dev))
		part := c.Mul(rows, c.To(c.Float64(weight[i], int64(len(weight[i])), 1), acc, dev))
		if sum.Defined() {
			part = c.Add(sum, part)
		}
		sum = part
	}
	return sum
}
