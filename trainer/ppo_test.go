package trainer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentcli/lossscale"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// newCritic is a critic of the bigram kind: a value for each previous token.
func newCritic(seed uint64) *bigram {
	b := newBigram(vocab, seed)
	r := rand.New(rand.NewPCG(seed, 7))
	b.values, b.valueGrad = make([]float64, vocab), make([]float64, vocab)
	for i := range b.values {
		b.values[i] = r.NormFloat64()
	}
	return b
}

func ppoConfig() Config {
	c := config()
	c.Algo, c.Advantage, c.Gamma, c.Lambda, c.CriticLR, c.ValueClip = AlgoPPO, "gae", .9, .8, .1, 0
	return c
}

// trainPPO runs PPO; critic nil is a shared one.
func trainPPO(t *testing.T, actor, critic *bigram, c Config, episodes []*episode.Episode, change ...func(*Trainer)) []Metrics {
	t.Helper()
	var out []Metrics
	p := &Trainer{Models: Models{Actor: actor}, Config: c, Data: &rows.Data{Episodes: episodes},
		Clock: still, Hooks: Hooks{OnStep: func(m Metrics) error { out = append(out, m); return nil }}}
	if critic != nil {
		p.Critic = critic
	}
	for _, f := range change {
		f(p)
	}
	if err := p.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return out
}

// The whole objective, as the metrics report it, is differentiated by hand: no
// term may be left out of the gradient, or be in it twice.
func TestEveryTermOfTheLossIsInTheGradient(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"entropy":        func(c *Config) { c.EntropyCoef = .3 },
		"k1 in the loss": func(c *Config) { c.KLCoef, c.KL = .2, algo.KLK1 },
		"k2":             func(c *Config) { c.KLCoef, c.KL = .2, algo.KLK2 },
		"echo":           func(c *Config) { c.Echo = .7 },
		"gspo":           func(c *Config) { c.Loss, c.Clip = "gspo", algo.Clip{Low: .9, High: 9} },
		"gmpo":           func(c *Config) { c.Loss, c.Clip = "gmpo", algo.Clip{Low: .9, High: 9} },
		"sapo":           func(c *Config) { c.Loss = "sapo" },
		"reinforce":      func(c *Config) { c.Loss = "reinforce" },
		"dppo":           func(c *Config) { c.Loss, c.Threshold, c.RolloutKL = "dppo", 9, .2 },
		"ppo, own critic": func(c *Config) {
			*c = ppoConfig()
			c.ValueClip = .1
		},
		"ppo, shared critic, kl in the reward": func(c *Config) {
			*c = ppoConfig()
			c.SharedCritic, c.ValueCoef, c.KLCoef, c.KLIn = true, .25, .1, KLInReward
		},
	} {
		c := config()
		change(&c)
		c.OldLogprobs = OldFile
		sum := func(m Metrics) float64 {
			v := m.Values
			l := v["actor/pg_loss"] + c.Echo*v["actor/echo_loss"] - c.EntropyCoef*v["actor/entropy"]
			if c.KLIn == KLInLoss {
				l += c.KLCoef * v["actor/kl_loss"]
			}
			if c.SharedCritic {
				l += c.ValueCoef * v["critic/vf_loss"]
			}
			return l
		}
		run := func(actor *bigram) Metrics {
			episodes := corpus()
			record(.2, newBigram(vocab, 1), episodes)
			if c.Algo == AlgoPPO {
				critic := newCritic(4)
				if c.SharedCritic {
					actor.values, actor.valueGrad, critic = critic.values, critic.valueGrad, nil
				}
				return trainPPO(t, actor, critic, c, episodes, func(p *Trainer) { p.Ref = newBigram(vocab, 2) })[0]
			}
			return train(t, actor, c, episodes, func(g *Trainer) { g.Ref = newBigram(vocab, 2) })[0]
		}
		model := newBigram(vocab, 1)
		start := model.copy()
		run(model)
		const h = 1e-5
		worst := 0.0
		for i := range start.logits {
			at := func(d float64) float64 {
				moved := start.copy()
				moved.logits[i] += d
				return sum(run(moved))
			}
			worst = math.Max(worst, math.Abs((at(h)-at(-h))/(2*h)-model.steps[0][i]))
		}
		if worst > 1e-7 {
			t.Errorf("%s: the gradient is %v off that of the reported loss", name, worst)
		}
		if slices.Max(model.steps[0]) == 0 {
			t.Errorf("%s: there is no gradient", name)
		}
	}
}

func TestCriticsGradientIsThatOfItsLoss(t *testing.T) {
	for _, clip := range []float64{0, .05} {
		c := ppoConfig()
		c.ValueClip, c.Epochs = clip, 2 // in the first epoch V is V_old
		run := func(d float64, i int) (Metrics, *bigram) {
			critic, actor := newCritic(4), newBigram(vocab, 1)
			var out Metrics
			trainPPO(t, actor, critic, c, corpus(), func(p *Trainer) {
				p.OnStep = func(m Metrics) error {
					out = m
					if m.Step == 1 && i >= 0 {
						critic.values[i] += d
					}
					return nil
				}
			})
			return out, critic
		}
		_, critic := run(0, -1)
		const h = 1e-6
		for i := range vocab {
			up, _ := run(h, i)
			down, _ := run(-h, i)
			want := (up.Values["critic/vf_loss"] - down.Values["critic/vf_loss"]) / (2 * h)
			if got := critic.valueSteps[1][i]; math.Abs(got-want) > 1e-8 {
				t.Errorf("clip %v: dL/dV[%d] is %v, by finite differences %v", clip, i, got, want)
			}
		}
	}
}

func TestPPOsAdvantagesAreThoseOfGAEOverActions(t *testing.T) {
	// d is an observation; the critic's value before E would be that of d.
	e := attempt("g", 2, "abCDddE")
	other := attempt("g", 0, "abC")
	e.StepRewards = []episode.StepReward{{Sequence: 0, Token: 3, Reward: .5}}
	c := ppoConfig()
	critic, actor := newCritic(4), newBigram(vocab, 1)
	v := slices.Clone(critic.values)
	trainPPO(t, actor, critic, c, []*episode.Episode{e, other})
	x := e.Streams[0]
	if want := []float64{0, .5, 1.5}; !slices.Equal(x.Rewards, want) {
		t.Fatalf("rewards %v, want %v", x.Rewards, want)
	}
	values := []float64{v[1], v[2], v[3]} // before C stands b, before D c, before E d
	adv, ret, err := algo.GAE([]float64{0, .5, 1.5}, values, .9, .8)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ret {
		if math.Abs(x.Returns[i]-ret[i]) > 1e-12 {
			t.Errorf("return %d is %v, want %v", i, x.Returns[i], ret[i])
		}
	}
	// Whitened over all four tokens of the batch: differences keep their ratio.
	got, want := (x.Advantages[0]-x.Advantages[1])/(x.Advantages[1]-x.Advantages[2]), (adv[0]-adv[1])/(adv[1]-adv[2])
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("advantages %v, before whitening %v", x.Advantages, adv)
	}
}

// verl multiplies the return to come by the mask, which DeepEyes takes out
// (compute_reinforce_plus_plus_outcome_advantage): of a trajectory with tools one turn alone is trained then.
// Here a row has its actions, and the reward comes back over all turns.
func TestReinforcePlusPlusGoesOnBehindTheFirstEndOfAReply(t *testing.T) {
	// H ends a reply; d is an observation.
	e, other := attempt("g", 1, "abCHddEHdFH"), attempt("g", 0, "abCH")
	c := config()
	c.Advantage, c.Gamma = "reinforce++", .9
	train(t, newBigram(vocab, 1), c, []*episode.Episode{e, other})
	adv := e.Streams[0].Advantages
	if len(adv) != 6 || len(other.Streams[0].Advantages) != 2 {
		t.Fatalf("advantages %v and %v", adv, other.Streams[0].Advantages)
	}
	zero := other.Streams[0].Advantages[0] // of a return of 0; whitening keeps ratios of differences
	for i := range adv[:5] {
		if got := (adv[i] - zero) / (adv[i+1] - zero); math.Abs(got-.9) > 1e-9 {
			t.Errorf("action %d: the return is %v of the next one's, want .9: %v", i, got, adv)
		}
	}
}

func TestNoSplitChangesPPOsGradients(t *testing.T) {
	for _, shared := range []bool{false, true} {
		run := func(micro int) (*bigram, *bigram) {
			c := ppoConfig()
			c.MicroTokens, c.SharedCritic = micro, shared
			actor, critic := newBigram(vocab, 1), newCritic(4)
			if shared {
				actor.values, actor.valueGrad = critic.values, critic.valueGrad
				trainPPO(t, actor, nil, c, corpus())
				return actor, actor
			}
			trainPPO(t, actor, critic, c, corpus())
			return actor, critic
		}
		actor, critic := run(1 << 30)
		for _, micro := range []int{1, 13} {
			a, v := run(micro)
			if gap(a.steps[0], actor.steps[0]) > 1e-12 || gap(v.valueSteps[0], critic.valueSteps[0]) > 1e-12 {
				t.Errorf("shared %v: micro-tokens %d move the gradients", shared, micro)
			}
		}
	}
}

func TestCriticWarmUpLeavesThePolicyAlone(t *testing.T) {
	c := ppoConfig()
	c.Epochs, c.CriticWarmup = 7, 4
	actor, critic := newBigram(vocab, 1), newCritic(4)
	m := trainPPO(t, actor, critic, c, corpus())
	if len(critic.valueSteps) != len(m) || len(actor.steps) != len(m)-4 {
		t.Errorf("%d steps: %d of the critic, %d of the policy", len(m), len(critic.valueSteps), len(actor.steps))
	}
	if n := actor.taken[0].Number; n != 1 {
		t.Errorf("the policy's first step is counted %d", n)
	}
	first, last := m[0].Values["critic/vf_loss"], m[len(m)-1].Values["critic/vf_loss"]
	if last >= first {
		t.Errorf("the critic's loss went from %v to %v", first, last)
	}
}

func TestKLInTheRewardLowersTheAdvantageOfWhatStrays(t *testing.T) {
	run := func(beta float64) []*episode.Episode {
		c := config()
		c.KLCoef, c.KLIn, c.KL, c.Advantage = beta, KLInReward, algo.KLK1, "dr_grpo"
		episodes := corpus()
		train(t, newBigram(vocab, 1), c, episodes, func(g *Trainer) { g.Ref = newBigram(vocab, 2) })
		return episodes
	}
	with := run(.5)
	for _, g := range episode.Groups(with) {
		mean, want := 0.0, make([]float64, len(g))
		for i, e := range g {
			want[i] = e.Score
			e.EachAction(func(_ int, x *episode.TokenStream, t int) { want[i] -= .5 * (x.OldLogprobs[t] - x.RefLogprobs[t]) })
			mean += want[i] / float64(len(g))
		}
		for i, e := range g {
			if math.Abs(adv(e)-(want[i]-mean)) > 1e-9 {
				t.Errorf("%s: advantage %v, want %v", e.ID, adv(e), want[i]-mean)
			}
		}
	}
}

func TestLossScaleChoosesTheActions(t *testing.T) {
	spell := func(scale string, change func(*episode.Episode)) string {
		e, f := attempt("g", 1, "abCDddEF"), attempt("g", 0, "abC")
		e.LastRound = 6
		f.LastRound = 2
		if change != nil {
			change(e)
		}
		c := config()
		c.LossScale = scale
		train(t, newBigram(vocab, 1), c, []*episode.Episode{e, f})
		out := ""
		for i, want := range e.Streams[0].Want {
			if want {
				out += string('a' + e.Sequences[0].TokenIDs[i])
			}
		}
		return out
	}
	for scale, want := range map[string]string{lossscale.Default: "cdef", lossscale.LastRound: "ef",
		lossscale.All: "cdddef"} {
		if got := spell(scale, nil); got != want {
			t.Errorf("%s trains on %q, want %q", scale, got, want)
		}
	}
	if got := spell(lossscale.LastRound, func(e *episode.Episode) { e.LastRound = -1 }); got != "cdef" {
		t.Errorf("a file that does not say where the last reply begins: %q", got)
	}
}

func TestOverlongRepliesLeaveTheLossNotTheBaseline(t *testing.T) {
	c := config()
	c.Advantage, c.OverlongFilter = "dr_grpo", true
	cut := attempt("g", 0, "abCDEF")
	cut.Termination = traj.TurnLength
	episodes := []*episode.Episode{attempt("g", 1, "abCD"), attempt("g", 0, "abEE"), cut}
	model := newBigram(vocab, 1)
	train(t, model, c, episodes)
	if math.Abs(adv(episodes[0])-2./3) > 1e-12 {
		t.Errorf("advantage %v: the cut reply left the baseline", adv(episodes[0]))
	}
	// The same gradient as without that row, advantages kept: 4 tokens in the denominator.
	want := make([]float64, vocab*vocab)
	start := newBigram(vocab, 1)
	for _, e := range episodes[:2] {
		s := e.Sequences[0]
		for j, sampled := range s.LossMask {
			if sampled {
				for k, lp := range start.row(s.TokenIDs[j-1]) {
					d := -math.Exp(lp)
					if int32(k) == s.TokenIDs[j] {
						d++
					}
					want[int(s.TokenIDs[j-1])*vocab+k] -= adv(e) * d / 4
				}
			}
		}
	}
	if d := gap(model.steps[0], want); d > 1e-12 {
		t.Errorf("the gradient is %v off that of the whole replies alone", d)
	}
	c.OverlongFilter, c.OverlongBuffer, c.OverlongLimit, c.OverlongFactor = false, 2, 4, 1
	train(t, newBigram(vocab, 1), c, episodes) // 4 sampled of a limit of 4: −1
	if math.Abs(adv(episodes[2])-(-1-0.)) > 1e-12 {
		t.Errorf("the punished reply's advantage is %v", adv(episodes[2]))
	}
}

func TestTargetKLEndsTheRun(t *testing.T) {
	c := config()
	c.Epochs, c.LR = 50, .2
	far := train(t, newBigram(vocab, 1), c, corpus())
	c.TargetKL = .02
	short := train(t, newBigram(vocab, 1), c, corpus())
	if len(short) >= len(far) || short[len(short)-1].Values["actor/early_stop"] != 1 {
		t.Errorf("%d steps with a target, %d without", len(short), len(far))
	}
}

func TestStepRewardsAndTheScoreAddUp(t *testing.T) {
	e := attempt("g", 2, "abCDddEFdd", "abG")
	e.StepRewards = []episode.StepReward{{Sequence: 0, Token: 3, Reward: .5}, {Sequence: 0, Token: 9, Reward: .25},
		{Sequence: 1, Token: 1, Reward: 9}}
	e.LayOut(episode.TokenSelection{Strategy: lossscale.Default, Echo: true})
	e.PlaceRewards(2)
	var got []float64
	e.EachAction(func(_ int, x *episode.TokenStream, t int) { got = append(got, x.Rewards[t]) })
	// The second is for observations: to F before them; the third has no action
	// before it in its sequence: F again.
	if want := []float64{0, .5, 0, 9.25, -7.75}; !slices.Equal(got, want) {
		t.Errorf("rewards %v, want %v", got, want)
	}
	if n := e.Observations(); n != 4 {
		t.Errorf("%d observation tokens, want 4", n)
	}
}

func TestPPOLearnsATwoArmedBandit(t *testing.T) {
	model := &bigram{vocab: 3, logits: make([]float64, 9), grad: make([]float64, 9), m: make([]float64, 9), v: make([]float64, 9)}
	model.logits[0] = -20
	critic := &bigram{vocab: 3, logits: make([]float64, 9), grad: make([]float64, 9), m: make([]float64, 9), v: make([]float64, 9),
		values: make([]float64, 3), valueGrad: make([]float64, 3)}
	r := rand.New(rand.NewPCG(1, 2))
	c := ppoConfig()
	c.LR, c.CriticLR = .1, .5
	for range 60 {
		var episodes []*episode.Episode
		p := math.Exp(model.row(0)[2])
		for i := range 32 { // every attempt a task of its own: no group to compare with
			arm, pay := "B", 0.0
			if r.Float64() < p {
				arm, pay = "C", 1
			}
			episodes = append(episodes, attempt(fmt.Sprint(i), pay, "a"+arm))
		}
		trainPPO(t, model, critic, c, episodes)
		model.m, model.v = make([]float64, 9), make([]float64, 9)
	}
	if p := math.Exp(model.row(0)[2]); p < .9 {
		t.Errorf("the paying arm is drawn with probability %v", p)
	}
	if v := critic.values[0]; v < .7 {
		t.Errorf("the critic expects %v", v)
	}
}

func TestDistillationDrawsThePolicyToTheTeacher(t *testing.T) {
	c := config()
	c.Loss, c.Epochs, c.LR, c.Threshold = "opd", 150, .05, 9
	student, teacher, episodes := newBigram(vocab, 1), newBigram(vocab, 5), corpus()
	record(0, student, episodes)
	distance := func() float64 {
		sum := 0.0
		for _, e := range episodes {
			s := e.Sequences[0]
			for j, m := range s.LossMask {
				if m {
					sum += math.Abs(student.row(s.TokenIDs[j-1])[s.TokenIDs[j]] - teacher.row(s.TokenIDs[j-1])[s.TokenIDs[j]])
				}
			}
		}
		return sum
	}
	before := distance()
	train(t, student, c, episodes, func(g *Trainer) { g.Teacher = teacher })
	if after := distance(); after > before/2 {
		t.Errorf("the distance to the teacher went from %v to %v", before, after)
	}
	err := (&Trainer{Models: Models{Actor: student}, Config: c, Data: &rows.Data{Episodes: episodes}}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "--teacher") {
		t.Errorf("no teacher: %v", err)
	}
}
