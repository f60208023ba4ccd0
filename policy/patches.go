//go:build libtorch

package policy

import "sync"

// patchStore has the patches of images that requests wait with, so that images are decoded
// beside the model's work, once for all who show them. It is safe for concurrent use.
type patchStore struct {
	mu  sync.Mutex
	all map[imageKey]*sharedPatches
}

type sharedPatches struct {
	get   func() ([]float32, error)
	users int
}

// hold makes the patches of images, but of those that known says are not needed, and gives the
// images with them. They are kept until release.
func (p *patchStore) hold(images []Image, known func(imageKey) bool) (held []Image, release func()) {
	held = make([]Image, len(images))
	var keys []imageKey
	for i, img := range images {
		held[i] = img
		if known(img.key()) {
			continue
		}
		p.mu.Lock()
		x, ok := p.all[img.key()]
		if !ok {
			if p.all == nil {
				p.all = map[imageKey]*sharedPatches{}
			}
			x = &sharedPatches{get: sync.OnceValues(img.Patches)}
			p.all[img.key()] = x
		}
		x.users++
		p.mu.Unlock()
		keys = append(keys, img.key())
		held[i].Patches = x.get
		_, _ = x.get() // an error is the model's to report
	}
	return held, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, k := range keys {
			if p.all[k].users--; p.all[k].users == 0 {
				delete(p.all, k)
			}
		}
	}
}
