package files

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"agentcli/app/coderun"
	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/datasets"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/internal/safego"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/parquet"
	"agentcli/rewards"
	"agentcli/rewards/mathgrade"
	"agentcli/traj"

	"github.com/schollz/progressbar/v3"
)

// ScoreOptions say what is scored, and by what.
type ScoreOptions struct {
	Env     []string // names of variables that a reward program gets
	Path    string
	Reward  string          // "": the one that the file names, else math
	Against string          // a file of labels, to compare with; "": none
	Grader  rewards.Options // the options of the reward, where a row has none
	Judge   models.JudgeOptions
}

// UsualReward scores rows that say nothing of theirs.
const UsualReward = "math"

// rewardOfFile is the reward that a trajectory file names, and the JSON of its options; ""
// where it names none. One that runs a program or asks a server is left to the user: a file
// that somebody sent must not decide that.
func rewardOfFile(path string) (name, options string, err error) {
	if !strings.EqualFold(filepath.Ext(path), ".parquet") {
		return "", "", nil
	}
	f, err := parquet.Open(path)
	if err != nil {
		return "", "", nil // whoever reads the rows says what is wrong
	}
	defer f.Close()
	var run struct {
		Reward string `json:"reward"`
		Config struct {
			Options string `json:"reward-options"`
		} `json:"config"`
	}
	if json.Unmarshal(f.Metadata().Run, &run) != nil {
		return "", "", nil // another program's
	}
	name = text.Harmless(text.OneLine(run.Reward))
	switch {
	case name == "":
		return "", "", nil
	case rewards.External(name):
		return "", "", exit.Usagef("%s was scored by %s, which is not run or asked without being named: give %s %s, or another",
			path, name, setting.Name("Reward"), text.ShellWord(name))
	}
	if rewards.Known(name) {
		return name, run.Config.Options, nil
	}
	return "", "", exit.Usagef("%s was scored by %q, which is no reward here; name one by %s: %s", path,
		name, setting.Name("Reward"), rewards.Choices)
}

// over are the options of the command over those that a file names.
func over(file string, command rewards.Options) (rewards.Options, error) {
	if file == "" {
		return command, nil
	}
	o, err := rewards.ParseOptions([]byte(file))
	if err != nil {
		return o, err
	}
	return o.With([]byte(command.Text()))
}

// scoring scores the rows of one file. score may be called by several goroutines.
type scoring struct {
	reward string
	usual  rewards.Options
	first  rewards.Reward // of rows without options
	mu     sync.Mutex
	made   map[string]rewards.Reward // by the text of a row's options
}

// maxGraders is how many rewards with options of rows are kept: each row may have its own.
const maxGraders = 256

// grader is the reward with a row's options over those of the command.
func (x *scoring) grader(row string) (rewards.Reward, error) {
	if row == "" {
		return x.first, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.made[row]; r != nil {
		return r, nil
	}
	o, err := x.usual.With([]byte(row))
	if err != nil {
		return nil, err
	}
	r, err := rewards.New(x.reward, o)
	if err != nil {
		return nil, err
	}
	if len(x.made) >= maxGraders {
		clear(x.made) // a grader with options holds nothing that is to be closed
	}
	x.made[row] = r
	return r, nil
}

// scoredRow is a row with its new score in the fields.
type scoredRow struct {
	scoreRow
	score   rewards.Score
	failed  error    // why the reward has no score for it
	before  *bool    // whether it was correct, where the row says so
	earlier *float64 // its reward before
}

// score puts the new score into a row's fields. Where the reward fails, the row becomes a
// reward_error, as a trajectory of a run does.
func (x *scoring) score(ctx context.Context, in scoreRow) (row scoredRow) {
	row = scoredRow{scoreRow: in}
	defer safego.Into(&row.err)
	if row.err != nil {
		return row
	}
	if was, ok := labelOf(row.fields["correct"]); ok {
		row.before = &was
	}
	if was, ok := numberOf(row.fields["reward"]); ok {
		row.earlier = &was
	}
	if row.attempt != nil {
		row.score, row.failed = x.ask(ctx, in)
	}
	switch {
	case ctx.Err() != nil && row.failed != nil:
		row.err = context.Cause(ctx)
	case row.attempt == nil:
		row.fields["error"] = "has no response"
	case row.failed != nil:
		row.fields["termination"], row.fields["error"] = string(traj.RewardFailed), text.Line(row.failed)
	case row.fields["termination"] == string(traj.RewardFailed): // of an earlier score
		row.fields["termination"], row.fields["error"] = string(row.attempt.Termination), nil
	}
	row.fill()
	return row
}

// ask scores a row's attempt with the row's options.
func (x *scoring) ask(ctx context.Context, row scoreRow) (s rewards.Score, err error) {
	defer safego.Into(&err)
	r, err := x.grader(row.options)
	if err != nil {
		return s, err
	}
	s, err = r.Score(ctx, row.attempt)
	if err != nil {
		return rewards.Score{}, err
	}
	return s, nil
}

// fill replaces what an earlier score has left in the fields.
func (row scoredRow) fill() {
	sc := row.score
	row.fields["reward"], row.fields["correct"], row.fields["extracted"] = sc.Value, sc.Correct, sc.Extracted
	row.fields["reward_parts"] = sc.Parts
	if sc.Verdict != "" {
		row.fields["verdict"] = sc.Verdict
		if row.fields["extraction_rule"] = any(sc.Rule); sc.Rule == "" {
			row.fields["extraction_rule"] = nil
		}
	} else {
		delete(row.fields, "verdict") // of another reward
		delete(row.fields, "extraction_rule")
	}
	setStepRewards(row.fields["steps"], sc.Steps)
	if sc.Parts == nil {
		row.fields["reward_parts"] = []traj.Part{}
	}
}

// inOrder calls f for several elements at once, and gives the results in the elements'
// order. f must not panic.
func inOrder[A, B any](all iter.Seq2[A, error], ahead int, f func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		var queue []chan B
		for a, err := range all {
			if err != nil {
				for _, done := range queue {
					if !yield(<-done, nil) {
						return
					}
				}
				var none B
				yield(none, err)
				return
			}
			done := make(chan B, 1) // whoever stops reading leaves nobody waiting
			go func() {
				defer safego.Catch(nil) // f gives its panics as errors
				done <- f(a)
			}()
			if queue = append(queue, done); len(queue) < ahead {
				continue
			}
			if !yield(<-queue[0], nil) {
				return
			}
			queue = queue[1:]
		}
		for _, done := range queue {
			if !yield(<-done, nil) {
				return
			}
		}
	}
}

// Rows that are scored at once: of a grader of ours a few a processor, of a program or a
// server as many as it may take together.
const (
	aheadOfGrader  = 4
	aheadOfProgram = 32
)

// Score writes each row as one line of JSON, in order, and what they come to on stderr.
// Several rows are scored at once.
func Score(ctx context.Context, o ScoreOptions, s console.Streams) error {
	sum, err := scoreFile(ctx, &o, s)
	if err != nil {
		return err
	}
	if err := sum.write(s.Err, text.Redact(o.Reward)); err != nil {
		return err
	}
	return sum.outcome()
}

func scoreFile(ctx context.Context, o *ScoreOptions, s console.Streams) (*scoreSummary, error) {
	given := o.Grader
	if o.Reward == "" {
		named, options, err := rewardOfFile(o.Path)
		if err != nil {
			return nil, err
		}
		if o.Grader, err = over(options, o.Grader); err != nil {
			return nil, &malformed.Error{Path: o.Path, Field: "config", Err: err}
		}
		if named != "" {
			s.Say(fmt.Sprintf("scoring by %s, the reward that %s names (%s takes another)", named, o.Path, setting.Name("Reward")))
		}
		o.Reward = cmp.Or(named, UsualReward)
	}
	var labels labelFile
	if o.Against != "" {
		var err error
		if labels, err = readLabels(ctx, o.Against); err != nil {
			return nil, err
		}
	}
	if err := models.CheckRewardSettings(o.Judge, given, o.Reward); err != nil {
		return nil, err
	}
	j, err := models.OpenJudge(ctx, o.Judge, aheadOfProgram, s.Say)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	usual := o.Grader
	programs := coderun.New(coderun.Config{})
	defer programs.Close()
	usual.Notice, usual.Pass, usual.Judge, usual.Runner = s.Say, o.Env, j.Rewards(), programs
	x := &scoring{reward: o.Reward, usual: usual, made: map[string]rewards.Reward{}}
	x.first, err = rewards.New(o.Reward, usual)
	if err = cmp.Or(err, rewards.CheckProgram(o.Reward)); err != nil {
		return nil, exit.UsageError{Err: err}
	}
	if c, ok := x.first.(io.Closer); ok {
		defer c.Close()
	}
	ctx, cancel := context.WithCancel(ctx) // rows that are under way when one is found to be bad
	defer cancel()
	name, rows := o.Path, datasets.ReadRows(ctx, o.Path)
	if o.Path == stdinPath {
		name, rows = "stdin", datasets.ReadLines(ctx, "stdin", s.In)
	}
	ahead := aheadOfGrader * runtime.GOMAXPROCS(0)
	if rewards.External(o.Reward) || j != nil {
		ahead = aheadOfProgram
	}
	bar := progressbar.NewOptions(-1, progressbar.OptionSetWriter(s.Err), progressbar.OptionSetDescription("scored"),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetVisibility(s.ErrTTY && !s.OutTTY))
	out := bufio.NewWriter(s.Out)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	sum := &scoreSummary{name: name, labels: labels, groups: map[string][]float64{}}
	read := scoreRows(rows, rowForm{areTrajectories: strings.EqualFold(filepath.Ext(o.Path), ".parquet"),
		needAnswers: rewards.NeedsAnswers(o.Reward, usual), readMeta: rewards.ReadsMeta(o.Reward), objectAnswers: rewards.TakesObjects(o.Reward)})
	for row, err := range inOrder(read, ahead, func(r scoreRow) scoredRow { return x.score(ctx, r) }) {
		if err == nil && row.err != nil {
			err = &malformed.Error{Path: name, Row: row.number, Err: row.err}
		}
		if err == nil && row.failed != nil {
			row.failed = &malformed.Error{Path: name, Row: row.number, Err: row.failed}
		}
		if err != nil {
			_ = out.Flush()
			return nil, err
		}
		if err := enc.Encode(jsonable(row.fields)); err != nil {
			return nil, err
		}
		sum.add(row)
		_ = bar.Add(1)
		if sum.failed == sum.rows && sum.failed == maxFailedFirst {
			break
		}
	}
	_ = bar.Finish()
	if err := out.Flush(); err != nil {
		return nil, err
	}
	if sum.rows == 0 {
		return nil, malformed.At(name, "", malformed.Missing, "has no rows")
	}
	return sum, nil
}

// maxFailedFirst ends a file whose first rows all fail: the reward is not there, or not for
// such rows.
const maxFailedFirst = 100

// scoreSummary is what is said of all rows.
type scoreSummary struct {
	name                                               string
	rows, scored, right, answered, undecided, unspoken int
	failed                                             int                  // rows that the reward has no score for
	first                                              error                // of them
	groups                                             map[string][]float64 // attempts at one task are not independent
	changes                                            changes
	labels                                             labelFile
}

func (m *scoreSummary) add(row scoredRow) {
	m.rows++
	if row.attempt == nil {
		m.unspoken++
	}
	if row.failed != nil {
		m.failed++
		m.first = cmp.Or(m.first, row.failed)
	}
	if sc := row.score; sc.Value != nil {
		m.scored++
		group := row.attempt.Task.ID
		if g, ok := row.fields["group_id"].(string); ok && g != "" {
			group = g
		} else if group == "" {
			group = fmt.Sprint("row ", row.number)
		}
		m.groups[group] = append(m.groups[group], *sc.Value)
	}
	if row.score.Correct != nil && *row.score.Correct {
		m.right++
	}
	if row.score.Extracted != nil {
		m.answered++
	}
	if row.score.Verdict == mathgrade.Undecided.String() {
		m.undecided++
	}
	m.changes.add(row)
	m.labels.compare(row)
}

func (m *scoreSummary) write(w io.Writer, reward string) error {
	without := ""
	if m.unspoken > 0 {
		without = fmt.Sprintf(", %d without a response", m.unspoken)
	}
	if m.failed > 0 {
		without = fmt.Sprintf(", %d failed", m.failed) + without
	}
	if m.undecided > 0 {
		without = fmt.Sprintf(", %d undecided", m.undecided) + without
	}
	if m.scored == 0 && m.failed == m.rows {
		return nil // outcome says why
	}
	if m.scored == 0 {
		_, err := fmt.Fprintf(w, "agentcli: %s, none scored: failed for reasons of the infrastructure, or never answered%s\n",
			text.Plural(m.rows, "row"), without)
		return err
	}
	fmt.Fprintf(w, "agentcli: %s, %d scored by %s: mean reward %s, %d correct (%.1f %%), %d without an answer%s\n",
		text.Plural(m.rows, "row"), m.scored, reward, overGroups(m.groups), m.right,
		100*float64(m.right)/float64(m.scored), m.scored-m.answered, without)
	if err := m.changes.write(w); err != nil {
		return err
	}
	return m.labels.write(w)
}

// outcome is how the command ends: as a run with such trajectories does.
func (m *scoreSummary) outcome() error {
	switch {
	case m.failed == 0:
		return nil
	case m.failed < m.rows:
		return exit.PartialError{Err: m.first, Message: fmt.Sprintf(
			"%d of %s failed and have no reward (the first: %s); score the output again when that is fixed",
			m.failed, text.Plural(m.rows, "row"), text.Line(m.first))}
	case m.failed == 1:
		return m.first
	case m.failed == maxFailedFirst:
		return fmt.Errorf("the first %d rows failed: %w", m.failed, m.first)
	}
	return fmt.Errorf("all %d rows failed: %w", m.failed, m.first)
}
