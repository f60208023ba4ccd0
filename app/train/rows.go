package train

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"agentcli/app/coderun"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/lossscale"
	"agentcli/media/processor"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
	"agentcli/rewards"
	"agentcli/trainer"
	"agentcli/trainer/rows"
	"agentcli/traj"
)

// CheckFiles refuses names of files that cannot be meant, before anything is read.
func CheckFiles(files []string) error {
	for _, f := range files {
		if !strings.ContainsAny(f, "*?[") {
			if err := rundir.CheckNotFolder(f, "the files"); err != nil {
				return err
			}
		} else if all, err := filepath.Glob(f); err != nil || len(all) == 0 {
			return exit.Usagef("%s: no file matches the pattern", f)
		}
	}
	return nil
}

// inputRows are what a run reads.
type inputRows struct {
	data *rows.Data
	ptx  *rows.Data // of --ptx; nil: none
	eval *rows.Data // measured and not trained on; nil: none
}

func (r *inputRows) close() {
	for _, d := range []*rows.Data{r.data, r.ptx, r.eval} {
		_ = d.Close() // of temporary files
	}
}

// gradesAtOnce is how many replies a judge grades at the same time.
const gradesAtOnce = 32

// loadRows reads what a run trains on, and the rows beside it. checkpoint is the folder
// of the one that the run goes on from; "": it begins.
func loadRows(ctx context.Context, o Options, checkpoint string, note func(string, ...any)) (r *inputRows, err error) {
	r = &inputRows{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	format := func() (*rows.Format, error) { return formatOf(ctx, o.Model, o.Open.ChatTemplate, note) }
	from := rows.Sources{Rewarded: o.RewardModel != "", Format: format, Observations: Observations(ctx, o.Model, o.Open.ChatTemplate, note),
		Vocabulary: Vocabulary(ctx, o.Model, note), Images: Images(ctx, o.Model, note), OnDisk: true}
	var resumed *trainer.Frozen // of a run that goes on and makes rewards anew
	if o.Reward != "" {
		grader := o.Grader
		say := func(m string) { note("%s", m) }
		j, err := models.OpenJudge(ctx, o.Judge, gradesAtOnce, say)
		if err != nil {
			return r, err
		}
		defer j.Close()
		programs := coderun.New(coderun.Config{})
		defer programs.Close()
		grader.Notice, grader.Pass, grader.Judge, grader.Runner = say, o.ToolEnv, j.Rewards(), programs
		s := rewards.NewScorer(func(*traj.Trajectory) string { return o.Reward }, grader)
		defer s.Close()
		_, err = s.Get(o.Reward)
		if err = cmp.Or(err, rewards.CheckProgram(o.Reward)); err != nil {
			return r, exit.Usagef("%s: %w", setting.Name("Reward"), err)
		}
		from.Score = s.Score
		if checkpoint != "" {
			if resumed, err = trainer.ReadFrozen(filepath.Join(checkpoint, frozenName)); err != nil {
				return r, err
			}
			from.Made = resumed.MadeRewards()
		}
	}
	if from.Demonstrations, err = DemonstrationsOf(o.Config.Demonstration); err != nil {
		return r, err
	}
	if o.Held.Dataset == "" {
		from.EvalSplit = o.Held.Split
	}
	if r.data, err = trainer.LoadFor(ctx, o.Files, o.Config, from); err != nil {
		return r, err
	}
	if o.Held.Dataset != "" {
		files := o.EvalFiles
		if files == nil {
			files = []string{o.Held.Dataset}
		}
		from.EvalSplit, from.Made, from.OnDisk = o.Held.Split, resumed.HeldOut().MadeRewards(), false
		if r.eval, err = trainer.LoadFor(ctx, files, o.Config, from); err == nil && o.Held.Split != "" {
			err = r.eval.OnlySplit()
		}
		if err != nil {
			return r, setting.Errorf("%s: %w", setting.Name("Held.Dataset"), err)
		}
	}
	if o.PTX == "" {
		return r, nil
	}
	c := trainer.DefaultConfig()
	c.Algo = trainer.AlgoSFT
	if o.Model == "" {
		if o.Model = namedModel(r.data, o); o.Model != "" {
			if here, ok := models.FindCached(ctx, o.Model); ok {
				o.Model = here
			}
		}
	}
	files := o.PTXFiles
	if files == nil {
		files = []string{o.PTX}
	}
	from = rows.Sources{Format: format, Images: Images(ctx, o.Model, note), OnDisk: true}
	if r.ptx, err = trainer.LoadFor(ctx, files, c, from); err != nil {
		return r, setting.Errorf("%s: %w", setting.Name("PTX"), err)
	}
	return r, nil
}

// Observations is the chat format of the model that sampled a file, which is the one to
// start from unless the file alone names it.
func Observations(ctx context.Context, model, template string, note func(string, ...any)) func(string) (*rows.Format, error) {
	return func(sampler string) (*rows.Format, error) {
		if model == "" && sampler != "" {
			if here, ok := models.FindCached(ctx, sampler); ok {
				return formatOf(ctx, here, template, note)
			}
		}
		f, err := formatOf(ctx, model, template, note)
		if err != nil {
			return nil, setting.Errorf("%s needs the chat format of the rows: %w", setting.Name("Echo"), err)
		}
		return f, nil
	}
}

// Vocabulary gives the tokens of the model that sampled a file, for --loss-scale: as Observations
// does, that of the model to start from unless the file alone names one.
func Vocabulary(ctx context.Context, model string, note func(string, ...any)) func(string) (lossscale.Vocabulary, error) {
	return func(sampler string) (lossscale.Vocabulary, error) {
		name := model
		if here, ok := models.FindCached(ctx, sampler); ok && name == "" && sampler != "" {
			name = here
		}
		if name == "" {
			return nil, exit.Usagef("%s weighs the text of tokens, and the file does not say which model sampled them; name it with %s",
				setting.Name("LossScale"), setting.Name("Model"))
		}
		path, err := models.Find(ctx, name, true, func(text string) { note("%s", text) })
		if err != nil {
			return nil, setting.Errorf("%s: %w", setting.Name("Model"), err)
		}
		tok, err := tokenizer.Open(path)
		if err != nil {
			return nil, err // no interface that holds a nil
		}
		return tok, nil
	}
}

// Images gives the image processor of the model to start from, which is the one that sampled a
// file where none is named. Its area is bounded as when the file was sampled.
func Images(ctx context.Context, model string, note func(string, ...any)) rows.ImageProcessor {
	return func(sampler string, minPixels, maxPixels int) (*processor.Processor, error) {
		path, ok := models.FindCached(ctx, sampler)
		if model != "" {
			var err error
			if path, err = models.Find(ctx, model, true, func(text string) { note("%s", text) }); err != nil {
				return nil, setting.Errorf("%s: %w", setting.Name("Model"), err)
			}
		} else if !ok {
			return nil, exit.Usagef("rows with images need the model's image processor; name the model to start from with %s", setting.Name("Model"))
		}
		p, err := models.ImageProcessor(path, minPixels, maxPixels)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return p, nil
	}
}

// NoteLossScale reports what patterns of the loss scale match nothing in the rows, and how
// many tokens could not be given their weight exactly.
func NoteLossScale(d *rows.Data, note func(string, ...any)) {
	for _, u := range d.Unmatched {
		note("warning: %s: %s", setting.Name("LossScale"), u)
	}
	if d.Rounded.Tokens > 0 {
		note("%s: %s", setting.Name("LossScale"), d.Rounded)
	}
}

// formatOf is the chat format of the model to start from, for rows of text; template as in
// models.Renderer.
func formatOf(ctx context.Context, model, template string, note func(string, ...any)) (*rows.Format, error) {
	if model == "" {
		return nil, exit.Usagef("rows of text do not say which model they are for; name the one to start from with %s", setting.Name("Model"))
	}
	path, err := models.Find(ctx, model, true, func(text string) { note("%s", text) })
	if err != nil {
		return nil, setting.Errorf("%s: %w", setting.Name("Model"), err)
	}
	tok, err := tokenizer.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := models.Renderer(path, tok, template)
	if err != nil {
		return nil, err
	}
	return &rows.Format{Renderer: r, Tokenizer: tok}, nil
}

// scores refuses a reward model without a head of its own: a new one would score
// everything 0.
func scores(ctx context.Context, name string) error {
	path, err := models.Find(ctx, name, true, func(string) {})
	if err != nil {
		return setting.Errorf("%s: %w", setting.Name("RewardModel"), err)
	}
	m, err := weights.Open(path)
	if err != nil {
		return setting.Errorf("%s: %w", setting.Name("RewardModel"), err)
	}
	defer m.Close()
	if !m.Config().Score {
		return exit.Usagef("%s %s has no head that scores; make a reward model with train %s rm, or name a …ForSequenceClassification folder",
			setting.Name("RewardModel"), name, setting.Name("Algo"))
	}
	return nil
}

func rowsName(c trainer.Config) string {
	switch {
	case c.TakesPairs():
		return "replies"
	case c.IsSupervised():
		return "rows"
	}
	return "trajectories"
}

// showRows is the part of --dry-run that says what there is.
func showRows(w io.Writer, p *trainer.Plan, data *rows.Data, c trainer.Config) {
	if c.TakesPairs() {
		fmt.Fprintf(w, "pairs            %d, of %d replies to %d prompts\n", len(data.Pairs), p.Episodes, p.Groups)
		return
	}
	fmt.Fprintf(w, "rows             %d\n", p.Episodes)
}

// summariseSupervised says in words how it went.
func summariseSupervised(note func(string, ...any), h []trainer.Metrics, took time.Duration) {
	if len(h) == 0 {
		return
	}
	first, last := h[0].Values, h[len(h)-1].Values
	line := fmt.Sprintf("%s in %s; training rows: loss %.4f in the first, %.4f in the last",
		text.Plural(len(h), "optimiser step"), took.Round(100*time.Millisecond), first["train/loss"], last["train/loss"])
	for _, key := range []string{"rewards/accuracies", "train/accuracy"} {
		if v, ok := last[key]; ok {
			line += fmt.Sprintf("; accuracy %.3f → %.3f", first[key], v)
		}
	}
	note("%s", line)
}
