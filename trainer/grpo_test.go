package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"agentcli/internal/setting/settingtest"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

const vocab = 10

func still() time.Time { return time.Time{} }

// config is one step over everything, unclipped.
func config() Config {
	c := DefaultConfig()
	c.Minibatch, c.MaxGradNorm, c.LR = 0, 0, .1
	return c
}

// train runs GRPO on the episodes and gives the steps' metrics.
func train(t *testing.T, model *bigram, c Config, episodes []*episode.Episode, change ...func(*Trainer)) []Metrics {
	t.Helper()
	var out []Metrics
	g := &Trainer{Models: Models{Actor: model}, Config: c, Data: &rows.Data{Episodes: episodes},
		Clock: still, Hooks: Hooks{OnStep: func(m Metrics) error { out = append(out, m); return nil }}}
	for _, f := range change {
		f(g)
	}
	if err := g.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return out
}

// adv is an episode's advantage, the same for all its tokens.
func adv(e *episode.Episode) float64 { x, _ := e.MeanAdvantage(); return x }

func gap(a, b []float64) float64 {
	worst := 0.0
	for i := range a {
		worst = math.Max(worst, math.Abs(a[i]-b[i]))
	}
	return worst
}

// lossOf is the step's loss over all episodes, written out a second time.
func lossOf(model, ref *bigram, c Config, episodes []*episode.Episode) float64 {
	tokens, longest := 0, 0
	for _, e := range episodes {
		tokens += e.Sampled
		longest = max(longest, e.Sampled)
	}
	total := 0.0
	for _, e := range episodes {
		sum := 0.0
		for i := range e.Sequences {
			s := &e.Sequences[i]
			for j, sampled := range s.LossMask {
				if !sampled {
					continue
				}
				lp := model.row(s.TokenIDs[j-1])[s.TokenIDs[j]]
				ratio := math.Exp(lp - float64(s.Logprobs[j]))
				clipped := math.Min(math.Max(ratio, 1-c.Clip.Low), 1+c.Clip.High)
				sum += math.Max(-adv(e)*ratio, -adv(e)*clipped)
				if ref != nil {
					d := ref.row(s.TokenIDs[j-1])[s.TokenIDs[j]] - lp
					sum += c.KLCoef * (math.Exp(d) - d - 1)
				}
			}
		}
		switch c.Aggregation {
		case algo.TokenMean:
			total += sum / float64(tokens)
		case algo.SeqMeanTokenSum:
			total += sum / float64(len(episodes))
		case algo.SeqMeanTokenMean:
			total += sum / float64(e.Sampled) / float64(len(episodes))
		case algo.SeqMeanTokenSumNorm:
			total += sum / float64(longest) / float64(len(episodes))
		}
	}
	return total
}

func TestGradientIsThatOfTheLoss(t *testing.T) {
	for _, mode := range algo.Aggregations {
		for _, beta := range []float64{0, .3} {
			c := config()
			c.Aggregation, c.KLCoef, c.OldLogprobs = mode, beta, OldFile
			model, episodes := newBigram(vocab, 1), corpus()
			record(.5, model, episodes)
			var ref *bigram
			if beta > 0 {
				ref = newBigram(vocab, 2)
			}
			start := model.copy()
			m := train(t, model, c, episodes, func(g *Trainer) {
				if ref != nil {
					g.Ref = ref
				}
			})
			if f := m[0].Values["actor/pg_clipfrac"]; f == 0 || f == 1 {
				t.Fatalf("%v of the tokens are clipped; the test wants some", f)
			}
			const h = 1e-6
			for i := range start.logits {
				at := func(d float64) float64 {
					moved := start.copy()
					moved.logits[i] += d
					return lossOf(moved, ref, c, episodes)
				}
				if want := (at(h) - at(-h)) / (2 * h); math.Abs(want-model.steps[0][i]) > 1e-8 {
					t.Fatalf("%s, β %v: dL/dz[%d] is %v, by finite differences %v", mode, beta, i, model.steps[0][i], want)
				}
			}
			// The metrics' own loss is the same number.
			got := m[0].Values["actor/pg_loss"] + beta*m[0].Values["actor/kl_loss"]
			if want := lossOf(start, ref, c, episodes); beta > 0 && math.Abs(got-want) > 1e-12 {
				t.Errorf("%s, β %v: the loss is %v, reported %v", mode, beta, want, got)
			}
		}
	}
}

func TestNoSplitAndNoOrderChangesTheGradient(t *testing.T) {
	for _, mode := range algo.Aggregations {
		gradient := func(micro int, order func([]*episode.Episode)) (*bigram, []float64) {
			c := config()
			c.Aggregation, c.MicroTokens, c.OldLogprobs = mode, micro, OldFile
			model, episodes := newBigram(vocab, 1), corpus()
			record(.3, model, episodes)
			if order != nil {
				order(episodes)
			}
			train(t, model, c, episodes)
			if len(model.steps) != 1 {
				t.Fatalf("%d steps", len(model.steps))
			}
			return model, model.steps[0]
		}
		whole, want := gradient(1<<30, nil)
		if whole.calls != 1 {
			t.Fatalf("%d micro-batches, want one", whole.calls)
		}
		for _, micro := range []int{1, 7, 20} {
			model, got := gradient(micro, nil)
			if model.calls < 2 {
				t.Errorf("micro-tokens %d: %d micro-batches", micro, model.calls)
			}
			if d := gap(got, want); d > 1e-12 {
				t.Errorf("%s: micro-tokens %d move the gradient by %v", mode, micro, d)
			}
		}
		for seed := range uint64(5) {
			_, got := gradient(11, func(e []*episode.Episode) {
				rand.New(rand.NewPCG(seed, 9)).Shuffle(len(e), func(i, j int) { e[i], e[j] = e[j], e[i] })
			})
			if d := gap(got, want); d > 1e-12 {
				t.Errorf("%s: the rows' order moves the gradient by %v", mode, d)
			}
		}
	}
}

func TestTokensThatWereNotSampledChangeNothing(t *testing.T) {
	run := func(change func(s *traj.Sequence, j int)) []float64 {
		c := config()
		c.OldLogprobs = OldFile
		model, episodes := newBigram(vocab, 1), corpus()
		record(.3, model, episodes)
		for _, e := range episodes {
			for i := range e.Sequences {
				s := &e.Sequences[i]
				for j, sampled := range s.LossMask {
					if !sampled {
						change(s, j)
					}
				}
			}
		}
		train(t, model, c, episodes)
		return model.steps[0]
	}
	want := run(func(*traj.Sequence, int) {})
	for name, change := range map[string]func(s *traj.Sequence, j int){
		"log-probs": func(s *traj.Sequence, j int) { s.Logprobs[j] = traj.Logprob(-float64(j) - 7) },
		"ids": func(s *traj.Sequence, j int) {
			// The fake looks one token back: what stands before a sampled token is its context.
			if j+1 < len(s.LossMask) && !s.LossMask[j+1] {
				s.TokenIDs[j] = (s.TokenIDs[j] + 3) % vocab
			}
		},
	} {
		if got := run(change); !slices.Equal(got, want) {
			t.Errorf("other %s at unsampled tokens move the gradient by %v", name, gap(got, want))
		}
	}
}

func TestAtRatioOneTheGradientIsREINFORCEs(t *testing.T) {
	model, episodes := newBigram(vocab, 3), corpus()
	start := model.copy()
	train(t, model, config(), episodes)
	want := make([]float64, vocab*vocab)
	tokens := 0
	for _, e := range episodes {
		tokens += e.Sampled
	}
	for _, e := range episodes {
		for i := range e.Sequences {
			s := &e.Sequences[i]
			for j, sampled := range s.LossMask {
				if !sampled {
					continue
				}
				prev := s.TokenIDs[j-1]
				for k, lp := range start.row(prev) { // −A·∇log π(token) / N
					d := -math.Exp(lp)
					if int32(k) == s.TokenIDs[j] {
						d++
					}
					want[int(prev)*vocab+k] -= adv(e) * d / float64(tokens)
				}
			}
		}
	}
	if d := gap(model.steps[0], want); d > 1e-14 {
		t.Errorf("the gradient differs from REINFORCE's by %v", d)
	}
}

func TestGroupsOfEqualRewardsMoveNothing(t *testing.T) {
	flat := []*episode.Episode{attempt("flat", .1, "abCD"), attempt("flat", .1, "abDE"), attempt("flat", .1, "abEF")}
	model := newBigram(vocab, 1)
	g := &Trainer{Models: Models{Actor: model}, Config: config(), Data: &rows.Data{Episodes: flat}}
	err := g.Run(context.Background())
	if !errors.Is(err, ErrNothingToLearn) || len(model.steps) > 0 {
		t.Errorf("only equal rewards: error %v, %d steps", err, len(model.steps))
	}

	// Beside a group with spread: the flat one has no part in the gradient but
	// in the denominator, unless it is dropped.
	spreadGroup := func() []*episode.Episode { return []*episode.Episode{attempt("g", 1, "abCD"), attempt("g", 0, "abDE")} }
	gradient := func(drop bool, episodes []*episode.Episode) []float64 {
		c := config()
		c.DropZeroStd = drop
		model := newBigram(vocab, 1)
		train(t, model, c, episodes)
		return model.steps[0]
	}
	alone := gradient(false, spreadGroup())
	with := gradient(false, append(spreadGroup(), flat...))
	dropped := gradient(true, append(spreadGroup(), flat...))
	if !slices.Equal(alone, dropped) {
		t.Errorf("--drop-zero-std: the gradient is %v off that of the other group alone", gap(alone, dropped))
	}
	for i := range with { // 4 tokens of 4+6
		if math.Abs(with[i]-alone[i]*.4) > 1e-15 {
			t.Fatalf("the flat group's tokens belong in the denominator: %v, alone %v", with[i], alone[i])
		}
	}
}

func TestAStepWithNothingToLearnLeavesTheModelAndAdamAlone(t *testing.T) {
	// Minibatches of one group each; the flat ones are not updates.
	c := config()
	c.Minibatch, c.WeightDecay = 2, .1
	episodes := []*episode.Episode{attempt("f1", 1, "abC"), attempt("f1", 1, "abD"), attempt("f2", 0, "abC"), attempt("f2", 0, "abD"),
		attempt("g", 1, "abC"), attempt("g", 0, "abD"), attempt("h", 1, "abC"), attempt("h", 0, "abD")}
	model := newBigram(vocab, 1)
	m := train(t, model, c, episodes)
	if len(m) != 4 || len(model.taken) != 2 {
		t.Fatalf("%d steps reported, %d taken; want 4 and 2", len(m), len(model.taken))
	}
	if model.taken[0].Number != 1 || model.taken[1].Number != 2 {
		t.Errorf("Adam's steps are counted %d, %d", model.taken[0].Number, model.taken[1].Number)
	}
	for _, x := range m {
		_, has := x.Values["actor/ppo_kl"]
		if idle := x.Values["actor/grad_norm"] == 0; idle == has {
			t.Errorf("step %d: gradient norm %v, KL known: %v", x.Step, x.Values["actor/grad_norm"], has)
		}
	}
}

func TestOldLogprobsFromTheFileOrRecomputed(t *testing.T) {
	run := func(old string, d float64) (*bigram, []Metrics) {
		c := config()
		c.OldLogprobs = old
		model, episodes := newBigram(vocab, 1), corpus()
		record(d, model, episodes)
		return model, train(t, model, c, episodes)
	}
	recomputed, m := run(OldRecompute, .5)
	if v := m[0].Values; v["actor/ppo_kl"] != 0 || v["actor/pg_clipfrac"] != 0 {
		t.Errorf("recomputed: KL %v, clipped %v at the first step", v["actor/ppo_kl"], v["actor/pg_clipfrac"])
	} else if v["rollout_logprobs_diff_mean"] < .1 || v["rollout_logprobs_diff_max"] > .5001 {
		t.Errorf("the difference to the file's: %v on average, %v at most", v["rollout_logprobs_diff_mean"], v["rollout_logprobs_diff_max"])
	}
	file, m := run(OldFile, .5)
	if v := m[0].Values; v["actor/ppo_kl"] == 0 || v["actor/pg_clipfrac"] == 0 {
		t.Errorf("from the file: KL %v, clipped %v", v["actor/ppo_kl"], v["actor/pg_clipfrac"])
	} else if _, has := v["timing_s/old_log_prob"]; has {
		t.Error("nothing was recomputed, but a time for it is reported")
	}
	if slices.Equal(file.steps[0], recomputed.steps[0]) {
		t.Error("the two gave the same gradient")
	}
	exact, _ := run(OldFile, 0) // float32 in the file
	if d := gap(exact.steps[0], recomputed.steps[0]); d > 1e-6 {
		t.Errorf("with the model's own log-probs in the file the gradient is %v off", d)
	}

	c := config()
	c.OldLogprobs = OldFile
	for name, lp := range map[string]traj.Logprob{"unknown": traj.NoLogprob(), "-inf": traj.Logprob(math.Inf(-1))} {
		model, episodes := newBigram(vocab, 1), corpus()
		record(.1, model, episodes)
		episodes[4].Sequences[0].Logprobs[4] = lp
		err := (&Trainer{Models: Models{Actor: model}, Config: c, Data: &rows.Data{Episodes: episodes}}).Run(context.Background())
		if !errors.Is(err, ErrUnfit) || !settingtest.Names(err, "OldLogprobs") || !strings.Contains(err.Error(), episodes[4].ID) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestKLDrawsTheModelToTheReference(t *testing.T) {
	c := config()
	c.KLCoef, c.Epochs, c.Clip.Low, c.Clip.High = 5, 200, .2, .2
	run := func(beta float64) float64 {
		c := c
		c.KLCoef = beta
		model, ref, episodes := newBigram(vocab, 1), newBigram(vocab, 2), corpus()
		m := train(t, model, c, episodes, func(g *Trainer) { g.Ref = ref })
		if v := m[0].Values; (beta > 0) != (v["actor/kl_loss"] > 0) {
			t.Errorf("β %v: kl_loss %v", beta, v["actor/kl_loss"])
		}
		kl := 0.0
		for prev := range int32(vocab) {
			p, q := model.row(prev), ref.row(prev)
			for k := range p {
				kl += math.Exp(p[k]) * (p[k] - q[k])
			}
		}
		return kl
	}
	if near, far := run(5), run(0); near > .8*far {
		t.Errorf("KL to the reference is %v with β = 5 and %v without", near, far)
	}

	// At the start the model is its own reference: known, and 0.
	model, episodes := newBigram(vocab, 1), corpus()
	c.Epochs = 1
	m := train(t, model, c, episodes, func(g *Trainer) { g.Ref = model.copy() })
	if kl, has := m[0].Values["actor/kl_loss"]; !has || kl != 0 {
		t.Errorf("kl_loss is %v, known: %v", kl, has)
	}
	err := (&Trainer{Models: Models{Actor: model}, Config: c, Data: &rows.Data{Episodes: episodes}}).Run(context.Background())
	if !settingtest.Names(err, "Ref") {
		t.Errorf("no reference: %v", err)
	}
}

// In a run of one update the reference that is the policy itself is that update's own pass,
// also after the other models were released.
func TestTheOnlyUpdateIsItsOwnReference(t *testing.T) {
	c := config()
	c.KLCoef, c.Epochs, c.Minibatch = .1, 1, 0
	itself, other := newBigram(vocab, 1), newBigram(vocab, 1)
	m := train(t, itself, c, corpus(), func(g *Trainer) { g.Ref, g.Release = g.Actor, func() {} })
	train(t, other, c, corpus(), func(g *Trainer) { g.Ref, g.Release = other.copy(), func() {} })
	if kl, has := m[0].Values["actor/kl_loss"]; !has || kl != 0 {
		t.Errorf("the KL to itself is %v", kl)
	}
	if !slices.Equal(itself.steps[0], other.steps[0]) {
		t.Error("the gradient is not that of a reference of its own")
	}
}

func TestEpochsAndSchedules(t *testing.T) {
	// Groups of unequal sizes: the epochs have different numbers of minibatches.
	var episodes []*episode.Episode
	for i, n := range []int{1, 6, 2, 5, 3, 4, 1, 8} {
		for k := range n {
			episodes = append(episodes, attempt(fmt.Sprint("g", i), float64(k%2+i%2), "ab"+string(rune('A'+k))))
		}
	}
	for _, schedule := range []string{"constant", "linear", "cosine"} {
		c := config()
		c.Minibatch, c.Epochs, c.Schedule, c.WarmupSteps = 6, 7, schedule, 3
		model := newBigram(vocab, 1)
		m := train(t, model, c, episodes)
		last := m[len(m)-1]
		if last.Step != len(m) || last.Total != len(m) || last.Values["training/epoch"] != 6 {
			t.Fatalf("%d steps; the last says %d of %d in epoch %v", len(m), last.Step, last.Total, last.Values["training/epoch"])
		}
		for i, x := range m {
			lr := x.Values["actor/lr"]
			switch done := float64(i-3) / float64(len(m)-3); {
			case lr <= 0:
				t.Errorf("%s: learning rate %v at step %d", schedule, lr, x.Step)
			case i < 3:
				if math.Abs(lr-.1*float64(i+1)/3) > 1e-15 {
					t.Errorf("%s: warm-up %v at step %d", schedule, lr, x.Step)
				}
			case schedule == "constant" && lr != .1,
				schedule == "linear" && math.Abs(lr-.1*(1-done)) > 1e-15,
				schedule == "cosine" && math.Abs(lr-.05*(1+math.Cos(math.Pi*done))) > 1e-15:
				t.Errorf("%s: learning rate %v at step %d of %d", schedule, lr, x.Step, len(m))
			}
		}
		if m[len(m)-1].Values["actor/ppo_kl"] == 0 {
			t.Error("old log-probs moved with the model")
		}
	}
}

// A bonus alone, on a model that stays as it is: the gradient is as large as its weight.
func TestTheEntropyBonusFollowsItsSchedule(t *testing.T) {
	var episodes []*episode.Episode
	for i := range 8 {
		episodes = append(episodes, attempt(fmt.Sprint("g", i/2), 1, "abA"))
	}
	norms := map[string][]float64{}
	for _, schedule := range Schedules {
		c := config()
		c.Minibatch, c.Epochs, c.LR, c.EntropyCoef, c.EntropySchedule = 8, 5, 1e-12, .3, schedule
		for i, x := range train(t, newBigram(vocab, 1), c, episodes) {
			done := float64(i) / 5
			want := map[string]float64{Constant: .3, "linear": .3 * (1 - done), "cosine": .15 * (1 + math.Cos(math.Pi*done))}[schedule]
			if got := x.Values["actor/entropy_coef"]; math.Abs(got-want) > 1e-15 {
				t.Errorf("%s: step %d has the weight %v, want %v", schedule, x.Step, got, want)
			}
			norms[schedule] = append(norms[schedule], x.Values["actor/grad_norm"])
			if full := norms[Constant][i]; full == 0 || math.Abs(norms[schedule][i]-full*want/.3) > 1e-9 {
				t.Errorf("%s: the gradient of step %d is %v, that of a constant weight %v", schedule, x.Step, norms[schedule][i], full)
			}
		}
		if len(norms[schedule]) != 5 {
			t.Fatalf("%s: %d steps", schedule, len(norms[schedule]))
		}
	}
}

func TestItLearnsATwoArmedBandit(t *testing.T) {
	for _, advantage := range []string{"grpo", "rloo"} { // PPO's is in ppo_test.go
		t.Run(advantage, func(t *testing.T) { learnsABandit(t, advantage) })
	}
}

func learnsABandit(t *testing.T, advantage string) {
	// a is the question, b and c the arms; c pays.
	model := &bigram{vocab: 3, logits: make([]float64, 9), grad: make([]float64, 9), m: make([]float64, 9), v: make([]float64, 9)}
	model.logits[0] = -20 // never the question again
	r := rand.New(rand.NewPCG(1, 2))
	c := DefaultConfig()
	c.Advantage, c.LR, c.Minibatch = advantage, .1, 0
	for range 40 { // on-policy rounds of 4 groups of 8
		var episodes []*episode.Episode
		p := math.Exp(model.row(0)[2])
		for group := range 4 {
			for range 8 {
				arm, pay := "B", 0.0
				if r.Float64() < p {
					arm, pay = "C", 1
				}
				episodes = append(episodes, attempt(fmt.Sprint(group), pay, "a"+arm))
			}
		}
		g := &Trainer{Models: Models{Actor: model}, Config: c, Data: &rows.Data{Episodes: episodes}}
		if err := g.Run(context.Background()); err != nil {
			if errors.Is(err, ErrNothingToLearn) {
				break // learnt so well that no attempt fails
			}
			t.Fatal(err)
		}
		model.m, model.v = make([]float64, 9), make([]float64, 9) // each run starts its own Adam
	}
	if p := math.Exp(model.row(0)[2]); p < .9 {
		t.Errorf("the paying arm is drawn with probability %v", p)
	}
}

// With the file's log-probs as the old ones, the first update's own forward pass
// measures how far they are from the starting policy's.
func TestTheFilesLogprobsAreComparedWhicheverAreUsed(t *testing.T) {
	measured := func(c Config, change ...func(*Trainer)) []Metrics {
		model, episodes := newBigram(vocab, 1), corpus()
		record(.5, model, episodes)
		return train(t, model, c, episodes, change...)
	}
	c := config()
	c.KLCoef, c.Minibatch, c.Epochs = .1, 4, 2 // with a KL term every row is computed
	ref := func(g *Trainer) { g.Ref = newBigram(vocab, 2) }
	c.OldLogprobs = OldRecompute
	all := measured(c, ref)
	c.OldLogprobs = OldFile
	first := measured(c, ref)
	tokens := 0
	for _, e := range corpus() {
		tokens += e.Sampled
	}
	if n := all[0].Values["rollout_corr/tokens"]; n != float64(tokens) {
		t.Errorf("recomputed: compared over %v tokens of %d", n, tokens)
	}
	n := first[0].Values["rollout_corr/tokens"]
	if n == 0 || n >= float64(tokens) {
		t.Errorf("from the file: compared over %v tokens; the first step holds some of %d", n, tokens)
	}
	for _, m := range first {
		for _, k := range []string{"rollout_logprobs_diff_mean", "rollout_logprobs_diff_max", "rollout_corr/k3", "rollout_corr/tokens"} {
			if x, has := m.Values[k]; !has || x != first[0].Values[k] || x == 0 {
				t.Errorf("step %d: %s is %v", m.Step, k, x)
			}
		}
	}
	// One step over everything sees what recomputing sees.
	c.Minibatch, c.Epochs = 0, 1
	whole := measured(c, ref)[0].Values
	for _, k := range []string{"rollout_logprobs_diff_mean", "rollout_logprobs_diff_max", "rollout_corr/k3", "rollout_corr/tokens"} {
		if want := all[0].Values[k]; math.Abs(whole[k]-want) > 1e-12 {
			t.Errorf("%s is %v from the first forward pass, %v recomputed", k, whole[k], want)
		}
	}
	// A resumed run knows it from its checkpoint, and needs no reference.
	var kept *Frozen
	c.Minibatch, c.Epochs = 4, 2
	ctx, cancel := context.WithCancel(context.Background())
	model, episodes := newBigram(vocab, 1), corpus()
	record(.5, model, episodes)
	g := &Trainer{Models: Models{Actor: model, Ref: newBigram(vocab, 2)}, Config: c, Data: &rows.Data{Episodes: episodes}, Clock: still,
		Hooks: Hooks{OnStep: func(Metrics) error { cancel(); return nil }, Checkpoint: func(_ int, f *Frozen) error { kept = f; return nil }}}
	if err := g.Run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	rest := train(t, model, c, episodes, func(g *Trainer) { g.Done, g.Frozen = 1, kept })
	if x := rest[0].Values["rollout_logprobs_diff_mean"]; x != first[0].Values["rollout_logprobs_diff_mean"] {
		t.Errorf("resumed: %v, before %v", x, first[0].Values["rollout_logprobs_diff_mean"])
	}
}
