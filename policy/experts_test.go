//go:build libtorch

package policy

import (
	"context"
	"errors"
	"slices"
	"testing"

	"agentcli/internal/malformed"
	"agentcli/internal/torch/testdevice"
	"agentcli/traj"
)

// withExperts runs a test for each family that has experts.
func withExperts(t *testing.T, test func(t *testing.T, g familyGolden, dir string)) {
	n := 0
	for _, g := range families(t) {
		dir := g.write(t)
		p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20})
		if !HasExperts(p) {
			continue
		}
		n++
		t.Run(g.Title, func(t *testing.T) { test(t, g, dir) })
	}
	if n < 5 {
		t.Errorf("%d families have experts", n)
	}
}

func ask(t *testing.T, p *Policy, prompt []int32, tokens int) *Reply {
	t.Helper()
	r, err := EngineOf(p).Ask(context.Background(), &Request{Prompt: Sequence{IDs: prompt}, Seed: 3, IgnoreEnd: true,
		Sampling: traj.Sampling{MaxTokens: tokens}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A reply says which experts were chosen for each token that was read: those that a forward pass
// over the whole text chooses, also where the prompt was found in the cache.
func TestExpertsOfARepliesTokensAreThoseOfAForwardPass(t *testing.T) {
	withExperts(t, func(t *testing.T, _ familyGolden, dir string) {
		p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20, KeepExperts: true})
		first := ask(t, p, []int32{5, 6, 7, 8, 9}, 40)
		text := slices.Concat([]int32{5, 6, 7, 8, 9}, first.IDs)
		prompt := append(slices.Clone(text), 30, 31, 32)
		second := ask(t, p, prompt, 6)
		with, active := expertLayers(p.model.Layers)
		if e := first.Experts; e.Tokens() != len(text)-1 || e.Layers != len(with) || e.Active != active {
			t.Fatalf("experts of %d tokens, %d layers, %d each", e.Tokens(), e.Layers, e.Active)
		}
		if second.Cached == 0 {
			t.Error("the second prompt does not begin in the cache")
		}
		if e := second.Experts; e.Tokens() != len(prompt)+5 || !slices.Equal(e.Head(len(text)-1).IDs, first.Experts.IDs) {
			t.Errorf("the second reply has other experts of what was in the cache")
		}
		whole := slices.Concat(prompt, second.IDs)
		out := forwardOf(t, dir, Batch{Sequences: [][]int32{whole}, Experts: []*traj.Experts{second.Experts}})
		if want := float64((len(whole) - 1) * len(with) * active); out.Routing.Known != want || out.Routing.Missed != 0 {
			t.Errorf("of %v experts %v were not chosen, want 0 of %v", out.Routing.Known, out.Routing.Missed, want)
		}
	})
}

// wantAll wants every token of the sequences.
func wantAll(seqs [][]int32) (want [][]bool) {
	for _, q := range seqs {
		want = append(want, append([]bool{false}, slices.Repeat([]bool{true}, len(q)-1)...))
	}
	return want
}

func forwardOf(t *testing.T, dir string, b Batch) Outputs {
	t.Helper()
	b.Want = wantAll(b.Sequences)
	tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	out, err := tr.Forward(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Replayed experts of the model itself change no bit; others are chosen instead, counted, and give
// in a packed tree, with layers computed again or not, what they give in its sequences.
func TestReplayedExpertsAreChosen(t *testing.T) {
	testdevice.SameBits(t)
	seqs := [][]int32{{5, 6, 7, 8, 9, 10, 11, 12}, {5, 6, 7, 8, 20, 21, 22}}
	withExperts(t, func(t *testing.T, _ familyGolden, dir string) {
		p := open(t, dir, Config{DType: "float64", Threads: 1, CacheBytes: 1 << 20, KeepExperts: true})
		layers := p.model.Layers
		with, active := expertLayers(layers)
		own, other := make([]*traj.Experts, len(seqs)), make([]*traj.Experts, len(seqs))
		missed := 0
		for i, q := range seqs {
			own[i] = ask(t, p, q, 1).Experts.Head(len(q) - 1)
			other[i] = &traj.Experts{Layers: own[i].Layers, Active: active, IDs: slices.Clone(own[i].IDs)}
			for at := range other[i].IDs {
				token, layer := at/active/len(with), at/active%len(with)
				if at%active != 0 || token%2 == 0 {
					continue
				}
				row := other[i].At(token, layer) // another expert in the place of the best
				for id := range uint16(layers[with[layer]].Experts.Count) {
					if !slices.Contains(row, id) {
						row[0] = id
						// Shared tokens count once, but in the last layer, which computes wanted tokens one by one.
						if i == 0 || token > 3 || with[layer] == len(layers)-1 {
							missed++
						}
						break
					}
				}
			}
		}
		type gradients = map[string][]float64
		compute := func(checkpoint, replay bool, experts []*traj.Experts, batches ...[][]int32) (lps []float64, r Routing, grads gradients) {
			tr, err := OpenTrainable(dir, Config{DType: "float64", Threads: 1, GradCheckpoint: checkpoint})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			for _, seqs := range batches {
				b := Batch{Sequences: seqs, Want: wantAll(seqs), Replay: replay}
				if experts != nil {
					b.Experts, experts = experts[:len(seqs)], experts[len(seqs):]
				}
				if err := tr.Accumulate(b, func(o Outputs) Gradients {
					lps = append(lps, o.Logprobs...)
					r.Known, r.Missed = r.Known+o.Routing.Known, r.Missed+o.Routing.Missed
					return Gradients{Logprobs: slices.Repeat([]float64{1}, len(o.Logprobs))}
				}); err != nil {
					t.Fatal(err)
				}
			}
			if grads, err = tr.Gradients(); err != nil {
				t.Fatal(err)
			}
			return lps, r, grads
		}
		plain, none, plainGrads := compute(false, false, nil, seqs)
		if none != (Routing{}) {
			t.Errorf("counted without experts: %+v", none)
		}
		same, counted, sameGrads := compute(false, true, own, seqs)
		if !slices.Equal(plain, same) || counted.Missed != 0 || counted.Known == 0 {
			t.Errorf("replayed experts of the model itself change its log-probs, or are not chosen: %+v", counted)
		}
		for name, g := range plainGrads {
			if !slices.Equal(g, sameGrads[name]) {
				t.Errorf("replayed experts of the model itself change the gradient of %s", name)
			}
		}
		if lps, r, _ := compute(false, false, other, seqs); !slices.Equal(plain, lps) || r.Missed != float64(missed) {
			t.Errorf("without replay the experts change log-probs, or %v of %d are counted", r.Missed, missed)
		}
		want, r, wantGrads := compute(false, true, other, seqs[:1], seqs[1:])
		if slices.Equal(plain, want) || r.Missed == 0 {
			t.Errorf("other experts are not replayed: %+v", r)
		}
		for _, checkpoint := range []bool{false, true} {
			lps, r, grads := compute(checkpoint, true, other, seqs)
			if d := largestDifference(lps, want); d > 1e-12 || r.Missed == 0 {
				t.Errorf("checkpointed %v: in a tree the log-probs differ by %v; %+v", checkpoint, d, r)
			}
			for name, w := range wantGrads {
				if d := largestDifference(grads[name], w); d > 1e-10 {
					t.Errorf("checkpointed %v: in a tree the gradient of %s differs by %v", checkpoint, name, d)
				}
			}
		}
	})
}

// Servers that record every layer of a model, also those without experts, are understood; experts of
// another model are refused where they are to be replayed, and not counted otherwise.
func TestExpertsOfAnotherModelAreNotReplayed(t *testing.T) {
	withExperts(t, func(t *testing.T, _ familyGolden, dir string) {
		p := open(t, dir, Config{DType: "float32", Threads: 1, CacheBytes: 1 << 20, KeepExperts: true})
		layers := p.model.Layers
		with, active := expertLayers(layers)
		seq := []int32{5, 6, 7, 8, 9, 10}
		e := ask(t, p, seq, 1).Experts.Head(5)
		all := &traj.Experts{Layers: len(layers), Active: active}
		for token := range 5 {
			for l := range layers {
				if at := slices.Index(with, l); at >= 0 {
					all.IDs = append(all.IDs, e.At(token, at)...)
				} else {
					all.IDs = append(all.IDs, make(traj.ExpertIDs, active)...)
				}
			}
		}
		b := Batch{Sequences: [][]int32{seq}, Experts: []*traj.Experts{all}, Replay: true}
		if out := forwardOf(t, dir, b); out.Routing.Missed != 0 || out.Routing.Known != float64(5*len(with)*active) {
			t.Errorf("experts of all layers: %+v", out.Routing)
		}
		tooMany := &traj.Experts{Layers: e.Layers, Active: active, IDs: slices.Clone(e.IDs)}
		tooMany.IDs[0] = uint16(layers[with[0]].Experts.Count)
		for name, bad := range map[string]*traj.Experts{
			"layers": {Layers: len(layers) + 1, Active: active, IDs: make(traj.ExpertIDs, (len(layers)+1)*active)},
			"active": {Layers: e.Layers, Active: active + 1, IDs: make(traj.ExpertIDs, e.Layers*(active+1))},
			"tokens": {Layers: e.Layers, Active: active, IDs: make(traj.ExpertIDs, 7*e.Layers*active)},
			"id":     tooMany,
		} {
			b := Batch{Sequences: [][]int32{seq}, Want: wantAll([][]int32{seq}), Experts: []*traj.Experts{bad}}
			tr, err := OpenTrainable(dir, Config{DType: "float32", Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			out, err := tr.Forward(b)
			if err != nil || out.Routing != (Routing{}) {
				t.Errorf("%s, not replayed: %+v, %v", name, out.Routing, err)
			}
			b.Replay = true
			var wrong *malformed.Error
			if _, err := tr.Forward(b); !errors.As(err, &wrong) || wrong.Field != "experts" {
				t.Errorf("%s, replayed: %v", name, err)
			}
			tr.Close()
		}
	})
}
