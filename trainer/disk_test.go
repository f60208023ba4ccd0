package trainer

import (
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentcli/lossscale"
	"agentcli/parquet/parquettest"
	"agentcli/trainer/algo"
	"agentcli/trainer/episode"
	"agentcli/trainer/episode/episodetest"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// onDisk takes the bodies of the episodes out of memory.
func onDisk(t *testing.T, d *rows.Data) *rows.Data {
	t.Helper()
	d.Spill = episodetest.Spill(t, d.Episodes)
	t.Cleanup(func() { d.Close() })
	return d
}

// rich is the corpus with all that an episode can have.
func rich(model *bigram) *rows.Data {
	d := &rows.Data{Episodes: corpus()}
	record(.1, model, d.Episodes)
	for i, e := range d.Episodes {
		e.Parts = []traj.Part{{Name: "a", Value: e.Score}, {Name: "b", Value: float64(i % 3)}}
		e.Question, e.Demonstration = "q", ""
		if i%4 > 0 {
			e.Demonstration = string(rune('0' + i%vocab))
		}
		e.Role, e.GreedyScore = []string{"x", "y"}[i%2], number(.25)
		if i%3 == 0 {
			e.StepRewards = []episode.StepReward{{Sequence: 0, Token: len(e.Sequences[0].TokenIDs) - 1, Reward: .125}}
		}
		if i == 2 {
			e.Termination = traj.TurnLength
		}
	}
	return d
}

type outcome struct {
	models []*bigram
	steps  []map[string]float64
}

// wholeRun trains with every model that the settings ask for, on data of its own.
func wholeRun(t *testing.T, c Config, d, ptx *rows.Data, change func(*Trainer)) (o outcome) {
	t.Helper()
	actor := newBigram(vocab, 1)
	o.models = []*bigram{actor}
	s := Trainer{Models: Models{Actor: actor, Ref: newBigram(vocab, 2), Teacher: newBigram(vocab, 5)}, Config: c,
		Data: d, Clock: still, Hooks: Hooks{OnStep: func(m Metrics) error { o.steps = append(o.steps, maps.Clone(m.Values)); return nil }}}
	if c.Algo == AlgoRM {
		actor.values, actor.valueGrad = make([]float64, vocab), make([]float64, vocab)
		for i := range actor.values {
			actor.values[i] = float64(i) / 10
		}
	}
	if ptx != nil {
		s.PTX = ptx.Episodes
	}
	if change != nil {
		change(&s)
	}
	if c.Algo == AlgoPPO {
		critic := newBigram(vocab, 7)
		critic.values, critic.valueGrad = make([]float64, vocab), make([]float64, vocab)
		critic.values[3] = .5
		o.models = append(o.models, critic)
		s.Critic = critic
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// The same rows from memory and from the scratch file give the same model, down
// to the bits, whatever is computed once and kept beside them.
func TestTrainingFromDiskIsTrainingFromMemory(t *testing.T) {
	base := func(change func(*Config)) Config {
		c := DefaultConfig()
		c.Minibatch, c.Epochs, c.LR, c.MicroTokens = 3, 2, .05, 14
		change(&c)
		return c
	}
	settings := map[string]Config{
		"grpo":           base(func(c *Config) {}),
		"all at once":    base(func(c *Config) { c.Minibatch = 0 }),
		"file":           base(func(c *Config) { c.OldLogprobs = OldFile }),
		"tis":            base(func(c *Config) { c.OffPolicy = algo.NewCorrection(algo.TIS) }),
		"kl":             base(func(c *Config) { c.KLCoef = .1 }),
		"kl in reward":   base(func(c *Config) { c.KLCoef, c.KLIn, c.DropZeroStd = .1, KLInReward, true }),
		"echo":           base(func(c *Config) { c.Echo = .3 }),
		"opd":            base(func(c *Config) { c.Loss = "opd" }),
		"opsd":           base(func(c *Config) { c.Loss, c.Demonstration = "opd", DemonstrateBest }),
		"opsd, answers":  base(func(c *Config) { c.Loss, c.Demonstration = "opd", DemonstrateAnswer }),
		"rloo":           base(func(c *Config) { c.Advantage, c.OverlongFilter, c.LengthPenalty = "rloo", true, ".1,.1,.1" }),
		"gdpo":           base(func(c *Config) { c.Advantage = "gdpo" }),
		"remax":          base(func(c *Config) { c.Advantage = "remax" }),
		"rae":            base(func(c *Config) { c.Advantage = "rae" }),
		"reinforce++":    base(func(c *Config) { c.Advantage, c.Gamma = "reinforce++", .9 }),
		"ppo":            base(func(c *Config) { c.Algo, c.Advantage, c.Lambda = AlgoPPO, "gae", .9 }),
		"ppo with kl":    base(func(c *Config) { c.Algo, c.Advantage, c.KLCoef, c.KLIn = AlgoPPO, "gae", .1, KLInReward }),
		"ptx":            base(func(c *Config) { c.PTXCoef = .2 }),
		"sft":            base(func(c *Config) { c.Algo = AlgoSFT }),
		"dpo":            base(func(c *Config) { c.Algo = AlgoDPO }),
		"rm":             base(func(c *Config) { c.Algo, c.Supervised.Pairs = AlgoRM, rows.PairsAll }),
		"reward model":   base(func(c *Config) {}),
		"last round":     base(func(c *Config) { c.LossScale = lossscale.LastRound }),
		"by their model": base(func(c *Config) { c.KLCoef, c.Seed = .1, 2 }),
		"tempered":       base(func(c *Config) { c.KLCoef, c.Echo, c.EntropyCoef = .1, .3, .1 }),
		"tempered opsd":  base(func(c *Config) { c.Loss, c.Demonstration = "opd", DemonstrateBest }),
	}
	// Those that look at the whole batch, also where not every column's number is an action's.
	for _, e := range algo.Estimators {
		if e.Batch && e.Name != "gae" {
			settings[e.Name+" over the batch"] = base(func(c *Config) { c.Advantage, c.Gamma, c.DropZeroStd = e.Name, .9, true })
			settings[e.Name+" with echo"] = base(func(c *Config) { c.Advantage, c.Gamma, c.Echo = e.Name, .9, .3 })
		}
	}
	settings["gae with echo"] = base(func(c *Config) { c.Algo, c.Advantage, c.Lambda, c.Echo = AlgoPPO, "gae", .9, .3 })
	for name, c := range settings {
		t.Run(name, func(t *testing.T) {
			run := func(shelve func(*rows.Data) *rows.Data, change func(*Trainer)) outcome {
				ptx := &rows.Data{Episodes: corpus()[2:7]}
				if c.PTXCoef == 0 {
					ptx = nil
				} else {
					ptx = shelve(ptx)
				}
				d := rich(newBigram(vocab, 1))
				if strings.HasPrefix(name, "tempered") {
					for i, e := range d.Episodes {
						rows.SetTemperature(e, []float64{.6, 1, 1.3}[i%3], &rows.RunSource{})
					}
				}
				return wholeRun(t, c, shelve(d), ptx, func(s *Trainer) {
					switch name {
					case "reward model":
						judge := newBigram(vocab, 9)
						judge.values, judge.valueGrad = make([]float64, vocab), make([]float64, vocab)
						for i := range judge.values {
							judge.values[i] = math.Sin(float64(i))
						}
						s.Reward = judge
					case "by their model":
						s.Ref = s.Actor
					case "opsd", "opsd, answers", "tempered opsd":
						s.Teacher, s.Demonstrator = s.Actor, lastOf{}
					}
					if change != nil {
						change(s)
					}
				})
			}
			disk := func(d *rows.Data) *rows.Data { return onDisk(t, d) }
			want := run(func(d *rows.Data) *rows.Data { return d }, nil)
			got := run(disk, nil)
			if len(want.steps) < 2 {
				t.Fatalf("%d steps are too few to show anything", len(want.steps))
			}
			if !reflect.DeepEqual(got.steps, want.steps) {
				t.Errorf("the metrics differ:\n%v\n%v", got.steps, want.steps)
			}
			for i, m := range got.models {
				if w := want.models[i]; !same(m.logits, w.logits) || !same(m.values, w.values) {
					t.Errorf("model %d is %v off", i, gap(m.logits, w.logits))
				}
			}

			// Gone on with after its first step, from a checkpoint file.
			if c.Algo == AlgoPPO {
				return // ppo_test.go resumes with a critic
			}
			path := filepath.Join(t.TempDir(), "frozen")
			var saved *bigram
			one := run(disk, func(s *Trainer) {
				s.Config.SaveEvery = 1
				s.Checkpoint = func(done int, f *Frozen) error {
					if done == 1 {
						saved = s.Actor.(*bigram).copy()
						return f.WriteFile(path)
					}
					return nil
				}
			})
			if saved == nil {
				t.Fatalf("no checkpoint in %d steps", len(one.steps))
			}
			two := run(disk, func(s *Trainer) {
				f, err := ReadFrozen(path)
				if err != nil {
					t.Fatal(err)
				}
				s.Done, s.Frozen, s.Actor, s.Reward = 1, f, saved, nil
			})
			if !reflect.DeepEqual(withoutOnce(two.steps), withoutOnce(want.steps[1:])) ||
				!same(saved.logits, want.models[0].logits) || !same(saved.values, want.models[0].values) {
				t.Errorf("resumed after step 1 it is another run:\n%v\n%v", two.steps, want.steps[1:])
			}
		})
	}
}

// withoutOnce leaves out what the first step of a process says.
func withoutOnce(steps []map[string]float64) []map[string]float64 {
	for _, m := range steps {
		maps.DeleteFunc(m, func(key string, _ float64) bool { return strings.HasPrefix(key, "timing_s/") })
	}
	return steps
}

func TestPRMFromDiskIsPRMFromMemory(t *testing.T) {
	var kept []*bigram
	for _, shelve := range []bool{false, true} {
		d := judged()
		c := DefaultConfig()
		c.Algo, c.Minibatch, c.LR, c.MicroTokens = AlgoPRM, 2, .05, 14
		if shelve {
			onDisk(t, d)
		}
		model := newBigram(vocab, 1)
		learn(t, model, c, d)
		kept = append(kept, model)
	}
	d := onDisk(t, judged())
	for range 2 { // a second session on the same rows begins afresh
		c := DefaultConfig()
		c.Algo, c.Minibatch, c.LR, c.MicroTokens = AlgoPRM, 2, .05, 14
		model := newBigram(vocab, 1)
		learn(t, model, c, d)
		kept = append(kept, model)
	}
	if !same(kept[0].logits, kept[2].logits) || !same(kept[0].logits, kept[3].logits) {
		t.Error("the rows of an earlier session teach something else")
	}
	if !same(kept[0].logits, kept[1].logits) || same(kept[0].logits, newBigram(vocab, 1).logits) {
		t.Error("the models differ, or learned nothing")
	}
}

func TestRowsOnDiskAreCheckedAsThoseInMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	all := []*traj.Trajectory{row("a#0", "a", number(1), nil), row("a#1", "a", number(0), nil),
		row("b#0", "b", number(1), func(x *traj.Trajectory) { x.Sequences = []traj.Sequence{sequence("aBCDEFGHI", nil)} }),
		row("b#1", "b", number(0), nil)}
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), "", all...)
	d, err := LoadFor(t.Context(), []string{f}, DefaultConfig(), rows.Sources{OnDisk: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the scratch file has a name that a kill would leave behind: %v, %v", left, err)
	}
	if err := d.CheckTokens(9); err != nil {
		t.Error(err)
	}
	var outside *rows.TokenError
	if err := d.CheckTokens(8); !errors.As(err, &outside) || *outside != (rows.TokenError{ID: "b#0", Position: 8, Token: 8, Vocab: 8}) {
		t.Error(err)
	}
	if err := d.DropLong(8); err != nil || len(d.Episodes) != 3 || d.Skipped.Rows != 1 {
		t.Errorf("%d rows left, %v", len(d.Episodes), err)
	}
	for _, e := range d.Episodes {
		if e.Body != nil {
			t.Errorf("%s is in memory", e.ID)
		}
	}
	if d.Episodes[0].Task != "a" || d.Episodes[0].Score != 1 {
		t.Errorf("%+v", d.Episodes[0])
	}
	p, err := MakePlan(d, config())
	if err != nil || p.Episodes != 3 || p.Tokens != 12 || p.Actions != 6 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestABadRowIsRefusedOnDiskToo(t *testing.T) {
	dir := t.TempDir()
	nan := parquettest.Write(t, filepath.Join(dir, "nan.parquet"), "", row("a#0", "a", number(1), nil),
		row("a#1", "a", number(math.NaN()), nil))
	first := parquettest.Write(t, filepath.Join(dir, "first.parquet"), "",
		row("a#0", "a", number(1), func(x *traj.Trajectory) { x.Sequences[0].LossMask[0] = true }))
	none := parquettest.Write(t, filepath.Join(dir, "none.parquet"), "", row("a#0", "a", nil, nil))
	for _, path := range []string{nan, first, none, "rows/testdata/ragged.parquet", "rows/testdata/no_reward.parquet",
		filepath.Join(dir, "x.parquet")} {
		_, want := LoadFor(t.Context(), []string{path}, DefaultConfig(), rows.Sources{})
		_, got := LoadFor(t.Context(), []string{path}, DefaultConfig(), rows.Sources{OnDisk: true})
		if want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%s: on disk %v, in memory %v", path, got, want)
		}
	}
}

func TestAScratchFolderThatCannotBeUsedIsNamed(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	f := parquettest.Write(t, filepath.Join(t.TempDir(), "f.parquet"), "", row("a#0", "a", number(1), nil), row("a#1", "a", number(0), nil))
	_, err := LoadFor(t.Context(), []string{f}, DefaultConfig(), rows.Sources{OnDisk: true})
	if err == nil || !strings.Contains(err.Error(), os.Getenv("TMPDIR")) || !strings.Contains(err.Error(), "TMPDIR") ||
		strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
