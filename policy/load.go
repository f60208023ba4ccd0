//go:build libtorch

package policy

import (
	"fmt"
	"slices"

	"agentcli/internal/codes"
	"agentcli/internal/torch"
	"agentcli/model/weights"
)

// source is where load finds the tensors: a weights.Model, or one without its
// adapter.
type source struct {
	*weights.Model
	tensor   func(name string) (weights.Tensor, error)
	asStored bool
	sampled  bool               // each matrix is packed when it was read (packs)
	ahead    *weights.ReadAhead // of the tensors in the network's order; load closes it
	head     *weights.Tensor    // the value head beside a policy's weights (valueHeadName); nil: there is none
}

// tensorsFor gives the tensors of a model that computes in that type: numbers, blocks of a GGUF
// (torch.BlocksOf) or codes.
func tensorsFor(m *weights.Model, dtype torch.DType) func(name string) (weights.Tensor, error) {
	d := weights.F32
	if dtype == torch.BFloat16 {
		d = weights.BF16
	}
	return func(name string) (weights.Tensor, error) {
		if t, ok := weights.InBlocks(m, name); ok {
			if _, ok := torch.BlocksOf(string(t.DType)); ok {
				return t, nil
			}
		}
		if t, ok := weights.InCodes(m, name); ok {
			return t, nil
		}
		return m.TensorFor(name, d)
	}
}

// unmergedFor is tensorsFor of a model without its adapter's pairs; a head that was trained beside them is the adapter's.
func unmergedFor(m *weights.Model, dtype torch.DType) func(name string) (weights.Tensor, error) {
	ofBase := tensorsFor(m.Base(), dtype)
	return func(name string) (weights.Tensor, error) {
		if t, ok := m.Low(name); ok {
			return t, nil
		}
		return ofBase(name)
	}
}

// readAhead begins to read a model's tensors in the order in which load wants them.
func readAhead(m *weights.Model) *weights.ReadAhead {
	n, err := describe(m.Config(), false)
	if err != nil {
		return nil // whoever loads it says so
	}
	return weights.NewReadAhead(m, namesOf(n.params))
}

// load reads a model into tensors owned by keep, of the given type, with rotary tables unless n has them; a value head
// is of the type of the masters, and 0 where the files have none: its values are,
// until it has learned.
func load(s, keep *torch.Scope, m source, n *network, dtype, master torch.DType, dev torch.Device, maxPositions int) (*network, error) {
	n.dtype, n.device = dtype, dev
	defer m.ahead.Close()
	stored := storedMatrices(n, s, keep, m)
	matrices := matricesOf(n)
	packed := m.sampled && packs(n)
	n.panels = packed
	params := slices.DeleteFunc(slices.Clone(n.params), func(p param) bool { return stored[p.tensor] })
	layouts := map[[2]int64]torch.Tensor{} // a packed matrix of each shape
	for _, p := range params {
		dtype := dtype
		if p.tensor == &n.score {
			dtype = master
		}
		ts, err := m.tensors(p)
		if err != nil {
			return nil, err
		}
		mx := matrices[p.tensor]
		if packed && mx != nil && packParts(n, s, keep, mx, layouts[rowsAndColumns(p)], ts) {
			continue
		}
		c := s.Child()
		x, err := m.parameter(c, p, ts, dtype, dev)
		if err != nil {
			return nil, err
		}
		*p.tensor = c.Keep(x, keep)
		c.Close()
		n.tie()
		if packed && mx != nil {
			packMatrix(n, s, keep, mx) // while the next ones are read
			layouts[rowsAndColumns(p)] = mx.packed
		}
		if s.Err() != nil {
			return nil, s.Err()
		}
	}
	if n.ropes == nil {
		n.rotary(s, keep, maxPositions)
	}
	return n, s.Err()
}

// tensors are the parts of a parameter; none for a value head that the files lack.
func (m source) tensors(p param) ([]weights.Tensor, error) {
	if q := p.parts[0]; q.name == scoreName && m.head == nil && !m.Has(scoreName) {
		return nil, nil
	}
	ts := make([]weights.Tensor, len(p.parts))
	for i, q := range p.parts {
		m.ahead.Reached(q.name)
		t, err := m.part(q)
		if err != nil {
			return nil, err
		}
		ts[i] = t
	}
	return ts, nil
}

// parameter is a parameter in that type on that device: its parts below each other.
func (m source) parameter(c *torch.Scope, p param, ts []weights.Tensor, dtype torch.DType, dev torch.Device) (torch.Tensor, error) {
	switch {
	case len(ts) == 0:
		return c.Full(0, dtype, dev, p.shape()...), nil
	case ofOneType(ts):
		return m.on(c, p.shape(), dtype, dev, ts...)
	}
	rows := make([]torch.Tensor, len(ts))
	for i, t := range ts {
		var err error
		if rows[i], err = m.on(c, t.Shape, dtype, dev, t); err != nil {
			return torch.Tensor{}, err
		}
	}
	return c.Cat(0, rows...), nil
}

func ofOneType(ts []weights.Tensor) bool {
	return !slices.ContainsFunc(ts, func(t weights.Tensor) bool { return t.DType != ts[0].DType })
}

// part is one tensor of the files.
func (m source) part(q part) (t weights.Tensor, err error) {
	if q.name == scoreName && m.head != nil {
		t = *m.head
	} else if t, err = m.tensor(q.name); err != nil {
		return t, err
	}
	if !equal(t.Shape, q.shape) {
		return t, fmt.Errorf("%s: tensor %s has shape %v, the config says %v", m.Path(), q.name, t.Shape, q.shape)
	}
	return t, nil
}

// on is a tensor on a device: those of the files, of one type, below each other. They go there as they are stored, but for
// blocks and codes where the device lacks our kernels.
func (m source) on(c *torch.Scope, shape []int64, dtype torch.DType, dev torch.Device, ts ...weights.Tensor) (torch.Tensor, error) {
	computed := torch.Float32
	if dtype == torch.BFloat16 {
		computed = dtype
	}
	if ts[0].DType == weights.Coded {
		return c.To(c.FromCodes(codesOf(ts), computed, dev, shape...), dtype, dev), nil
	}
	if b, ok := torch.BlocksOf(string(ts[0].DType)); ok && (ts[0].DType != weights.F16 || torch.Native(dev)) {
		return c.To(c.FromBlocks(dataOf(ts), b, computed, dev, shape...), dtype, dev), nil
	}
	d, err := dtypeOf(ts[0].DType)
	if err != nil {
		return torch.Tensor{}, fmt.Errorf("%s: tensor %s: %w", m.Path(), ts[0].Name, err)
	}
	return c.To(c.FromParts(dataOf(ts), d, dev, shape...), dtype, dev), nil
}

func dataOf(ts []weights.Tensor) [][]byte {
	data := make([][]byte, len(ts))
	for i, t := range ts {
		data[i] = t.Data
	}
	return data
}

func codesOf(ts []weights.Tensor) []*codes.Matrices {
	of := make([]*codes.Matrices, len(ts))
	for i, t := range ts {
		of[i] = t.Codes
	}
	return of
}

// namesOf are the tensors of parameters, in order.
func namesOf(params []param) (names []string) {
	for _, p := range params {
		for _, q := range p.parts {
			names = append(names, q.name)
		}
	}
	return names
}

// matricesOf are those of the layers, and the output matrix, by their weights.
func matricesOf(n *network) map[*torch.Tensor]*matrix {
	of := map[*torch.Tensor]*matrix{&n.head.w: &n.head}
	if n.cfg.Tied {
		of[&n.embed] = &n.head
	}
	for i := range n.layers {
		l := &n.layers[i]
		for _, m := range []*matrix{&l.qkv, &l.o, &l.gateUp, &l.down} {
			of[&m.w] = m
		}
	}
	return of
}

// packs reports whether matrices are put into panels or oneDNN's layout for sampling: on a CPU, where the
// processor has one of them.
func packs(n *network) bool {
	return torch.Native(n.device) && n.dtype != torch.Float64 && (n.dtype != torch.BFloat16 || packsBF16() || torch.OwnPanels(n.dtype))
}

// pack puts all matrices into the layout for sampling (packs).
func pack(n *network, s, keep *torch.Scope) {
	n.panels = true
	of := matricesOf(n)
	for _, p := range n.params {
		if m := of[p.tensor]; m != nil {
			packMatrix(n, s, keep, m)
		}
	}
}

// packParts packs a matrix from the bytes of its files, without a plain copy between, where one of its shape
// was packed into panels before. It reports whether it could.
func packParts(n *network, s, keep *torch.Scope, m *matrix, like torch.Tensor, ts []weights.Tensor) bool {
	if m == &n.head || !n.panels || !like.Defined() || !ofOneType(ts) {
		return false
	}
	var packed, bytes torch.Tensor
	if ts[0].DType == weights.Coded {
		if !torch.CodesFit(codesOf(ts)) {
			return false
		}
		packed, bytes = s.PackCodes(like, codesOf(ts))
	} else if b, ok := torch.BlocksOf(string(ts[0].DType)); ok {
		packed, bytes = s.PackBlocks(like, dataOf(ts), b)
	} else if d, err := dtypeOf(ts[0].DType); err == nil && (d == n.dtype || d == torch.BFloat16) {
		packed, bytes = s.PackParts(like, dataOf(ts), d)
	} else {
		return false
	}
	s.Keep(bytes, keep)
	m.packed = s.Keep(packed, keep)
	return s.Err() == nil
}

// rowsAndColumns are those of a matrix.
func rowsAndColumns(p param) (n [2]int64) {
	copy(n[:], p.shape())
	return n
}

func packMatrix(n *network, s, keep *torch.Scope, m *matrix) {
	if m.stored.Defined() {
		return
	}
	m.packed = s.Keep(s.PackLinear(m.w), keep)
	n.panels = n.panels && s.InPanels(m.packed, m.w)
	if m != &n.head { // Logprobs reads the head's rows, the embedding is often the same
		keep.Free(m.w)
		m.w = torch.Tensor{}
	}
}
