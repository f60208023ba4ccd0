//go:build libtorch

package policy

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/internal/splitmix"
	"agentcli/internal/torch"
	"agentcli/model/arch"
	"agentcli/model/arch/archtest"
	"agentcli/model/weights"
	"agentcli/traj"
)

// visionGolden is a model of scripts/golden/vision.py.
type visionGolden struct {
	Title     string
	Config    json.RawMessage
	OldConfig json.RawMessage `json:"old_config"`
	Stored    []string
	Features  []struct {
		Grid   [3]int
		Values []float64
		Deep   [][]float64
	}
	Texts []struct {
		Float32, Float64 []float64
		IDs              []int32
		Images           []struct {
			Start, Tokens int
			Grid          [3]int
		}
		Positions [3][]int32
		Greedy    []int32
	}
	Gradient map[string]archtest.Gradient
}

func visionModels(t testing.TB) (out []visionGolden) {
	t.Helper()
	goldenfile.Load(t, "vision.json.gz", &out)
	return out
}

// drawn are the values that the script draws of a name.
func drawn(name string, shape ...int64) []float32 {
	h := fnv.New64a()
	h.Write([]byte(name))
	state, n, scale := h.Sum64(), elements(shape), .8
	if len(shape) > 1 {
		scale = .6 * min(1, math.Sqrt(32/float64(elements(shape[1:]))))
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = float32((float64(splitmix.Next(state)>>40)/(1<<24) - .5) * scale)
		state += splitmix.Gamma
	}
	return out
}

// picture is an image of the script.
func picture(v *arch.Vision, start int, grid [3]int) Image {
	name := "image " + itoa(grid[1]) + " " + itoa(grid[2])
	return pictureOf(v, start, grid, name)
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func pictureOf(v *arch.Vision, start int, grid [3]int, name string) Image {
	img := Image{Start: start, Tokens: v.Tokens(grid), Grid: grid, Patches: func() ([]float32, error) {
		size := v.PatchSize()
		p := drawn(name, int64(grid[1]*grid[2]), int64(size))
		for i := range p {
			p[i] = float32(p[i]*float32(math.Sqrt(float64(size)/32))) * 5
		}
		return p, nil
	}}
	copy(img.Key[:], name)
	return img
}

func (g visionGolden) sequence(v *arch.Vision, k int) Sequence {
	q := Sequence{IDs: g.Texts[k].IDs}
	for _, i := range g.Texts[k].Images {
		q.Images = append(q.Images, picture(v, i.Start, i.Grid))
	}
	return q
}

// write makes the model's folder.
func (g visionGolden) write(t *testing.T, config json.RawMessage) string {
	t.Helper()
	dir, c := familyGolden{archtest.Model{Config: config}}.describe(t)
	own := slices.DeleteFunc(c.Tensors(), func(i weights.TensorInfo) bool { return c.Tied && i.Name == arch.Head })
	stored := slices.Clone(own)
	for k := range stored {
		stored[k].Name = c.StoredName(stored[k].Name)
	}
	w, err := weights.CreateSafetensors(filepath.Join(dir, "model.safetensors"), stored, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, i := range own {
		var data []byte
		for _, x := range drawn(i.Name, i.Shape...) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		if err := w.Write(stored[k].Name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// relativeError is the largest difference over the largest value.
func relativeError(got, want []float64) float64 {
	worst, most := 0.0, 0.0
	for i, w := range want {
		worst, most = max(worst, math.Abs(got[i]-w)), max(most, math.Abs(w))
	}
	return worst / most
}

// Images go through an encoder one by one, and several in one pass: neither sees the others.
func TestEncodersGiveTheFeaturesOfTransformers(t *testing.T) {
	for _, g := range visionModels(t) {
		p := open(t, g.write(t, g.Config), Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		var passes [][]int // of images
		var together []int
		images := make([]encoderInput, len(g.Features))
		for i, want := range g.Features {
			img := picture(p.model.Vision, 0, want.Grid)
			patches, err := patchesOf(img, p.model.Vision)
			if err != nil {
				t.Fatal(err)
			}
			images[i] = encoderInput{patches, img.Grid}
			passes, together = append(passes, []int{i}), append(together, i, i)
		}
		for _, pass := range append(passes, together) {
			var in []encoderInput
			for _, i := range pass {
				in = append(in, images[i])
			}
			err := p.worker.Do(func(s *torch.Scope) error {
				for at, f := range p.net.vision.encode(s, in, p.net.dtype, p.net.device) {
					want := &g.Features[pass[at]]
					for k, w := range append([][]float64{want.Values}, want.Deep...) {
						got := s.Float64s(f.all()[k])
						if len(got) != len(w) || relativeError(got, w) > 1e-4 {
							t.Errorf("%s, %v of %d images, features %d: off by %.2g of the largest", g.Title, want.Grid, len(in), k, relativeError(got, w))
						}
					}
				}
				return s.Err()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTextsWithImagesHaveTheLogprobsOfTransformers(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		for _, dtype := range []string{"float32", "float64"} {
			p := open(t, dir, Config{DType: dtype, Threads: 1, CacheBytes: 1 << 20})
			for k, text := range g.Texts {
				q := g.sequence(p.model.Vision, k)
				pos := positionsOf(len(q.IDs), q.Images, p.model.Vision.Merge)
				for a := range 3 {
					if pos[a] != nil && !slices.Equal(pos[a], text.Positions[a]) {
						t.Errorf("%s, text %d: positions %v, transformers has %v", g.Title, k, pos[a], text.Positions[a])
					}
				}
				got, err := p.LogprobsSequence(context.Background(), q)
				if err != nil {
					t.Fatal(err)
				}
				want := text.Float32
				if dtype == "float64" {
					want = text.Float64
				}
				mean, worst := distance(got, want)
				if mean > 2e-5 || worst > 1e-4 {
					t.Errorf("%s, %s, text %d: log-probs differ by %.2g on average, %.2g at most", g.Title, dtype, k, mean, worst)
				}
				zero := 0.0
				out, err := p.SampleSequence(context.Background(), q, traj.Sampling{Temperature: &zero, MaxTokens: len(text.Greedy)}, 1)
				if err != nil {
					t.Fatal(err)
				}
				greedy := text.Greedy // transformers went on after the end
				if i := slices.Index(greedy, 2); i >= 0 {
					greedy = greedy[:i+1]
				}
				if !slices.Equal(out.IDs, greedy) {
					t.Errorf("%s, %s, text %d: greedy ids %v, transformers has %v", g.Title, dtype, k, out.IDs, greedy)
				}
			}
		}
	}
}

// Other pixels under the same ids and spans change the log-probs of what follows, of nothing else.
func TestAChangedPixelChangesWhatFollows(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		tr, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		q := g.sequence(tr.model.Vision, 2)
		forward := func(images []Image) []float64 {
			o, err := tr.Forward(Batch{Sequences: [][]int32{q.IDs}, Images: [][]Image{images}, Want: wanted(q.IDs)})
			if err != nil {
				t.Fatal(err)
			}
			return o.Logprobs
		}
		changed := slices.Clone(q.Images)
		at := changed[1]
		patches, err := at.Patches()
		if err != nil {
			t.Fatal(err)
		}
		patches = slices.Clone(patches)
		patches[3] += .05
		changed[1].Key[0]++
		changed[1].Patches = func() ([]float32, error) { return patches, nil }
		a, b := forward(q.Images), forward(changed)
		differ := 0
		for k := range a {
			switch same := math.Abs(a[k]-b[k]) < 1e-9; {
			case k+1 <= at.Start && !same: // a[k] is of token k+1
				t.Errorf("%s: token %d, before the image, has %v and %v", g.Title, k+1, a[k], b[k])
			case k+1 > at.end() && !same:
				differ++
			}
		}
		if len(a) != len(b) || differ < (len(a)-at.end())/2 {
			t.Errorf("%s: %d of %d log-probs behind a changed pixel changed", g.Title, differ, len(a)-at.end())
		}
		tr.Close()
	}
}

// learnImages accumulates the gradient of the mean log-prob, and gives it by tensor.
func learnImages(t *testing.T, dir string, c Config, b Batch) map[string][]float64 {
	t.Helper()
	c.DType, c.Threads = cmp.Or(c.DType, "float64"), 1
	tr, err := OpenTrainable(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	err = tr.Accumulate(b, func(o Outputs) Gradients {
		return Gradients{Logprobs: slices.Repeat([]float64{1 / float64(len(o.Logprobs))}, len(o.Logprobs))}
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := tr.Gradients()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, q := range tr.opt.trained {
		rest, ok := whole[q.parts[0].name]
		if !ok {
			t.Errorf("%s has no gradient", q.parts[0].name)
			continue
		}
		for _, x := range q.parts {
			got[x.name], rest = rest[:elements(x.shape)], rest[elements(x.shape):]
		}
	}
	return got
}

func wanted(seqs ...[]int32) (out [][]bool) {
	for _, q := range seqs {
		out = append(out, append([]bool{false}, slices.Repeat([]bool{true}, len(q)-1)...))
	}
	return out
}

func TestGradientsThroughImagesAreThoseOfTransformers(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		c, err := weights.ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		q := g.sequence(c.Vision, 2)
		b := Batch{Sequences: [][]int32{q.IDs}, Images: [][]Image{q.Images}, Want: wanted(q.IDs)}
		encoder := map[string]bool{}
		for _, x := range c.Vision.Tensors() {
			encoder[x.Name] = true
		}
		for _, train := range []VisionTraining{VisionFrozen, VisionMerger, VisionAll} {
			for _, checkpoint := range []bool{false, true} {
				got := learnImages(t, dir, Config{Vision: train, GradCheckpoint: checkpoint}, b)
				for name, w := range g.Gradient {
					v, ok := got[name]
					if !ok {
						if train == VisionAll || !encoder[name] {
							t.Errorf("%s, %q, checkpointed %v: %s has no gradient", g.Title, train, checkpoint, name)
						}
						continue
					}
					if train == VisionFrozen && encoder[name] {
						t.Errorf("%s: the frozen %s has a gradient", g.Title, name)
					}
					norm := 0.0
					for _, x := range v {
						norm += x * x
					}
					if norm = math.Sqrt(norm); math.Abs(norm-w.Norm) > 1e-4*w.Norm {
						t.Errorf("%s, %q, checkpointed %v, %s: the gradient's norm is %v, transformers has %v", g.Title, train, checkpoint, name,
							norm, w.Norm)
						continue
					}
					for k, at := range w.At {
						if math.Abs(v[at]-w.Values[k]) > 1e-4*w.Norm {
							t.Errorf("%s, %q, %s[%d]: %v, transformers has %v", g.Title, train, name, at, v[at], w.Values[k])
						}
					}
				}
			}
		}
	}
}

// Attempts share a prompt with images, one has other pixels of the same size, one looks again.
func TestATreeWithImagesIsItsSequences(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		c, err := weights.ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		q := g.sequence(c.Vision, 3)
		crop := pictureOf(c.Vision, len(q.IDs)+1, [3]int{1, 2, 6}, "crop")
		looks := append(append(slices.Clone(q.IDs), 9), slices.Repeat([]int32{c.Vision.ImageToken}, crop.Tokens)...)
		other := slices.Clone(q.Images)
		other[0] = pictureOf(c.Vision, other[0].Start, other[0].Grid, "other")
		seqs := [][]int32{append(slices.Clone(q.IDs), 5, 6), append(slices.Clone(q.IDs), 5, 7), append(slices.Clone(q.IDs), 5, 6),
			append(looks, 4)}
		images := [][]Image{q.Images, q.Images, other, append(slices.Clone(q.Images), crop)}
		all := Batch{Sequences: seqs, Images: images, Want: wanted(seqs...)}
		pack := newPack(seqs, images, c.Vision.Merge)
		if n := len(q.Images) + 1 + 2; len(pack.images) != n { // the other image changes what is behind it: that is encoded once, too
			t.Errorf("the pack has %d images, want %d", len(pack.images), n)
		}
		tr, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := tr.Forward(all)
		if err != nil {
			t.Fatal(err)
		}
		var apart []float64
		for i := range seqs {
			o, err := tr.Forward(Batch{Sequences: seqs[i : i+1], Images: images[i : i+1], Want: wanted(seqs[i])})
			if err != nil {
				t.Fatal(err)
			}
			apart = append(apart, o.Logprobs...)
		}
		tr.Close()
		for k := range apart {
			if math.Abs(apart[k]-whole.Logprobs[k]) > 1e-12*max(1, math.Abs(apart[k])) {
				t.Fatalf("%s: token %d: %v in the tree, %v alone", g.Title, k, whole.Logprobs[k], apart[k])
			}
		}
		tree := learnImages(t, dir, Config{Vision: VisionAll}, all)
		turned := Batch{Sequences: slices.Clone(seqs), Images: slices.Clone(images), Want: slices.Clone(all.Want)}
		slices.Reverse(turned.Sequences)
		slices.Reverse(turned.Images)
		slices.Reverse(turned.Want)
		for name, v := range learnImages(t, dir, Config{Vision: VisionAll}, turned) {
			if relativeError(tree[name], v) > 1e-12 {
				t.Errorf("%s: in another order the gradient of %s is off by %.2g", g.Title, name, relativeError(tree[name], v))
			}
		}
		sum, n := map[string][]float64{}, float64(len(apart))
		for i := range seqs {
			one := learnImages(t, dir, Config{Vision: VisionAll}, Batch{Sequences: seqs[i : i+1], Images: images[i : i+1], Want: wanted(seqs[i])})
			for name, v := range one {
				if sum[name] == nil {
					sum[name] = make([]float64, len(v))
				}
				for k := range v {
					sum[name][k] += v[k] * float64(len(seqs[i])-1) / n
				}
			}
		}
		for name, v := range sum {
			if len(tree[name]) != len(v) || relativeError(tree[name], v) > 1e-12 {
				t.Errorf("%s: the gradient of %s is off by %.2g of its largest", g.Title, name, relativeError(tree[name], v))
			}
		}
	}
}

// Both forms of config.json are read; what is saved has transformers' names, a frozen encoder
// as it was, and opens again.
func TestModelsWithEncodersAreSavedAsTheyArePublished(t *testing.T) {
	for _, g := range visionModels(t) {
		for _, config := range []json.RawMessage{g.Config, g.OldConfig} {
			if config == nil {
				continue
			}
			dir := g.write(t, config)
			tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			err = tr.Save(out, weights.F32)
			tr.Close()
			if err != nil {
				t.Fatal(err)
			}
			f, err := weights.OpenSafetensors(filepath.Join(out, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range g.Stored {
				if _, ok := f.Tensor(name); !ok {
					t.Errorf("%s: %s is not in the saved file", g.Title, name)
				}
			}
			if f.Len() != len(g.Stored) {
				t.Errorf("%s: %d tensors are saved, transformers saves %d", g.Title, f.Len(), len(g.Stored))
			}
			f.Close()
			p := open(t, out, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
			if p.Multimodal() != "" || !slices.Equal(p.model.EOS, []int32{2}) {
				t.Errorf("%s: multimodal %q, ends with %v", g.Title, p.Multimodal(), p.model.EOS)
			}
			got, err := p.LogprobsSequence(context.Background(), g.sequence(p.model.Vision, 1))
			if err != nil {
				t.Fatal(err)
			}
			if _, worst := distance(got, g.Texts[1].Float32); worst > 1e-4 {
				t.Errorf("%s: the saved model's log-probs are off by %.2g", g.Title, worst)
			}
		}
	}
}

func TestImagesThatDoNotFitAreRefused(t *testing.T) {
	g := visionModels(t)[0]
	p := open(t, g.write(t, g.Config), Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	v := p.model.Vision
	good := g.sequence(v, 2)
	ask := func(p *Policy, q Sequence) []error {
		_, a := p.LogprobsSequence(context.Background(), q)
		_, b := p.SampleSequence(context.Background(), q, traj.Sampling{MaxTokens: 1}, 1)
		return []error{a, b}
	}
	broken := map[string]func(q *Sequence){
		"overlap":           func(q *Sequence) { q.Images[1].Start = 0 },
		"behind the end":    func(q *Sequence) { q.Images[2].Start = len(q.IDs) },
		"before the start":  func(q *Sequence) { q.Images[0].Start = -1 },
		"no places":         func(q *Sequence) { q.Images[0].Tokens = 0 },
		"huge":              func(q *Sequence) { q.Images[0].Tokens = math.MaxInt },
		"another grid":      func(q *Sequence) { q.Images[1].Grid = [3]int{1, 8, 8} },
		"odd grid":          func(q *Sequence) { q.Images[1].Grid = [3]int{1, 16, 3} },
		"two frames":        func(q *Sequence) { q.Images[1].Grid = [3]int{2, 4, 6} },
		"text in its place": func(q *Sequence) { q.IDs[0] = 5 },
		"no patches":        func(q *Sequence) { q.Images[0].Patches = nil },
		"fewer patches":     func(q *Sequence) { q.Images[0].Patches = func() ([]float32, error) { return make([]float32, 5), nil } },
		"not a number": func(q *Sequence) {
			q.Images[0].Patches = func() ([]float32, error) { return slices.Repeat([]float32{float32(math.NaN())}, 4*v.PatchSize()), nil }
		},
	}
	for what, change := range broken {
		q := Sequence{IDs: slices.Clone(good.IDs), Images: slices.Clone(good.Images)}
		change(&q)
		for _, err := range ask(p, q) {
			var fault *malformed.Error
			if !errors.As(err, &fault) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	gone := Sequence{IDs: good.IDs, Images: slices.Clone(good.Images)}
	gone.Images[2].Patches = func() ([]float32, error) { return nil, os.ErrNotExist }
	for _, err := range ask(p, gone) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an image that is gone: %v", err)
		}
	}
	for _, err := range ask(p, good) {
		if err != nil {
			t.Errorf("after the others, the good one: %v", err)
		}
	}
	long := Sequence{IDs: append(slices.Repeat([]int32{5}, 600), good.IDs...), Images: slices.Clone(good.Images)}
	for i := range long.Images {
		long.Images[i].Start += 600
	}
	for _, err := range ask(p, long) {
		if !errors.Is(err, traj.ErrPromptTooLong) {
			t.Errorf("an image beyond the window: %v", err)
		}
	}
	text := open(t, "testdata/tiny-llama", Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
	for _, err := range ask(text, good) {
		var fault *malformed.Error
		if !errors.As(err, &fault) {
			t.Errorf("a model of text: %v", err)
		}
	}
	tr, err := OpenTrainable("testdata/tiny-llama", Config{DType: "float32", Threads: 1, Vision: VisionAll})
	if err == nil {
		tr.Close()
		t.Error("the encoder of a model without one is trained")
	}
}
