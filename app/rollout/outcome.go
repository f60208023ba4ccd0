package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"agentcli/app/rundir"
	"agentcli/engine"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/journal"
	"agentcli/parquet"
	"agentcli/traj"
)

// Notice tells the user something, above the progress bar if there is one.
func (x *Run) Notice(line string) { x.s.Say(line) }

// Metadata is what the Parquet file says of the run.
func (x *Run) Metadata() (parquet.Metadata, error) {
	dataset := map[string]any{"name": x.Data.Name, "split": x.Data.Split, "limit": x.o.Limit, "level": x.o.Level, "shots": x.o.Shots,
		"system": x.o.System, "prompt": x.o.Prompt, "fields": x.o.Fields}
	if len(x.Data.Parts) > 0 {
		dataset["parts"] = x.Data.Parts
	}
	if x.o.Shuffle {
		dataset["shuffle"] = true
	}
	what := map[string]any{
		"command": x.o.Command, "version": version.String(), "config": rundir.RedactSettings(x.o.Settings), "model": x.Source,
		"sampling": x.o.Sampling, "seed": x.o.Seed, "samples": x.o.Samples, "logprobs": x.Source.Logprobs,
		"env": x.o.Env, "tools": x.tools.config.Specs(),
		"reward": text.Redact(strings.Join(rewardsOf(x.o.Reward, x.Data), " or ")), "parser": x.o.Model.Parser,
		"limits": map[string]any{"max_turns": x.o.MaxTurns, "max_prompt_tokens": x.o.MaxPromptTokens,
			"max_response_tokens":    x.o.MaxResponseTokens,
			"max_observation_tokens": x.o.MaxObservationTokens, "final_turn": x.o.FinalTurn, "continue_reply": x.o.ContinueReply,
			"timeout": x.o.Timeout.String(), "tool_timeout": x.o.ToolTimeout.String()},
		"dataset": dataset,
	}
	if x.o.Scheduler != "" {
		what["scheduler"] = map[string]any{"name": text.Redact(x.o.Scheduler), "gym_env": text.Redact(x.o.GymEnv)}
	}
	if images := x.o.imageSettings(); len(images) > 0 {
		what["images"] = images
	}
	run, err := json.Marshal(what)
	return parquet.Metadata{Run: run}, err
}

// FileConfig is the form of the run's files of trajectories.
func (x *Run) FileConfig() parquet.WriterConfig {
	var c parquet.WriterConfig
	if x.schedulers != nil {
		c.Columns = []string{parquet.ColumnInfos, parquet.ColumnLossWeights}
	}
	if x.o.Model.RouterReplay {
		c.Columns = append(c.Columns, parquet.ColumnExperts)
	}
	if x.Data.HasImages || x.tools.showsImages() && !x.envs.images.TextAlone {
		c.Columns, c.ImagesBeside = append(c.Columns, parquet.ColumnImages), x.o.ImageFiles == ImageFiles[1]
	}
	return c
}

// resumeHint is the command that goes on with this run.
func (x *Run) resumeHint(rest string) string {
	return strings.TrimSpace(fmt.Sprintf("agentcli %s %s %s %s", x.o.Command, setting.Name("Resume"), text.ShellWord(x.dir), rest))
}

// ending turns how a run ended into the command's error. saved says where the
// finished trajectories are.
func (x *Run) ending(sum engine.Summary, err error, saved, rest string) error {
	finished := sum.Done - sum.Errors
	allTooLong := finished > 0 && sum.TooLong == finished
	if sum.TooLong > 0 && (err != nil || sum.Interrupted || !allTooLong || sum.Errors > 0) {
		x.Notice(fmt.Sprintf("%d of %s ended because the prompt was too long (the first: %s)", sum.TooLong,
			text.Plural(sum.Done, "trajectory"), sum.FirstTooLong))
	}
	switch {
	case err != nil && finished == 0:
		return err
	case errors.Is(err, journal.ErrOtherRun): // resuming again would end likewise
		return fmt.Errorf("%w; %s finished and kept; restore the row and go on with: %s; or begin a new run",
			err, text.Plural(finished, "trajectory"), x.resumeHint(rest))
	case errors.Is(err, traj.ErrGone): // as with any failure of the infrastructure
		return exit.PartialError{
			Message: fmt.Sprintf("%v; %s finished%s; go on with: %s", err, text.Plural(finished, "trajectory"), saved, x.resumeHint(rest))}
	case err != nil:
		return fmt.Errorf("%w; %s finished and kept, %sgo on with: %s", err, text.Plural(finished, "trajectory"), remedy(err), x.resumeHint(rest))
	case sum.BudgetSpent:
		return x.budgetEnding(sum, finished, saved, rest)
	case sum.Interrupted && finished == 0 && !x.keepDir:
		return exit.InterruptedError{Message: "interrupted before anything was finished; nothing is kept"}
	case sum.Interrupted:
		return exit.InterruptedError{
			Message: fmt.Sprintf("interrupted: %s finished%s; go on with: %s", text.Plural(finished, "trajectory"), saved, x.resumeHint(rest))}
	case sum.Done == 0:
		return fmt.Errorf("dataset %s gave no tasks; nothing was run", x.Data.Name)
	case sum.Errors == sum.Done:
		return fmt.Errorf("%s failed: %s; try again with: %s", allOf(sum.Done), sum.FirstError, x.resumeHint(rest))
	case allTooLong && sum.Errors == 0:
		return setting.Errorf("%s ended because the prompt was too long: %s; ask with a shorter one (%s, %s, %s), or "+
			"a model with a larger window",
			allOf(sum.Done), sum.FirstTooLong, setting.Name("Shots"), setting.Name("System"), setting.Name("Prompt"))
	case sum.Errors > 0:
		return exit.PartialError{Message: fmt.Sprintf("%d of %s failed for infrastructure reasons (the first: %s); try again with: %s",
			sum.Errors, text.Plural(sum.Done, "trajectory"), sum.FirstError, x.resumeHint(rest))}
	}
	return nil
}

// fedEnding says how to go on with a run of requests, which whoever serves it ends. With -o
// alone its folder is removed.
func fedEnding(x *Run, sum engine.Summary, saved, rest string) {
	finished := sum.Done - sum.Errors
	what := ""
	if finished > 0 {
		what = fmt.Sprintf(": %s finished%s", text.Plural(finished, "trajectory"), saved)
	}
	if x.keepDir {
		x.Notice(fmt.Sprintf("the server has ended%s; go on with: %s", what, x.resumeHint(rest)))
	}
}

// remedy is what is to be done first where a file could not be written.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some room and "
	case errors.Is(err, syscall.EFBIG):
		return "raise the limit on the size of files (ulimit -f) and "
	}
	return ""
}

// budgetEnding says how to go on after the budget was spent: with twice what the
// run has taken.
func (x *Run) budgetEnding(sum engine.Summary, finished int, saved, rest string) error {
	b := x.o.Budget
	what, more := text.Plural(int(sum.Spent), "token"), ""
	if b.Tokens > 0 && sum.Spent >= b.Tokens {
		more = fmt.Sprintf(" %s %d", setting.Name("Budget.Tokens"), 2*max(b.Tokens, sum.Spent))
	}
	if b.PriceIn > 0 || b.PriceOut > 0 {
		what += ", " + text.Dollars(sum.Cost)
	}
	if b.Cost > 0 && sum.Cost >= b.Cost {
		more += fmt.Sprintf(" %s ", setting.Name("Budget.Cost")) + text.Money(2*max(b.Cost, sum.Cost))
	}
	if finished == 0 && !x.keepDir {
		return exit.InterruptedError{Message: fmt.Sprintf("the budget is spent (%s) and nothing was finished with it; nothing is kept", what)}
	}
	return exit.InterruptedError{Message: fmt.Sprintf("the budget is spent (%s): %s finished%s; go on with a larger one: %s",
		what, text.Plural(finished, "trajectory"), saved,
		x.resumeHint(strings.TrimSpace(strings.TrimSpace(more)+" "+rest)))}
}

func allOf(n int) string {
	if n == 1 {
		return "the one trajectory"
	}
	return "all " + text.Plural(n, "trajectory")
}
