package album

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"agentcli/media"
	"agentcli/traj"
)

func TestImagesThatAreDecodedAtATimeStayWithinTheBound(t *testing.T) {
	b := &pixelBound{most: 3 * 40 * 30}
	small, large := black(t, 40, 30), black(t, 100, 90)
	var now, peak, alone atomic.Int64
	var wg sync.WaitGroup
	play := func(im traj.Image, pixels int64) {
		wg.Go(func() {
			err := b.use(t.Context(), &im, func(*media.Image) error {
				n := now.Add(pixels)
				if pixels > int64(b.most) {
					alone.Add(1)
					if n != pixels {
						t.Errorf("an image beyond the bound is decoded beside others: %d pixels", n)
					}
				} else if n > int64(b.most) {
					t.Errorf("%d pixels at a time; the bound is %d", n, b.most)
				}
				for was := peak.Load(); n > was && n <= int64(b.most) && !peak.CompareAndSwap(was, n); was = peak.Load() {
				}
				for range 20 {
					runtime.Gosched()
				}
				now.Add(-pixels)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 200 {
		im := recorded(small, 40, 30)
		if i%3 == 0 {
			im = traj.Image{Width: 8, Height: 8, Crop: &traj.Crop{Source: im.Hash, File: small, Box: [4]int{1, 1, 9, 9}}}
		}
		play(im, 40*30)
		if i%50 == 0 {
			play(recorded(large, 100, 90), 100*90)
		}
	}
	wg.Wait()
	if alone.Load() != 4 || peak.Load() < 40*30 || b.held != 0 || b.waiting.Len() != 0 {
		t.Errorf("%d large images, %d pixels at most; %d held and %d waiting at the end", alone.Load(), peak.Load(), b.held, b.waiting.Len())
	}
}

func TestImagesOfTheBoundAreDecodedTogether(t *testing.T) {
	b := &pixelBound{most: 3}
	var leave []func()
	for range 3 {
		l, err := b.enter(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	for _, l := range leave {
		l()
	}
}

func TestWaitingForOthersImagesEndsWithTheContext(t *testing.T) {
	leave, err := decoding.enter(t.Context(), MaxDecoding)
	if err != nil {
		t.Fatal(err)
	}
	im := recorded(black(t, 40, 30), 40, 30)
	for name, f := range map[string]func(context.Context) error{
		"Crop": func(ctx context.Context) error { _, err := Crop(ctx, &im, [4]int{0, 0, 8, 8}); return err },
		"Use": func(ctx context.Context) error {
			return Use(ctx, &im, func(*media.Image) error { return errors.New("it was decoded") })
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f(ctx) }()
		for waits := false; !waits; runtime.Gosched() {
			decoding.mu.Lock()
			waits = decoding.waiting.Len() == 1
			decoding.mu.Unlock()
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	leave()
	if _, err := Crop(t.Context(), &im, [4]int{0, 0, 8, 8}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if decoding.held != 0 || decoding.waiting.Len() != 0 {
		t.Errorf("%d held, %d waiting", decoding.held, decoding.waiting.Len())
	}
}
