//go:build libtorch

package policy

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestAnImageIsDecodedOnceForAllWhoShowIt(t *testing.T) {
	var store patchStore
	var decoded atomic.Int64
	image := func(key byte) Image {
		return Image{Key: [32]byte{key}, Patches: func() ([]float32, error) { decoded.Add(1); return []float32{float32(key)}, nil }}
	}
	known := func(k imageKey) bool { return k.key[0] == 9 }
	var ready, all sync.WaitGroup
	ready.Add(8)
	for range 8 {
		all.Go(func() {
			held, release := store.hold([]Image{image(1), image(9), image(2)}, known)
			defer release()
			ready.Done()
			ready.Wait() // all hold them at once
			if p, err := held[2].Patches(); err != nil || p[0] != 2 {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
	all.Wait()
	if n := decoded.Load(); n != 2 {
		t.Errorf("%d images were decoded, not 2", n)
	}
	if len(store.all) != 0 {
		t.Errorf("patches of %d images stay", len(store.all))
	}
	broken := errors.New("broken")
	held, release := store.hold([]Image{{Patches: func() ([]float32, error) { return nil, broken }}}, known)
	defer release()
	if _, err := held[0].Patches(); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
