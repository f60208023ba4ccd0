//go:build libtorch

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/weights"
)

// ErrOtherShape says that weights do not fit the model that they are for.
var ErrOtherShape = errors.New("weights of another model")

// LoadWeights exchanges the weights for those of another folder of the same model. Replies
// from then on carry the version.
func (e *Engine) LoadWeights(folder string, version int64, how Exchange) error {
	m, err := weights.Open(folder)
	if err != nil {
		return err
	}
	if err := fits(e.p, m.Config(), folder); err != nil {
		m.Close()
		return err
	}
	return e.reload(m, nil, version, how)
}

// UpdateWeights exchanges the tensors of a safetensors file, under the names of the model's
// files. The others stay. The file is mapped as long as one of its tensors is in use: it may
// be removed, not changed. Where it has all tensors, the folder of the weights before may be gone.
func (e *Engine) UpdateWeights(file string, version int64, how Exchange) error {
	f, err := weights.OpenSafetensors(file)
	if err != nil {
		return err
	}
	shapes, missing := map[string][]int64{}, false
	for _, t := range e.p.model.Tensors() {
		shapes[e.p.model.StoredName(t.Name)], shapes[t.Name] = t.Shape, t.Shape
		_, ok := tensorOf(f, e.p.model, t.Name)
		missing = missing || !ok && !(e.p.model.Tied && t.Name == arch.Head)
	}
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		switch want, ok := shapes[name]; {
		case !ok:
			err = fmt.Errorf("%w: the model has no tensor %q", ErrOtherShape, name)
		case !slices.Equal(want, t.Shape):
			err = fmt.Errorf("%w: tensor %s has shape %v, the model's has %v", ErrOtherShape, name, t.Shape, want)
		}
		if err == nil {
			_, err = dtypeOf(t.DType)
		}
		if err != nil {
			f.Close()
			return err
		}
	}
	base, err := weights.Open(e.p.base)
	if err != nil && !missing {
		base, err = weights.Open(e.p.path)
	}
	if err != nil {
		f.Close()
		return err
	}
	return e.reload(base, f, version, how)
}

// tensorOf is a tensor of a file, by the name that the model or that its files have for it.
func tensorOf(f *weights.File, c weights.Config, name string) (weights.Tensor, bool) {
	if t, ok := f.Tensor(c.StoredName(name)); ok {
		return t, true
	}
	return f.Tensor(name)
}

// fits says why a model's weights cannot take the place of the policy's.
func fits(p *Policy, c weights.Config, path string) error {
	have, want := c.Tensors(), p.model.Tensors()
	if c.Architecture != p.model.Architecture || len(have) != len(want) {
		return fmt.Errorf("%w: %s is a %s of %d tensors, the model a %s of %d", ErrOtherShape, path, c.Architecture, len(have),
			p.model.Architecture, len(want))
	}
	for i, t := range have {
		if t.Name != want[i].Name || !slices.Equal(t.Shape, want[i].Shape) {
			return fmt.Errorf("%w: %s: tensor %s has shape %v, the model's %s has %v", ErrOtherShape, path, t.Name, t.Shape, want[i].Name,
				want[i].Shape)
		}
	}
	return nil
}

// reload puts the network together anew from a model's files and, over them, newer tensors.
func (e *Engine) reload(base *weights.Model, over *weights.File, version int64, how Exchange) error {
	p := e.p
	return askFor(p.sched, &change{how: how, make: func(s *torch.Scope) error {
		defer base.Close()
		newer := []*weights.File{}
		if over != nil {
			newer = append(newer, over)
			for _, f := range p.newer { // one whose tensors are all replaced is done with
				if !slices.ContainsFunc(f.Names(), func(name string) bool { _, ok := over.Tensor(name); return !ok }) {
					continue
				}
				newer = append(newer, f)
			}
		}
		ofBase := tensorsFor(base, p.net.dtype)
		tensor := func(name string) (weights.Tensor, error) {
			for _, f := range newer {
				if t, ok := tensorOf(f, p.model, name); ok {
					return t, nil
				}
			}
			return ofBase(name)
		}
		n, err := describe(p.model, false)
		fresh := torch.NewScope()
		if err == nil {
			n.ropes, n.maxSeen = p.net.ropes, p.net.maxSeen
			from := source{Model: base, tensor: tensor, sampled: true}
			if len(newer) == 0 { // otherwise most of the base's tensors are replaced
				from.ahead = readAhead(base)
			}
			n, err = load(s, fresh, from, n, p.net.dtype, p.net.dtype, p.net.device, p.net.maxSeen)
		}
		if err != nil {
			fresh.Close()
			if over != nil {
				over.Close()
			}
			return err
		}
		for _, f := range p.newer {
			if !slices.Contains(newer, f) {
				f.Close()
			}
		}
		p.newer, p.base = newer, base.Path()
		take(p, n, fresh, version)
		return nil
	}})
}

// take makes a network the policy's.
func take(p *Policy, n *network, keep *torch.Scope, version int64) {
	p.features.clear()
	p.weights.Close()
	p.net, p.weights = n, keep
	p.version.Store(version)
}

// LoadAdapter reads a LoRA adapter in PEFT's layout, which requests name from then on (Request.Adapter). One of the same
// name is exchanged for it: replies under way end with the one that they began with. It must fit the shapes of the model,
// whose weights may be exchanged beneath it.
func (e *Engine) LoadAdapter(name, folder string, version int64) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("%q is no name of an adapter", name)
	}
	sc := e.p.sched
	pairs, err := weights.OpenPairs(folder, e.p.model)
	if err != nil {
		return err
	}
	defer pairs.Close()
	var a *servedAdapter
	if err := e.p.worker.Do(func(s *torch.Scope) (err error) {
		a, err = newServedAdapter(s, e.p.net, pairs)
		return err
	}); err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	a.Adapter = Adapter{Name: name, Folder: folder, Base: pairs.Config().Base, Version: version}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.loads++
	a.number = sc.loads
	if old := sc.adapters[name]; old != nil {
		retire(sc, old)
	}
	if sc.adapters == nil {
		sc.adapters = map[string]*servedAdapter{}
	}
	sc.adapters[name] = a
	return nil
}

// DropAdapter has no later request drawn with an adapter.
func (e *Engine) DropAdapter(name string) error {
	sc := e.p.sched
	sc.mu.Lock()
	defer sc.mu.Unlock()
	a, err := findAdapter(sc, name)
	if err != nil {
		return err
	}
	delete(sc.adapters, name)
	retire(sc, a)
	return nil
}

// Adapters are those that requests may name, by name.
func (e *Engine) Adapters() []Adapter {
	sc := e.p.sched
	sc.mu.Lock()
	defer sc.mu.Unlock()
	var out []Adapter
	for _, a := range sc.adapters {
		out = append(out, a.Adapter)
	}
	slices.SortFunc(out, func(a, b Adapter) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
