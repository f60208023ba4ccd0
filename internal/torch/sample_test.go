//go:build libtorch

package torch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/torch"
)

// Each id of transformers' set comes out when the uniform falls within its share
// of the distribution: a set with one id more or less would shift the others.
func TestSampleSetsEqualTransformers(t *testing.T) {
	g := data(t).Sampling
	w := worker(t, 2)
	lps := g.Logprobs.floats()
	eachKernels(t, func(t *testing.T) {
		for _, r := range g.Rows {
			var rows []torch.SampleRow
			var want []int32
			add := func(id int32, u float64) {
				want = append(want, id)
				rows = append(rows, torch.SampleRow{Temperature: r.Temperature, TopP: r.TopP, MinP: r.MinP, TopK: r.TopK, Uniform: u})
			}
			cdf, probs := 0.0, r.Probs.floats()
			for i, id := range r.Keep {
				for _, at := range []float64{.1, .5, .9} {
					add(id, cdf+at*probs[i])
				}
				cdf += probs[i]
			}
			add(r.Keep[0], 0)
			if len(r.Keep) < len(lps) { // of a whole vocabulary, rounding may end the draw early
				add(r.Keep[len(r.Keep)-1], math.Nextafter(1, 0))
			}
			run(t, w, func(s *torch.Scope) {
				one := g.Logits.tensor(s, torch.Float32)
				z := s.Add(s.Full(0, torch.Float32, torch.CPU, int64(len(rows)), 1), one)
				ids, lp := s.Sample(z, rows)
				hot := slices.Clone(rows)
				for i := range hot {
					hot[i].Tempered = 1
				}
				hotIDs, hotLP := s.Sample(z, hot)
				if !slices.Equal(hotIDs, ids) {
					t.Errorf("what is drawn depends on which log-probs are asked for: %v and %v", ids, hotIDs)
				}
				for i := range ids {
					if r.Temperature > 0 && math.Abs(float64(hotLP[i])-tempered(lps, int(ids[i]), r.Temperature)) > 5e-6 {
						t.Errorf("after temperature %v the log-prob of %d is %v, want %v", r.Temperature, ids[i],
							hotLP[i], tempered(lps, int(ids[i]), r.Temperature))
						break
					}
					if ids[i] != want[i] {
						t.Errorf("temperature %v top-k %d top-p %v min-p %v: uniform %v gives %d, want %d of %d ids",
							r.Temperature, r.TopK, r.TopP, r.MinP, rows[i].Uniform, ids[i], want[i], len(r.Keep))
						break
					}
					if math.Abs(float64(lp[i])-lps[ids[i]]) > 3e-6 {
						t.Errorf("the log-prob of %d is %v, want the model's own %v", ids[i], lp[i], lps[ids[i]])
						break
					}
				}
			})
		}
	})
}

// tempered is the log-prob of an id of softmax(lps/t), a row's log-probs divided by t.
func tempered(lps []float64, id int, t float64) float64 {
	total := 0.0
	for _, x := range lps {
		total += math.Exp(x / t)
	}
	return lps[id]/t - math.Log(total)
}

func TestGreedyTakesTheFirstLargestLogit(t *testing.T) {
	w := worker(t, 1)
	eachKernels(t, func(t *testing.T) {
		run(t, w, func(s *torch.Scope) {
			for _, vocab := range []int{1, 2, 15, 16, 17, 1023, 1024, 1025, 3001} {
				for _, at := range []int{0, vocab / 2, vocab - 1} {
					v := make([]float32, vocab)
					for i := range v {
						v[i] = -float32(i % 7)
					}
					v[at] = 1
					ids, _ := s.Sample(s.Float32(v, 1, int64(vocab)), []torch.SampleRow{{Uniform: .9, TopK: 3}})
					if len(ids) != 1 || ids[0] != int32(at) {
						t.Errorf("vocabulary %d: %v, want %d", vocab, ids, at)
					}
				}
			}
			if ids, _ := s.Sample(s.Float32([]float32{0, 2, 2, 1}, 1, 4), []torch.SampleRow{{}}); s.Err() == nil && ids[0] != 1 {
				t.Errorf("of two equal logits, %d", ids[0])
			}
			if ids, _ := s.Sample(s.Float32([]float32{0, 2, 3, 1}, 1, 4), []torch.SampleRow{{Temperature: 1e-45, Uniform: .5}}); s.Err() == nil &&
				ids[0] != 2 {
				t.Errorf("at a temperature of almost 0, %d", ids[0])
			}
			z := s.Float32([]float32{0, 2, 3, 1}, 1, 4)
			_, own := s.Sample(z, []torch.SampleRow{{}})
			if _, lp := s.Sample(z, []torch.SampleRow{{Tempered: 1}}); s.Err() == nil && lp[0] != own[0] {
				t.Errorf("a greedy token's log-prob is %v, want the model's %v", lp[0], own[0])
			}
		})
	})
}

// With uniforms (i+½)/n each id comes out n·p times to within one: far inside
// any chi-square bound. The vocabulary spans several blocks of the draw.
func TestSampleFollowsTheDistribution(t *testing.T) {
	const vocab, n = 2500, 20000
	w := worker(t, 2)
	rng := rand.New(rand.NewPCG(7, 8))
	z := make([]float32, vocab)
	for i := range z {
		z[i] = float32(rng.NormFloat64() * 2)
	}
	for _, temp := range []float64{1, .7, 1.5} {
		p, total := make([]float64, vocab), 0.0
		for i := range z {
			p[i] = math.Exp(float64(z[i]) / temp)
			total += p[i]
		}
		counts := make([]float64, vocab)
		eachKernels(t, func(t *testing.T) {
			clear(counts)
			run(t, w, func(s *torch.Scope) {
				logits := s.Add(s.Full(0, torch.Float32, torch.CPU, 500, 1), s.Float32(z))
				rows := make([]torch.SampleRow, 500)
				for b := range n / 500 {
					for i := range rows {
						rows[i] = torch.SampleRow{Temperature: temp, Uniform: (float64(b*500+i) + .5) / n}
					}
					ids, _ := s.Sample(logits, rows)
					for _, id := range ids {
						counts[id]++
					}
				}
			})
			for i := range p {
				if want := n * p[i] / total; math.Abs(counts[i]-want) > 1.1 {
					t.Fatalf("temperature %v: id %d drawn %v times of %d, want %.2f", temp, i, counts[i], n, want)
				}
			}
		})
	}
}

// A diverged model must not crash the process (NaN breaks sorting), nor sample.
func TestNotFiniteLogitsAreAnErrorNamingTheRow(t *testing.T) {
	w := worker(t, 1)
	eachKernels(t, func(t *testing.T) {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			for _, at := range []int{0, 7, 999, 2000} {
				for _, r := range []torch.SampleRow{{}, {Temperature: 1, Uniform: .5}, {Temperature: .7, TopK: 50, TopP: .9, MinP: .1, Uniform: .5}} {
					err := w.Do(func(s *torch.Scope) error {
						v := make([]float32, 2*2001)
						v[2001+at] = bad
						s.Sample(s.Float32(v, 2, 2001), []torch.SampleRow{r, r})
						return nil
					})
					if err == nil || !strings.Contains(err.Error(), "row 1") {
						t.Fatalf("%v at %d: %v", bad, at, err)
					}
				}
			}
		}
		run(t, w, func(s *torch.Scope) { // masked-out tokens are fine
			inf := float32(math.Inf(-1))
			ids, lp := s.Sample(s.Float32([]float32{inf, 1, inf, 1}, 1, 4), []torch.SampleRow{{Temperature: 1, Uniform: .6}})
			if len(ids) != 1 || ids[0] != 3 || math.Abs(float64(lp[0])+math.Ln2) > 1e-6 {
				t.Errorf("with −∞ logits: %v %v", ids, lp)
			}
		})
	})
}
