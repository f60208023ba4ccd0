package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/setting/settingtest"
	"agentcli/lossscale"
	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// supervised is a run of one algorithm with everything in one step.
func supervisedConfig(algorithm string) Config {
	c := config()
	c.Algo, c.MicroTokens = algorithm, 1<<20
	return c
}

// learn runs a supervised algorithm and gives the steps' metrics.
func learn(t *testing.T, model *bigram, c Config, d *rows.Data, change ...func(*Trainer)) []Metrics {
	t.Helper()
	var out []Metrics
	s := &Trainer{Models: Models{Actor: model}, Config: c, Data: d, Clock: still,
		Hooks: Hooks{OnStep: func(m Metrics) error { out = append(out, m); return nil }}}
	for _, f := range change {
		f(s)
	}
	if err := s.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return out
}

// text is rows for SFT; weights of 0, ½ and 3 among them.
func text() *rows.Data {
	d := &rows.Data{}
	for i, s := range []string{"abcDEfghIJ", "abcDFFE", "hGghFe", "hhABC", "baCJ"} {
		e := attempt(fmt.Sprint(i), 0, s)
		if i < 2 {
			w := make([]float64, len(s))
			for j := range w {
				w[j] = []float64{0, .5, 3}[(i+j)%3]
			}
			e.Sequences[0].Weights = w
		}
		d.Episodes = append(d.Episodes, e)
	}
	return d
}

// preferences are three prompts, one of them with three replies and so two pairs of
// which one reply is common, and one with a margin and two sequences; two replies have weights.
func preferences() *rows.Data {
	d := &rows.Data{}
	add := func(group string, texts ...string) *episode.Episode {
		e := attempt(group, float64(len(d.Episodes)), texts...)
		d.Episodes = append(d.Episodes, e)
		return e
	}
	a, b, c := add("one", "abcDEfghIJ"), add("one", "abcDFFE"), add("one", "abcJ")
	x, y := add("two", "abdEFG", "abdhhCA"), add("two", "abdEEeeF")
	p, q := add("three", "hGghFe"), add("three", "hhABC")
	weigh([]*episode.Episode{b, x}, func(n int) float64 { return []float64{1, 3, 0, .5}[n%4] })
	d.Pairs = []rows.Pair{{Chosen: a, Rejected: b}, {Chosen: a, Rejected: c, Margin: .5},
		{Chosen: x, Rejected: y, Margin: .25}, {Chosen: p, Rejected: q}}
	return d
}

// judged are steps with hard and soft labels over the reward tokens 1 and 2.
func judged() *rows.Data {
	d := &rows.Data{}
	for i, r := range []struct {
		marks []string
		y     [][]float64
	}{{[]string{"dedc", "dedcfgc"}, [][]float64{{1, 0}, {.25, .75}}}, {[]string{"ddjjc"}, [][]float64{{0, 1}}},
		{[]string{"ehc", "ehcic", "ehcicgc"}, [][]float64{{.5, .5}, {1, 0}, {0, 1}}}} {
		e := &episode.Episode{ID: fmt.Sprint("steps", i), Group: fmt.Sprint(i), Body: &episode.Body{Marks: r.y}}
		for _, m := range r.marks {
			for _, token := range "BC" {
				e.Sequences = append(e.Sequences, sequence(m+string(token), nil))
			}
		}
		d.Episodes = append(d.Episodes, e)
	}
	return d
}

func logsigmoid(x float64) float64 { return -math.Log(1 + math.Exp(-x)) }

// replyLP is the log-prob of what was sampled in an episode, each token's as often as it weighs.
func replyLP(model *bigram, e *episode.Episode) (sum float64, n int) {
	for _, s := range e.Sequences {
		for t := range s.TokenIDs {
			w := 1.
			if s.Weights != nil {
				w = s.Weights[t]
			}
			if s.LossMask[t] && w > 0 {
				sum += w * model.row(s.TokenIDs[t-1])[s.TokenIDs[t]]
				n++
			}
		}
	}
	return sum, n
}

// lossWritten is each algorithm's loss over all rows, written out a second time.
func lossWritten(model, ref *bigram, c Config, d *rows.Data) float64 {
	l, n := 0.0, 0.0
	switch c.Algo {
	case AlgoSFT:
		for _, e := range d.Episodes {
			for _, s := range e.Sequences {
				for t := range s.TokenIDs {
					w := 1.0
					if s.Weights != nil {
						w = s.Weights[t]
					}
					if s.LossMask[t] && w > 0 {
						l -= w * model.row(s.TokenIDs[t-1])[s.TokenIDs[t]]
						n++
					}
				}
			}
		}
	case AlgoDPO:
		for _, p := range d.Pairs {
			h := 0.0
			for _, x := range []struct {
				e    *episode.Episode
				sign float64
			}{{p.Chosen, 1}, {p.Rejected, -1}} {
				a, tokens := replyLP(model, x.e)
				b, _ := replyLP(ref, x.e)
				if c.Supervised.DPOLoss == "ipo" {
					a, b = a/float64(tokens), b/float64(tokens)
				}
				h += x.sign * (a - b)
			}
			beta, eps := c.Supervised.DPOBeta, c.Supervised.LabelSmoothing
			switch c.Supervised.DPOLoss {
			case "sigmoid":
				l -= (1-eps)*logsigmoid(beta*h) + eps*logsigmoid(-beta*h)
			case "ipo":
				l += (h - 1/(2*beta)) * (h - 1/(2*beta))
			case "hinge":
				l += math.Max(0, 1-beta*h)
			}
			n++
		}
	case AlgoRM:
		score := func(e *episode.Episode) float64 {
			s := e.Sequences[len(e.Sequences)-1]
			return model.values[s.TokenIDs[len(s.TokenIDs)-1]]
		}
		for _, p := range d.Pairs {
			margin := p.Margin
			if c.Supervised.RMLoss == RMLogExp {
				margin = 0
			}
			l -= logsigmoid(score(p.Chosen) - score(p.Rejected) - margin)
			n++
		}
	case AlgoPRM:
		for _, e := range d.Episodes {
			for k, y := range e.Marks {
				ids := e.Sequences[2*k].TokenIDs
				row := model.row(ids[len(ids)-2])
				a, b := math.Exp(row[1]), math.Exp(row[2])
				l -= y[0]*math.Log(a/(a+b)) + y[1]*math.Log(b/(a+b))
				n++
			}
		}
	}
	return l / n
}

type variant struct {
	name string
	c    Config
	data func() *rows.Data
}

func variants() []variant {
	vary := func(c Config, f func(*Config)) Config { f(&c); return c }
	return []variant{
		{"sft", supervisedConfig(AlgoSFT), text},
		{"dpo", supervisedConfig(AlgoDPO), preferences},
		{"dpo smoothed", vary(supervisedConfig(AlgoDPO), func(c *Config) { c.Supervised.LabelSmoothing, c.Supervised.DPOBeta = .2, .7 }),
			preferences},
		{"dpo ipo", vary(supervisedConfig(AlgoDPO), func(c *Config) { c.Supervised.DPOLoss = "ipo" }), preferences},
		{"dpo hinge", vary(supervisedConfig(AlgoDPO), func(c *Config) { c.Supervised.DPOLoss = "hinge" }), preferences},
		{"rm", supervisedConfig(AlgoRM), preferences},
		{"rm log-exp", vary(supervisedConfig(AlgoRM), func(c *Config) { c.Supervised.RMLoss = RMLogExp }), preferences},
		{"prm", supervisedConfig(AlgoPRM), judged},
	}
}

// student has a value head where the algorithm wants one.
func student(c Config) *bigram {
	model := newBigram(vocab, 3)
	model.sgd = true
	if c.Algo == AlgoRM {
		for i := range vocab {
			model.values = append(model.values, math.Sin(float64(i)))
		}
		model.valueGrad = make([]float64, vocab)
	}
	return model
}

func TestSupervisedGradientsAreThoseOfTheLosses(t *testing.T) {
	for _, v := range variants() {
		model, ref := student(v.c), newBigram(vocab, 8)
		before := model.copy()
		m := learn(t, model, v.c, v.data(), func(s *Trainer) {
			if v.c.Algo == AlgoDPO {
				s.Ref = ref
			}
		})
		if want := lossWritten(before, ref, v.c, v.data()); math.Abs(m[0].Values["train/loss"]-want) > 1e-12 {
			t.Errorf("%s: the loss is %v, want %v", v.name, m[0].Values["train/loss"], want)
		}
		at, got := before.logits, model.steps[0]
		if v.c.Algo == AlgoRM {
			at, got = before.values, model.valueSteps[0]
		}
		moved := 0.0
		for i := range at {
			const h = 1e-6
			x := at[i]
			at[i] = x + h
			up := lossWritten(before, ref, v.c, v.data())
			at[i] = x - h
			down := lossWritten(before, ref, v.c, v.data())
			at[i] = x
			want := (up - down) / (2 * h)
			moved += math.Abs(want)
			if math.Abs(want-got[i]) > 1e-8 {
				t.Errorf("%s: dL/dz[%d] is %v, by finite differences %v", v.name, i, got[i], want)
			}
		}
		if moved == 0 {
			t.Errorf("%s: nothing moves; the test proves nothing", v.name)
		}
	}
}

func TestNoSplitChangesASupervisedGradient(t *testing.T) {
	for _, v := range variants() {
		var want []float64
		calls := 0
		for _, size := range []int{1 << 20, 40, 12, 1} {
			model := student(v.c)
			v.c.MicroTokens = size
			learn(t, model, v.c, v.data(), func(s *Trainer) { s.Ref = newBigram(vocab, 8) })
			got := slices.Concat(model.steps[0], slices.Concat(model.valueSteps...))
			if want == nil {
				want, calls = got, model.calls
			}
			if d := gap(got, want); d > 1e-12 {
				t.Errorf("%s: with %d tokens at once the gradient is %v away", v.name, size, d)
			}
			if size == 1 && model.calls <= calls {
				t.Errorf("%s: it was not split; the test proves nothing", v.name)
			}
		}
	}
}

func TestNeitherPromptsNorObservationsAreLearned(t *testing.T) {
	for _, v := range variants() {
		if v.c.Algo == AlgoRM || v.c.Algo == AlgoPRM {
			continue
		}
		model := student(v.c)
		d := v.data()
		learn(t, model, v.c, d, func(s *Trainer) { s.Ref = newBigram(vocab, 8) })
		trained := map[int32]bool{} // contexts of tokens that were said
		for _, e := range d.Episodes {
			for _, s := range e.Sequences {
				for j := range s.TokenIDs {
					if s.LossMask[j] && (s.Weights == nil || s.Weights[j] > 0) {
						trained[s.TokenIDs[j-1]] = true
					}
				}
			}
		}
		still := 0
		for prev := range int32(vocab) {
			for _, g := range model.steps[0][int(prev)*vocab : int(prev+1)*vocab] {
				if !trained[prev] && g != 0 {
					t.Errorf("%s: what follows token %d, never said, is trained: %v", v.name, prev, g)
				}
			}
			if !trained[prev] {
				still++
			}
		}
		if v.c.Algo == AlgoSFT && still == 0 {
			t.Error("every token is a context of something said; the test proves nothing")
		}
	}
}

func TestSupervisedRunsResumeBitForBit(t *testing.T) {
	for _, v := range variants() {
		c := v.c
		c.Minibatch, c.Epochs, c.LR, c.MicroTokens = 2, 3, .05, 12
		whole := student(c)
		whole.sgd = false
		steps := len(learn(t, whole, c, v.data()))
		parts := student(c)
		parts.sgd = false
		state := struct {
			model  *bigram
			done   int
			frozen *Frozen
		}{model: parts}
		for stop := 1; state.done < steps; stop++ {
			ctx, cancel := context.WithCancel(context.Background())
			s := &Trainer{Models: Models{Actor: state.model}, Config: c, Data: v.data(), Clock: still, State: State{Done: state.done}}
			if state.frozen != nil {
				path := filepath.Join(t.TempDir(), "frozen")
				if err := state.frozen.WriteFile(path); err != nil {
					t.Fatal(err)
				}
				var err error
				if s.Frozen, err = ReadFrozen(path); err != nil {
					t.Fatal(err)
				}
			}
			s.OnStep = func(Metrics) error { cancel(); return nil }
			s.Checkpoint = func(done int, f *Frozen) error {
				state.model, state.done, state.frozen = state.model.copy(), done, f
				return nil
			}
			err := s.Run(ctx)
			cancel()
			if err != nil && !errors.Is(err, ErrInterrupted) {
				t.Fatalf("%s: %v", v.name, err)
			}
			if stop > 50 {
				t.Fatalf("%s: it never ends", v.name)
			}
		}
		if !slices.Equal(whole.logits, state.model.logits) || !slices.Equal(whole.values, state.model.values) {
			t.Errorf("%s: the resumed model differs", v.name)
		}
	}
}

func TestABadSupervisedStepIsSkippedAndNamed(t *testing.T) {
	for _, v := range variants() {
		c := v.c
		c.Minibatch, c.SkipBad = 2, true
		model := student(c)
		model.fail = func(step int) error {
			if step == 0 && len(model.taken) == 0 {
				model.fail = nil
				return traj.Mark(errors.New("the gradient's norm is NaN"), policy.ErrNotFinite)
			}
			return nil
		}
		var said string
		m := learn(t, model, c, v.data(), func(s *Trainer) { s.OnSkip = func(err error) { said = err.Error() } })
		if len(m) < 2 || m[0].Values["actor/skipped_step"] != 1 || m[1].Values["actor/skipped_step"] != 0 || !strings.Contains(said, "step 1") {
			t.Errorf("%s: %d steps, said %q", v.name, len(m), said)
		}
	}
}

func TestAPairIsNeverInTwoSteps(t *testing.T) {
	c := supervisedConfig(AlgoDPO)
	c.Minibatch, c.Epochs = 1, 2
	d := preferences()
	m := learn(t, student(c), c, d)
	pairs := 0.0
	for _, x := range m {
		pairs += x.Values["train/pairs"]
	}
	if len(m) != 6 || pairs != 8 {
		t.Errorf("%d steps with %v pairs in all, want 6 with 8", len(m), pairs)
	}
}

func TestDPOStartsAtLog2WithItselfAsReference(t *testing.T) {
	m := learn(t, student(supervisedConfig(AlgoDPO)), supervisedConfig(AlgoDPO), preferences())
	v := m[0].Values
	if math.Abs(v["train/loss"]-math.Ln2) > 1e-12 || v["rewards/margins"] != 0 || v["rewards/accuracies"] != 0 {
		t.Errorf("loss %v, margin %v, accuracy %v", v["train/loss"], v["rewards/margins"], v["rewards/accuracies"])
	}
	if _, ok := v["frac_reward_zero_std"]; ok {
		t.Error("a share of groups without spread is shown, though no reward was looked at")
	}
}

// A file's rewards give way to a model's, before anything is compared.
func TestARewardModelScoresTheTrajectories(t *testing.T) {
	score := func(values []float64, e *episode.Episode) float64 {
		s := e.Sequences[len(e.Sequences)-1]
		return values[s.TokenIDs[len(s.TokenIDs)-1]]
	}
	judge := newBigram(vocab, 1)
	for i := range vocab {
		judge.values = append(judge.values, math.Cos(float64(3*i)))
	}
	judge.valueGrad = make([]float64, vocab)
	byHand := corpus()
	for _, e := range byHand {
		e.Score = score(judge.values, e)
	}
	want, got := newBigram(vocab, 3), newBigram(vocab, 3)
	c := config()
	c.Epochs = 2
	train(t, want, c, byHand)
	d := corpus()
	released := false
	train(t, got, c, d, func(g *Trainer) { g.Reward, g.Release = judge, func() { released = true } })
	if !slices.Equal(want.logits, got.logits) {
		t.Error("the policy is not the one that those scores give")
	}
	if !released || d[0].Score != score(judge.values, d[0]) {
		t.Errorf("released: %v, score %v", released, d[0].Score)
	}
	// Resumed, without the reward model.
	first, second := newBigram(vocab, 3), (*bigram)(nil)
	var f *Frozen
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := &Trainer{Models: Models{Actor: first, Reward: judge}, Config: c, Data: &rows.Data{Episodes: corpus()},
		Clock: still, Hooks: Hooks{OnStep: func(Metrics) error { cancel(); return nil },
			Checkpoint: func(_ int, x *Frozen) error { f, second = x, first.copy(); return nil }}}
	if err := g.Run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	train(t, second, c, corpus(), func(g *Trainer) { g.Done, g.Frozen = 1, f })
	if !slices.Equal(second.logits, want.logits) {
		t.Error("resumed without the reward model, the policy differs")
	}
}

// The second dataset's term is C times its own mean, whatever the policy's counts.
func TestPTXAddsTheCrossEntropyOfASecondDataset(t *testing.T) {
	second := text().Episodes[2:]
	alone := supervisedConfig(AlgoSFT)
	sft := newBigram(vocab, 3)
	learn(t, sft, alone, &rows.Data{Episodes: text().Episodes[2:]})
	c := config()
	without := newBigram(vocab, 3)
	train(t, without, c, corpus())
	for _, size := range []int{1 << 20, 10} {
		c.PTXCoef, c.MicroTokens = .7, size
		with := newBigram(vocab, 3)
		m := train(t, with, c, corpus(), func(g *Trainer) { g.PTX = second })
		for i := range with.steps[0] {
			if want := without.steps[0][i] + .7*sft.steps[0][i]; math.Abs(with.steps[0][i]-want) > 1e-12 {
				t.Fatalf("dL/dz[%d] is %v, want %v", i, with.steps[0][i], want)
			}
		}
		if want := lossWritten(newBigram(vocab, 3), nil, alone, &rows.Data{Episodes: second}); math.Abs(
			m[0].Values["actor/ptx_loss"]-want) > 1e-12 {
			t.Errorf("actor/ptx_loss is %v, want %v", m[0].Values["actor/ptx_loss"], want)
		}
	}
	actor, critic := newBigram(vocab, 3), newCritic(4)
	pc := ppoConfig()
	pc.PTXCoef = .7
	plain := newBigram(vocab, 3)
	trainPPO(t, plain, newCritic(4), ppoConfig(), corpus())
	trainPPO(t, actor, critic, pc, corpus(), func(p *Trainer) { p.PTX = second })
	for i := range actor.steps[0] {
		if want := plain.steps[0][i] + .7*sft.steps[0][i]; math.Abs(actor.steps[0][i]-want) > 1e-12 {
			t.Fatalf("PPO: dL/dz[%d] is %v, want %v", i, actor.steps[0][i], want)
		}
	}
	err := (&Trainer{Models: Models{Actor: newBigram(vocab, 3)}, Config: c, Data: &rows.Data{Episodes: corpus()}, Clock: still}).Run(
		context.Background())
	if !settingtest.Names(err, "PTX") {
		t.Errorf("without a second dataset: %v", err)
	}
}

func TestLastRoundAndAggregationOfSFT(t *testing.T) {
	e := attempt("x", 0, "abCDefGH")
	e.LastRound = 6
	long := attempt("y", 0, "aBBBBBB")
	long.LastRound = 1
	c := supervisedConfig(AlgoSFT)
	c.LossScale, c.Aggregation = lossscale.LastRound, algo.SeqMeanTokenMean
	model := student(c)
	m := learn(t, model, c, &rows.Data{Episodes: []*episode.Episode{e, long}})
	b := newBigram(vocab, 3)
	lp := func(p, q int32) float64 { return b.row(p)[q] }
	want := -(lp(5, 6)+lp(6, 7))/4 - (lp(0, 1)+5*lp(1, 1))/12
	if got := m[0].Values["train/loss"]; math.Abs(got-want) > 1e-12 {
		t.Errorf("the loss is %v, want %v", got, want)
	}
}

func TestSupervisedSettingsNameTheirFlag(t *testing.T) {
	for _, x := range []struct {
		flag   string
		change func(*Config)
	}{
		{"--dpo-beta", func(c *Config) { c.Supervised.DPOBeta = 0 }},
		{"--dpo-loss", func(c *Config) { c.Supervised.DPOLoss = "kto" }},
		{"--label-smoothing", func(c *Config) { c.Supervised.LabelSmoothing = .5 }},
		{"--label-smoothing", func(c *Config) { c.Supervised.LabelSmoothing, c.Supervised.DPOLoss = .1, "ipo" }},
		{"--pairs", func(c *Config) { c.Supervised.Pairs = "some" }},
		{"--rm-loss", func(c *Config) { c.Supervised.RMLoss = "mse" }},
		{"--kl-coef", func(c *Config) { c.KLCoef = .1 }},
		{"--echo", func(c *Config) { c.Echo = .1 }},
		{"--algo", func(c *Config) { c.Algo = "kto" }},
		{"--ptx-coef", func(c *Config) { c.PTXCoef = math.NaN() }},
	} {
		c := supervisedConfig(AlgoDPO)
		x.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), x.flag) {
			t.Errorf("%s: %v", x.flag, err)
		}
	}
}

func TestAPlanCountsWhatTheAlgorithmComputes(t *testing.T) {
	plan := func(name string) *Plan {
		d := &rows.Data{Episodes: corpus()}
		c := supervisedConfig(name)
		if c.TakesPairs() {
			if _, err := d.MakePairs(c.Supervised.Pairs); err != nil {
				t.Fatal(err)
			}
		}
		p, err := MakePlan(d, c)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := episode.Groups(corpus())
	if p := plan(AlgoDPO); p.Groups >= len(all) || p.Groups == 0 {
		t.Errorf("dpo: %d groups of pairs of %d groups, one of which has no pair", p.Groups, len(all))
	}
	if sft, dpo := plan(AlgoSFT), plan(AlgoDPO); sft.Actions <= dpo.Actions || sft.Episodes != len(corpus()) {
		t.Errorf("sft trains on %d tokens of %d rows, dpo on %d", sft.Actions, sft.Episodes, dpo.Actions)
	}
}

// As in ms-swift, all of a conversation; what a later sequence repeats is learned once.
func TestSFTOnAllLearnsPromptsToo(t *testing.T) {
	run := func(scale string, texts ...string) []float64 {
		c := config()
		c.Algo, c.LossScale = AlgoSFT, scale
		model := newBigram(vocab, 1)
		learn(t, model, c, &rows.Data{Episodes: []*episode.Episode{attempt("a", 0, texts...)}})
		return model.steps[0]
	}
	if d := gap(run(lossscale.All, "abcDefG"), run(lossscale.Default, "aBCDEFG")); d != 0 {
		t.Errorf("the gradient is %v off that of all tokens but the first", d)
	}
	if d := gap(run(lossscale.All, "abcDe", "abcdeFg"), run(lossscale.Default, "aBCDE", "abcdeFG")); d != 0 {
		t.Errorf("with a prefix in common the gradient is %v off", d)
	}
}
