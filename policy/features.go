//go:build libtorch

package policy

import (
	"fmt"
	"sync"

	"agentcli/internal/parallel"
	"agentcli/internal/setting"
	"agentcli/internal/torch"
	"agentcli/model/weights"
)

// featureCache keeps the features of images, by the hash of their pixels, up to a number of
// bytes; those unused longest go first. It is touched on one worker only.
type featureCache struct {
	keep    *torch.Scope
	limit   int64
	bytes   int64
	entries map[imageKey]*keptFeatures
	clock   int64    // of uses
	known   sync.Map // the keys of entries, for those who may not touch them
}

type keptFeatures struct {
	features
	bytes, used int64
}

// DefaultFeatureBytes bounds the features of images that are kept.
const DefaultFeatureBytes = 256 << 20

func newFeatureCache(keep *torch.Scope) *featureCache {
	return &featureCache{keep: keep, limit: DefaultFeatureBytes, entries: map[imageKey]*keptFeatures{}}
}

// clear forgets everything: the encoder has changed.
func (f *featureCache) clear() {
	for k := range f.entries {
		f.drop(k)
	}
}

func (f *featureCache) drop(k imageKey) {
	e := f.entries[k]
	for _, t := range e.all() {
		f.keep.Free(t)
	}
	f.bytes -= e.bytes
	delete(f.entries, k)
	f.known.Delete(k)
}

// trim forgets what was unused longest until the rest fits. Features that are in use now must
// not be asked for before it is called.
func (f *featureCache) trim() {
	for f.bytes > f.limit {
		oldest, found := imageKey{}, false
		for k, e := range f.entries {
			if !found || e.used < f.entries[oldest].used {
				oldest, found = k, true
			}
		}
		f.drop(oldest)
	}
}

// of gives the features of an image, computed where they are not kept.
func (f *featureCache) of(s *torch.Scope, n *network, img Image) (features, error) {
	e, ok := f.entries[img.key()]
	if !ok {
		p, err := patchesOf(img, n.vision.Vision)
		if err != nil {
			return features{}, err
		}
		// One image a pass, so that its features do not depend on the other images.
		made := n.vision.encode(s, []encoderInput{{p, img.Grid}}, n.dtype, n.device)[0]
		if s.Err() != nil {
			return features{}, s.Err()
		}
		e = &keptFeatures{bytes: int64(len(made.all())) * int64(img.Tokens) * int64(n.cfg.HiddenSize) * int64(n.dtype.Size())}
		e.main = s.Keep(made.main, f.keep)
		for _, d := range made.deep {
			e.deep = append(e.deep, s.Keep(d, f.keep))
		}
		f.entries[img.key()] = e
		f.known.Store(img.key(), true)
		f.bytes += e.bytes
	}
	f.clock++
	e.used = f.clock
	return e.features, nil
}

// all gives the features of images, which stay until the next trim.
func (f *featureCache) all(s *torch.Scope, n *network, images []Image) ([]features, error) {
	if len(images) == 0 {
		return nil, nil
	}
	f.trim()
	out := make([]features, len(images))
	for k, i := range images {
		var err error
		if out[k], err = f.of(s, n, i); err != nil {
			return nil, fmt.Errorf("image %d of the pack: %w", k+1, err)
		}
	}
	return out, nil
}

// placed are rows of an image's features at rows of an input: from..to-1 from row on.
type placed struct {
	features
	row, from, to int
}

// input is what goes into a forward pass.
type input struct {
	ids       []int32
	positions positions
	images    []placed
	routing   *routing
}

// inputOf is the input of a pack whose images have these features.
func inputOf(p *Pack, f []features) input {
	in := input{ids: p.IDs, positions: p.positions()}
	for k, i := range p.images {
		in.images = append(in.images, placed{f[k], i.Start, 0, i.Tokens})
	}
	return in
}

// place puts features where images are: x [T, hidden size] at all other rows.
func (in input) place(s *torch.Scope, n *network, x torch.Tensor) torch.Tensor {
	if len(in.images) == 0 {
		return x
	}
	index := make([]int32, len(in.ids))
	for k := range index {
		index[k] = int32(k)
	}
	next, parts := int32(len(index)), []torch.Tensor{x}
	for _, p := range in.images {
		parts = append(parts, s.Narrow(p.main, 0, int64(p.from), int64(p.to-p.from)))
		for k := range p.to - p.from {
			index[p.row+k] = next
			next++
		}
	}
	return s.IndexSelect(s.Cat(0, parts...), 0, s.To(s.IDs(index), torch.Int64, n.device))
}

// deepened are what is added behind the first layers, [T, hidden size] each: 0 where there is
// no image.
func (in input) deepened(s *torch.Scope, n *network) (out []torch.Tensor) {
	if len(in.images) == 0 {
		return nil
	}
	for d := range in.images[0].deep {
		index, next := make([]int32, len(in.ids)), int32(1)
		parts := []torch.Tensor{s.Full(0, n.dtype, n.device, 1, int64(n.cfg.HiddenSize))}
		for _, p := range in.images {
			parts = append(parts, s.Narrow(p.deep[d], 0, int64(p.from), int64(p.to-p.from)))
			for k := range p.to - p.from {
				index[p.row+k] = next
				next++
			}
		}
		out = append(out, s.IndexSelect(s.Cat(0, parts...), 0, s.To(s.IDs(index), torch.Int64, n.device)))
	}
	return out
}

// leaves are the input with features that backward stops at, and those features.
func (in input) leaves(s *torch.Scope) (input, []torch.Tensor) {
	var all []torch.Tensor
	leaf := func(t torch.Tensor) torch.Tensor {
		t = s.RequiresGrad(s.Detach(t), true)
		all = append(all, t)
		return t
	}
	images := make([]placed, len(in.images))
	for i, p := range in.images {
		images[i] = p
		images[i].main, images[i].deep = leaf(p.main), nil
		for _, d := range p.deep {
			images[i].deep = append(images[i].deep, leaf(d))
		}
	}
	in.images = images
	return in, all
}

// trainsEncoder reports whether backward goes through the features of images: the encoder is trained,
// or the network has adapters on it.
func (c *computation) trainsEncoder(n *network) bool {
	return c.vision.trains() || n.vision != nil && n.vision.adapted
}

// see gives the features of a pack's images. Of a trained encoder they are part of what
// backward goes through, and none are kept. Images are computed together where backward is true, else
// one by one as in sampling: numbers of one pass differ in rounding.
func (c *computation) see(s *torch.Scope, n *network, p *Pack, backward bool) ([]features, error) {
	if len(p.images) == 0 {
		return nil, nil
	}
	if !c.trainsEncoder(n) {
		return c.features.all(s, n, p.images)
	}
	index := map[imageKey]int{} // in shown
	var shown []Image
	for _, i := range p.images {
		if _, ok := index[i.key()]; !ok {
			index[i.key()] = len(shown)
			shown = append(shown, i)
		}
	}
	images := make([]encoderInput, len(shown))
	err := parallel.For(len(shown), func(k int) error {
		patches, err := patchesOf(shown[k], n.vision.Vision)
		if err != nil {
			return fmt.Errorf("image %d of the pack: %w", k+1, err)
		}
		images[k] = encoderInput{patches, shown[k].Grid}
		return nil
	})
	if err != nil {
		return nil, err
	}
	made := make([]features, 0, len(images))
	if !backward || n.vision.hasDropout() {
		for k := range images {
			made = append(made, n.vision.forImage(k).encode(s, images[k:k+1], n.dtype, n.device)...)
		}
	} else {
		made = n.vision.encode(s, images, n.dtype, n.device)
	}
	out := make([]features, len(p.images))
	for k, i := range p.images {
		out[k] = made[index[i.key()]]
	}
	return out, s.Err()
}

// visionOf is which part of a model's encoder the configuration trains.
func (c Config) visionOf(m weights.Config, adapted bool) (VisionTraining, error) {
	switch {
	case c.Vision != VisionFrozen && c.Vision != VisionMerger && c.Vision != VisionAll:
		return "", setting.Errorf("%s %s: want %s, %s or nothing", setting.Name("Vision"), c.Vision, VisionMerger, VisionAll)
	case c.Frozen || c.Vision == VisionFrozen:
		return VisionFrozen, nil
	case m.Vision == nil:
		return "", setting.Errorf("%s %s: the model has no encoder of images", setting.Name("Vision"), c.Vision)
	case adapted:
		return "", setting.Errorf("%s %s: with adapters the weights of the encoder are frozen; leave it out, and name %s among %s for adapters "+
			"on the encoder", setting.Name("Vision"), c.Vision, vision, setting.Name("LoRA.Targets"))
	}
	return c.Vision, nil
}

// untrainedParams are the parameters of the encoder that are only computed with.
func untrainedParams(n *network, v VisionTraining) (out []param) {
	if n.vision == nil || v == VisionAll {
		return nil
	}
	merging := map[*torch.Tensor]bool{}
	for i := range n.vision.mergers {
		m := &n.vision.mergers[i]
		for _, t := range []*torch.Tensor{&m.norm, &m.normBias, &m.in.w, &m.inBias, &m.out.w, &m.outBias} {
			merging[t] = v == VisionMerger
		}
	}
	of := map[*torch.Tensor]bool{}
	n.vision.each(func(t *torch.Tensor, _ ...string) { of[t] = !merging[t] })
	for _, p := range n.params {
		if of[p.tensor] {
			out = append(out, p)
		}
	}
	return out
}

// trainedParams are the other parameters.
func trainedParams(n *network, v VisionTraining) (out []param) {
	not := map[*torch.Tensor]bool{}
	for _, p := range untrainedParams(n, v) {
		not[p.tensor] = true
	}
	for _, p := range n.params {
		if !not[p.tensor] {
			out = append(out, p)
		}
	}
	return out
}
