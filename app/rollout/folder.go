package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/engine"
	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/journal"
	"agentcli/rewards"
	"agentcli/rewards/judge"
	"agentcli/telemetry"
	"agentcli/traj"
)

// Identity is the hash of everything that decides what a run's rows mean; a run
// is resumed only by the same. How fast, where to and how often to try again
// are not part of it, nor how many tasks and samples: a run may be made longer.
func (x *Run) Identity() string {
	info := x.Source
	info.BaseURL = nil // a server may move
	if info.Kind == "server" {
		info.Logprobs = "server" // what a probe found is no setting
	}
	info.BarredIDs = nil                       // they follow from the weights
	info.ChatFormat, info.ToolsInText = "", "" // they follow from the template, whose hash is in it
	tools := x.tools.names
	if x.o.Session {
		tools = append(slices.Clone(tools), "python-session")
	}
	what := map[string]any{
		"model": info, "parser": x.o.Model.Parser, "dataset": x.o.Dataset, "split": x.o.Split, "level": x.o.Level, "shots": x.o.Shots,
		"fields": x.o.Fields, "system": x.o.System, "prompt": x.o.Prompt, "reward": x.reward, "seed": x.o.Seed, "sampling": x.o.Sampling,
		"tools": tools, "max_turns": x.o.MaxTurns, "max_prompt": x.o.MaxPromptTokens, "max_response": x.o.MaxResponseTokens,
	}
	if x.o.Judge.Server != "" {
		_, model, _ := strings.Cut(x.o.Judge.Server, "#")
		what["judge"] = []any{model, x.o.Judge.Rubric, x.o.Judge.Votes}
		if x.o.Judge.Rubric == "" && rewards.Reads(x.reward, "deepeyes") { // which asked by the rubric correct once
			what["judge_form"] = judge.DeepEyes
		}
	}
	if x.o.Grader.Text() != "{}" {
		what["grader"] = x.o.Grader
	}
	if own := ownOptions(x.o, x.Data); len(own) > 0 {
		what["reward_options"] = own
	}
	if len(x.Data.OwnTools) > 0 { // before there was such a thing, they were not offered
		what["row_tools"] = true
	}
	if x.o.FinalTurn { // runs from before there was such a thing keep their hash
		what["final_turn"] = true
	}
	if s := x.o.Select; len(s.Rows) > 0 || s.IDs != nil {
		what["select"] = s
	}
	if x.o.Shuffle {
		what["shuffle"] = true
	}
	if x.o.Env != environments[0].name {
		what["env"] = x.o.Env
	}
	if len(x.envs.given.Env) == 0 && len(x.Data.Envs) > 1 {
		what["envs"] = x.envs.identity()
	}
	if k := x.o.RetrieverTopK; k > 0 {
		what["retriever_topk"] = k
	}
	if images := x.o.imageSettings(); len(images) > 0 {
		what["images"] = images
	}
	if x.o.Scheduler != "" {
		what["scheduler"] = []string{x.o.Scheduler, x.o.GymEnv}
	}
	if x.o.ContinueReply {
		what["continue_reply"] = true
	}
	if n := x.o.MaxObservationTokens; n > 0 {
		what["max_observation"] = n
	}
	if len(x.tools.added) > 0 {
		what["added_tools"] = x.tools.added
	}
	b, err := json.Marshal(what)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// header is what the run's journal says about the run, beside its identity: what
// else must not change.
func (x *Run) header(id string) journal.Header {
	h := journal.Header{Config: id, Settings: map[string]string{}}
	if x.o.Python != "" {
		h.Settings["python"] = x.o.Python
	}
	if x.o.ToolTimeout != DefaultToolTimeout {
		h.Settings["tool-timeout"] = x.o.ToolTimeout.String()
	}
	for _, path := range x.Data.Files {
		h.Files = append(h.Files, journal.File{Name: filepath.Base(path), Path: path})
	}
	return h
}

// openFolder makes or finds the run's folder and its journal. Without --output
// a rollout keeps its journal in the cache until it has ended well.
func (x *Run) openFolder() error {
	header := x.header(x.Identity())
	if x.o.Resume != "" {
		x.dir, x.keepDir = x.o.Resume, !rundir.IsWithin(cachedir.Path("runs"), x.o.Resume)
		return x.resumeFolder(header)
	}
	x.dir, x.keepDir = x.o.Output, true
	if x.dir == "" {
		name := fmt.Sprintf("%s-%s", rundir.FolderName(x.Data.Name), time.Now().Format("20060102-150405.000"))
		if x.o.Command == "eval" {
			x.dir = filepath.Join("runs", name)
		} else {
			x.dir, x.keepDir = cachedir.Path("runs", name), false
		}
	}
	if err := rundir.CheckOutput(x.o.Output, x.o.Command, false); err != nil {
		return err
	}
	return x.makeFolder(header)
}

// resumeFolder opens the journal of a run that goes on, and stores its settings as they
// are now: it may be longer, or faster.
func (x *Run) resumeFolder(h journal.Header) (err error) {
	config := filepath.Join(x.dir, rundir.ConfigFile)
	x.journal, err = journal.Open(filesys.OS, filepath.Join(x.dir, rundir.JournalFile), h, x.Notice)
	var changed *journal.ChangedError
	switch {
	case errors.As(err, &changed):
		return exit.UsageError{Err: setting.Errorf("%s %s: %s", setting.Name("Resume"), x.dir, changedWords(changed))}
	case errors.Is(err, journal.ErrOtherRun):
		why := rundir.ChangedSettings(config, x.o.Settings, x.o.Fixed)
		if why == "" {
			why = x.otherServer()
		}
		return exit.UsageError{Err: fmt.Errorf("%w (%s)", err, why)}
	case errors.Is(err, journal.ErrInUse):
		return exit.Usagef("%s %s: that run is going on in another process; wait for it, or end it", setting.Name("Resume"), x.dir)
	case err != nil:
		return err
	}
	rundir.RemoveTempFiles(x.dir) // the journal is ours, so nobody else writes here
	settings := x.o.stored()
	x.moved = rundir.KeepServer(settings, rundir.ReadSettings(config))
	return rundir.WriteSettings(filesys.OS, config, settings)
}

// makeFolder makes the folder of a new run, with its journal and its settings.
func (x *Run) makeFolder(h journal.Header) (err error) {
	remedy := fmt.Sprintf("name another by %s DIR", setting.Name("Output"))
	if !x.keepDir {
		remedy = fmt.Sprintf("name another place by XDG_CACHE_HOME, or the run's own folder by %s DIR", setting.Name("Output"))
	}
	if err := rundir.MakeFolder(filesys.OS, x.dir); err != nil {
		return fmt.Errorf("cannot make the run's folder %s (%w); %s", x.dir, rundir.StripPath(err), remedy)
	}
	path := filepath.Join(x.dir, rundir.JournalFile)
	if x.journal, err = journal.Create(filesys.OS, path, h, x.Notice); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("cannot write into the run's folder %s (%w); %s", x.dir, rundir.StripPath(err), remedy)
		}
		return err
	}
	if err := rundir.WriteSettings(filesys.OS, filepath.Join(x.dir, rundir.ConfigFile), x.o.stored()); err != nil {
		_ = x.journal.Close() // nothing is in it: the next try finds an empty folder
		_ = os.Remove(path)
		x.journal = nil
		return err
	}
	return nil
}

// hasAnswered reports whether the run that is resumed has replies of the server that
// is asked now.
func hasAnswered(o Options) bool {
	if o.Resume == "" {
		return false
	}
	was := rundir.ReadSettings(filepath.Join(o.Resume, rundir.ConfigFile))
	if was == nil || !rundir.SameServer(was, o.Settings) {
		return false
	}
	return journal.AnyFinished(filesys.OS, filepath.Join(o.Resume, rundir.JournalFile))
}

// observeServer stores the server that a resumed run was moved to, once it has
// answered: a wrong address must not be what the next --resume takes. It is nil for
// a run that asks the stored one.
func (x *Run) observeServer() telemetry.Observe {
	if !x.moved {
		return nil
	}
	w := &movedRun{x: x}
	return func(*traj.Trajectory) engine.Watcher {
		if w.stored.Load() {
			return nil
		}
		return w
	}
}

// movedRun is the watcher of a run whose server is not the stored one.
type movedRun struct {
	x      *Run
	stored atomic.Bool
}

// Event implements engine.Watcher.
func (w *movedRun) Event(_ time.Time, e engine.Event) {
	if end, ok := e.(engine.ModelEnd); !ok || end.Err != nil || !w.stored.CompareAndSwap(false, true) {
		return
	}
	if err := rundir.WriteSettings(filesys.OS, filepath.Join(w.x.dir, rundir.ConfigFile), w.x.o.stored()); err != nil {
		w.x.Notice(text.Line(err))
	}
}

// changedWords says what must be as it was when the run began.
func changedWords(c *journal.ChangedError) string {
	value := func(s string) string {
		if s == "" {
			return "not set"
		}
		return s
	}
	return fmt.Sprintf("--%s is %s and was %s when the run began; resume with that, or begin a new run", c.Name,
		value(c.Now), value(c.Was))
}

// otherServer says what has changed beside the flags: where auto chose how the server
// is asked, most likely what it chose.
func (x *Run) otherServer() string {
	if x.o.Model.TokenMode != models.TokenModeAuto || x.Source.Kind != "server" {
		return "no flag differs: the model's files, or what a tool offers, have changed"
	}
	now, was, remedy := models.TokenModeChat, models.TokenModeCompletions, "that takes token ids"
	if x.Source.TokenMode == models.TokenModeCompletions {
		now, was, remedy = models.TokenModeCompletions, models.TokenModeChat+", or another tokenizer", "like that one"
	}
	return fmt.Sprintf("%s auto finds %s with this server, which serves %s, and found %s, or another model, when the run began; "+
		"go on with a server %s, or begin a new run",
		setting.Name("TokenMode"), now, x.Source.Name, was, remedy)
}
