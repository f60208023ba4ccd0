package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/lossscale"
	"agentcli/parquet/parquettest"
	"agentcli/policy"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// What a setting does is written out by hand here: one that nobody reads, or two that
// are swapped, must be seen.

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tol {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// rewardsOf are the rewards of an episode's actions.
func rewardsOf(e *episode.Episode) (out []float64) {
	e.EachAction(func(_ int, x *episode.TokenStream, t int) { out = append(out, x.Rewards[t]) })
	return out
}

// w = exp(old − sampled), not the other way round.
func TestCorrectionsWeighTheOldPolicyAgainstTheSampledOne(t *testing.T) {
	run := func(kind string) ([]float64, map[string]float64) {
		model := newBigram(vocab, 1)
		e, f := attempt("g", 1, "abCD"), attempt("g", 0, "abEE")
		apart(model, e, .25) // every token is likelier now than when it was sampled
		apart(model, f, .25)
		c := config()
		c.OffPolicy = algo.Correction{Kind: kind, Low: .5, High: 2}
		m := train(t, model, c, []*episode.Episode{e, f})
		return model.steps[0], m[0].Values
	}
	plain, _ := run(algo.NoCorrection)
	for kind, want := range map[string]float64{algo.TIS: math.Exp(.25), algo.TISSequence: math.Exp(.5),
		algo.IcePop: math.Exp(.25), algo.SequenceMaskIS: math.Exp(.25)} {
		got, v := run(kind)
		near(t, kind+": the mean weight", v["rollout_corr/weight/mean"], want, 1e-6) // the file has float32
		for i := range plain {
			near(t, kind+": the gradient", got[i], want*plain[i], 1e-6)
		}
	}
}

// rollout_corr/kl is an estimate of KL(sampled‖training): the mean of sampled − old.
func TestTheRolloutsKLIsOfTheSampledTokensUnderWhatSampledThem(t *testing.T) {
	model := newBigram(vocab, 1)
	e, f := attempt("g", 1, "abCD"), attempt("g", 0, "abEE")
	apart(model, e, -.5, 0) // two of four tokens were likelier when they were sampled
	apart(model, f, 0, -.25)
	v := train(t, model, config(), []*episode.Episode{e, f})[0].Values
	near(t, "rollout_corr/kl", v["rollout_corr/kl"], .75/4, 1e-6)
	near(t, "rollout_corr/k3", v["rollout_corr/k3"], (math.Exp(-.5)+.5-1+math.Exp(-.25)+.25-1)/4, 1e-6)
}

func TestEachWeightOfTheLengthPenaltyIsOfItsOwnLength(t *testing.T) {
	for weights, want := range map[string]float64{ // of the first row; the second has minus that
		".2,0,0": (2./4 - 1) * .2 / 2, // 4 and 2 sampled tokens
		"0,.2,0": (1 - 1./4) * .2 / 2, // 1 and 4 observed ones: the prompt is none
		"0,0,.2": (1./3 - 1) * .2 / 2, // 3 turns and 1
	} {
		long, wordy := attempt("g", 1, "abCDhEF"), attempt("g", 1, "abbbbbChhhhD")
		long.Turns, wordy.Turns = 3, 1
		c := config()
		c.Advantage, c.LengthPenalty = "dr_grpo", weights
		train(t, newBigram(vocab, 1), c, []*episode.Episode{long, wordy})
		near(t, weights, adv(long), want, 1e-12)
		near(t, weights, adv(wordy), -want, 1e-12)
	}
}

func TestRewardsAreClippedOnBothSides(t *testing.T) {
	c := config()
	c.Advantage, c.RewardClip = "dr_grpo", 1.5
	episodes := []*episode.Episode{attempt("g", 7, "abCD"), attempt("g", -2, "abEE"), attempt("g", .5, "abE")}
	train(t, newBigram(vocab, 1), c, episodes)
	for i, want := range []float64{1.5, -1.5, .5} {
		near(t, "advantage", adv(episodes[i]), want-.5/3, 1e-12)
	}
}

func TestPartWeightsWeighTheParts(t *testing.T) {
	for weights, sign := range map[string]float64{"1,0": 1, "0,1": -1, "3,1": 1, "1,3": -1, "": 0, "1,1": 0} {
		e, f := attempt("g", 1, "abCD"), attempt("g", 1, "abEE")
		e.Parts = []traj.Part{{Name: "a", Value: 1}, {Name: "b", Value: 0}}
		f.Parts = []traj.Part{{Name: "a", Value: 0}, {Name: "b", Value: 1}}
		g, h := attempt("h", 1, "abC"), attempt("h", 0, "abE") // so that the batch has spread
		g.Parts, h.Parts = e.Parts, []traj.Part{{Name: "a", Value: 0}, {Name: "b", Value: 0}}
		c := config()
		c.Advantage, c.PartWeights = "gdpo", weights
		train(t, newBigram(vocab, 1), c, []*episode.Episode{e, f, g, h})
		if d := adv(e) - adv(f); math.Abs(d) < 1e-9 != (sign == 0) || d*sign < 0 {
			t.Errorf("--part-weights %q: advantages %v and %v", weights, adv(e), adv(f))
		}
	}
}

// A baseline is of a dataset and, where the row's meta has one, its role.
func TestRolesHaveBaselinesOfTheirOwn(t *testing.T) {
	of := func(dataset, meta string) func(*traj.Trajectory) {
		return func(x *traj.Trajectory) { x.Task.Dataset, x.Task.Meta = dataset, json.RawMessage(meta) }
	}
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), "", row("a#0", "a", number(1), of("x", "")),
		row("a#1", "a", number(1), of("y", "")),
		row("a#2", "a", number(1), of("x", "")), row("a#3", "a", number(1), of("x", `{"role":"y"}`)),
		row("a#4", "a", number(1), of("x", `{"role":"z"}`)),
		row("a#5", "a", number(1), of("y", `{"role":"z"}`)), row("a#6", "a", number(1), of("x", `{"role":"z"}`)))
	c := config()
	c.Advantage = "rae"
	d, err := LoadFor(t.Context(), []string{f}, c, rows.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	train(t, newBigram(vocab, 1), c, d.Episodes)
	for i, want := range []float64{1, 1, .95, 1, 1, 1, .95} { // x, y, x, x/y, x/z, y/z, x/z
		near(t, d.Episodes[i].ID, adv(d.Episodes[i]), want, 1e-12)
	}
}

// A file of three model calls: what the environment gave for one stands on the last
// token that was sampled in it, and the last round is the last call alone.
func TestStepsOfAFileSayWhereRewardsAndTheLastRoundAre(t *testing.T) {
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), "",
		row("a#0", "a", number(2), func(x *traj.Trajectory) {
			x.Sequences = []traj.Sequence{sequence("abCDddEFGH", func(int) traj.Logprob { return -1 })} // the third goes on where the second ends
			x.Steps = []traj.Step{{Start: 2, End: 4, Reward: number(.5)}, {Start: 6, End: 8, Reward: number(.25)}, {Start: 8, End: 10}}
		}),
		row("a#1", "a", number(0), nil))
	for _, disk := range []bool{false, true} {
		for scale, want := range map[string][]float64{lossscale.Default: {0, .5, 0, .25, 0, 1.25},
			lossscale.LastRound: {.75, 1.25}} {
			c := config()
			c.LossScale = scale
			d, err := LoadFor(t.Context(), []string{f}, c, rows.Sources{OnDisk: disk})
			if err != nil {
				t.Fatal(err)
			}
			g := &Trainer{Models: Models{Actor: newBigram(vocab, 1)}, Config: c, Data: d, Clock: still}
			if err := g.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			e := d.Episodes[0]
			release, err := g.loader.Load(e)
			if err != nil {
				t.Fatal(err)
			}
			if !disk { // where advantages are made of rewards at once, and only those are kept
				if got := rewardsOf(e); !slices.Equal(got, want) {
					t.Errorf("%s: rewards %v, want %v", scale, got, want)
				}
			}
			if e.LastRound != 8 || e.Actions() != len(want) ||
				!slices.Equal(e.StepRewards, []episode.StepReward{{Sequence: 0, Token: 3, Reward: .5}, {Sequence: 0, Token: 7, Reward: .25}}) {
				t.Errorf("%s, on disk %v: the last round begins at %d, %d actions, step rewards %v", scale, disk,
					e.LastRound, e.Actions(), e.StepRewards)
			}
			release()
			d.Close()
		}
	}
}

func TestTheCriticsLearningRateFollowsTheSchedule(t *testing.T) {
	c := ppoConfig()
	c.Epochs, c.Schedule, c.WarmupSteps, c.LR, c.CriticLR = 5, "linear", 1, .01, .04
	actor, critic := newBigram(vocab, 1), newCritic(4)
	trainPPO(t, actor, critic, c, corpus())
	for i, share := range []float64{1, 1, .75, .5, .25} {
		near(t, fmt.Sprint("the critic's learning rate in step ", i+1), critic.taken[i].LR, .04*share, 1e-15)
		near(t, fmt.Sprint("the policy's learning rate in step ", i+1), actor.taken[i].LR, .01*share, 1e-15)
	}
}

// The running mean is the policy's, in every algorithm that moves it.
func TestTheOptimiserIsToldToKeepARunningMean(t *testing.T) {
	c := config()
	c.EMA = .75
	model := newBigram(vocab, 1)
	train(t, model, c, corpus())
	p := ppoConfig()
	p.EMA = .75
	actor := newBigram(vocab, 1)
	trainPPO(t, actor, newCritic(4), p, corpus())
	sft := newBigram(vocab, 1)
	s := supervisedConfig(AlgoSFT)
	s.EMA = .75
	learn(t, sft, s, text())
	for name, m := range map[string]*bigram{"grpo": model, "ppo": actor, "sft": sft} {
		for _, step := range m.taken {
			near(t, name+": the share that stays", step.EMA, .75, 0)
		}
		if len(m.taken) == 0 {
			t.Errorf("%s took no step", name)
		}
	}
}

func TestTheShareOfTheDualClipIsItsOwn(t *testing.T) {
	c := config()
	c.OldLogprobs, c.Clip.Dual = OldFile, 3
	model := newBigram(vocab, 1)
	good, bad := attempt("g", 1, "abCD"), attempt("g", 0, "abEFGH")
	apart(model, good, 1.5, .1)       // 4.5 and 1.1 times as likely: the first is clipped
	apart(model, bad, 1.5, .1, -1, 0) // the first by the dual clip, the third by the clip
	v := train(t, model, c, []*episode.Episode{good, bad})[0].Values
	near(t, "actor/pg_clipfrac_lower", v["actor/pg_clipfrac_lower"], 1./6, 1e-12)
	near(t, "actor/pg_clipfrac", v["actor/pg_clipfrac"], 2./6, 1e-12)
}

func TestPPOTakesTheKLFromTheReward(t *testing.T) {
	c := ppoConfig()
	c.KLCoef, c.KLIn, c.KL = .5, KLInReward, algo.KLK1
	e, f := attempt("g", 2, "abCDddE"), attempt("g", 0, "abC")
	model, ref := newBigram(vocab, 1), newBigram(vocab, 2)
	start := model.copy()
	sum := 0.0
	m := trainPPO(t, model, newCritic(4), c, []*episode.Episode{e, f}, func(p *Trainer) { p.Ref = ref })
	n := 0
	for _, x := range []*episode.Episode{e, f} {
		s := x.Sequences[0]
		got, k := rewardsOf(x), 0
		for j, sampled := range s.LossMask {
			if !sampled {
				continue
			}
			kl := start.row(s.TokenIDs[j-1])[s.TokenIDs[j]] - ref.row(s.TokenIDs[j-1])[s.TokenIDs[j]]
			want := -.5 * kl
			if j == len(s.LossMask)-1 {
				want += x.Score
			}
			near(t, fmt.Sprintf("%s: the reward of action %d", x.ID, k), got[k], want, 1e-12)
			sum, n, k = sum+kl, n+1, k+1
		}
	}
	near(t, "actor/reward_kl_penalty", m[0].Values["actor/reward_kl_penalty"], sum/float64(n), 1e-12)
}

// ledger notes which rows' gradients are in each step of a model, and says NaN of one.
type ledger struct {
	*bigram
	bad   []int32
	now   []string
	steps [][]string
}

func (l *ledger) Accumulate(b policy.Batch, loss func(policy.Outputs) policy.Gradients) error {
	for _, s := range b.Sequences {
		l.now = append(l.now, fmt.Sprint(s))
	}
	return (&broken{l.bigram, l.bad}).Accumulate(b, loss)
}

func (l *ledger) Drop() error { l.now = nil; return l.bigram.Drop() }

func (l *ledger) Step(c policy.StepConfig) (float64, error) {
	l.steps, l.now = append(l.steps, l.now), nil
	return l.bigram.Step(c)
}

// Nothing of a bad step is in the next one, neither of the policy nor of the critic,
// whichever of them it was that said NaN.
func TestNothingOfABadStepIsInTheNext(t *testing.T) {
	group := map[string]string{}
	for _, e := range corpus() {
		for i := range e.Sequences {
			group[fmt.Sprint(e.Sequences[i].TokenIDs)] = e.Group
		}
	}
	bad := corpus()[2].Sequences[0].TokenIDs // behind others of its group
	for _, who := range []string{"critic", "policy"} {
		c := ppoConfig()
		c.SkipBad, c.MicroTokens, c.Minibatch = true, 1, 1 // each row alone, each group a step
		actor, critic := &ledger{bigram: newBigram(vocab, 1)}, &ledger{bigram: newCritic(4)}
		if who == "critic" {
			critic.bad = bad
		} else {
			actor.bad = bad
		}
		skipped, after := 0, 0
		p := &Trainer{Models: Models{Critic: critic, Actor: actor}, Config: c, Data: &rows.Data{Episodes: corpus()},
			Clock: still, Hooks: Hooks{OnStep: func(m Metrics) error {
				if m.Values["actor/skipped_step"] == 1 {
					skipped++
				} else if skipped > 0 {
					after++
				}
				return nil
			}}}
		if err := p.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if skipped != 1 || after == 0 {
			t.Fatalf("%s: %d bad steps, %d after it: the test shows nothing", who, skipped, after)
		}
		for name, m := range map[string]*ledger{"policy": actor, "critic": critic} {
			for i, all := range m.steps {
				of := map[string]bool{}
				for _, r := range all {
					of[group[r]] = true
				}
				if len(of) != 1 {
					t.Errorf("%s said NaN: step %d of the %s has gradients of the groups %v", who, i+1, name, of)
				}
			}
		}
	}
}

// A reward model's score is the whole reward: nothing of the file's stays.
func TestARewardModelReplacesTheRewardsOfSteps(t *testing.T) {
	run := func(steps, judged, disk bool) []float64 {
		c := config()
		c.Advantage, c.Gamma = "reinforce", .5 // which looks where a reward stands
		d := &rows.Data{Episodes: corpus()}
		for _, e := range d.Episodes {
			if steps {
				e.StepRewards = []episode.StepReward{{Sequence: 0, Token: slices.Index(e.Sequences[0].LossMask, true), Reward: 3}}
			}
		}
		if disk {
			onDisk(t, d)
		}
		model := newBigram(vocab, 1)
		train(t, model, c, nil, func(g *Trainer) {
			if g.Data = d; judged {
				g.Reward = newCritic(9)
			}
		})
		return model.steps[0]
	}
	for _, disk := range []bool{false, true} {
		if d := gap(run(true, true, disk), run(false, true, disk)); d != 0 {
			t.Errorf("on disk %v: the file's step rewards move the gradient by %v", disk, d)
		}
		if gap(run(true, false, disk), run(false, false, disk)) == 0 {
			t.Errorf("on disk %v: without a reward model step rewards do nothing", disk)
		}
	}
}

func TestSAPOHasATemperatureForEachSign(t *testing.T) {
	c := config()
	c.Loss, c.OldLogprobs, c.SAPOPos, c.SAPONeg, c.Advantage = "sapo", OldFile, .5, 3, "dr_grpo"
	model := newBigram(vocab, 1)
	good, bad := attempt("g", 1, "abC"), attempt("g", 0, "abE")
	apart(model, good, .5)
	apart(model, bad, .5)
	v := train(t, model, c, []*episode.Episode{good, bad})[0].Values
	gate := func(tau float64) float64 { return 4 / tau / (1 + math.Exp(-tau*(math.Exp(.5)-1))) }
	near(t, "actor/pg_loss", v["actor/pg_loss"], (-.5*gate(.5)+.5*gate(3))/2, 1e-6)
}

// A reply may be cut off at its own limit, or at the trajectory's.
func TestTheOverlongFilterTakesBothLimits(t *testing.T) {
	run := func(end traj.Termination) []float64 {
		c := config()
		c.OverlongFilter = true
		cut := attempt("g", 0, "abCDEF")
		cut.Termination = end
		model := newBigram(vocab, 1)
		train(t, model, c, []*episode.Episode{attempt("g", 1, "abCD"), attempt("g", 0, "abEE"), cut})
		return model.steps[0]
	}
	if !slices.Equal(run(traj.TurnLength), run(traj.MaxTokens)) {
		t.Error("what ended by max_tokens is not left out as what ended by turn_length is")
	}
	for _, end := range []traj.Termination{traj.MaxTurns, traj.Answered} {
		if slices.Equal(run(end), run(traj.TurnLength)) {
			t.Errorf("what ended by %s is left out", end)
		}
	}
}
