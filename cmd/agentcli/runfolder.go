package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"agentcli/engine"
	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/text"
	"agentcli/journal"
	"agentcli/telemetry"
	"agentcli/traj"

	"github.com/goccy/go-yaml"
)

// Names within a run's folder.
const (
	configName  = "config.yaml"
	journalName = "journal"
	dataName    = "traj.parquet"
	reportName  = "report.json"
)

// identity is the hash of everything that decides what a run's rows mean; a run
// is resumed only by the same. How fast, where to and how often to try again
// are not part of it, nor how many tasks and samples: a run may be made longer.
func (x *session) identity() string {
	info := x.info
	info.BaseURL = nil // a server may move
	if info.Kind == "server" {
		info.Logprobs = "server" // what a probe found is no setting
	}
	tools := x.o.Tools
	if x.o.Session {
		tools = append(slices.Clone(tools), "python-session")
	}
	what := map[string]any{
		"model": info, "parser": x.o.Model.Parser, "dataset": x.o.Dataset, "split": x.o.Split, "level": x.o.Level, "shots": x.o.Shots,
		"fields": x.o.Fields, "system": x.o.System, "prompt": x.o.Prompt, "reward": x.reward, "seed": x.o.Seed, "sampling": x.o.Sampling,
		"tools": tools, "max_turns": x.o.MaxTurns, "max_prompt": x.o.MaxPromptTokens, "max_response": x.o.MaxResponseTokens,
	}
	if x.o.FinalTurn { // runs from before there was such a thing keep their hash
		what["final_turn"] = true
	}
	if x.o.ContinueReply {
		what["continue_reply"] = true
	}
	if n := x.o.MaxObservationTokens; n > 0 {
		what["max_observation"] = n
	}
	if len(x.added) > 0 {
		what["added_tools"] = x.added
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
func (x *session) header(id string) journal.Header {
	h := journal.Header{Config: id, Settings: map[string]string{}}
	if x.o.Python != "" {
		h.Settings["python"] = x.o.Python
	}
	if x.o.ToolTimeout != defaultToolTimeout {
		h.Settings["tool-timeout"] = x.o.ToolTimeout.String()
	}
	for _, path := range x.data.Files {
		h.Files = append(h.Files, journal.File{Name: filepath.Base(path), Path: path})
	}
	return h
}

// openFolder makes or finds the run's folder and its journal. Without --output
// a rollout keeps its journal in the cache until it has ended well.
func (x *session) openFolder() (err error) {
	id := x.identity()
	if x.o.Resume != "" {
		x.dir, x.keepDir = x.o.Resume, !isWithin(cachedir.Path("runs"), x.o.Resume)
		config := filepath.Join(x.dir, configName)
		x.journal, err = journal.Open(filesys.OS, filepath.Join(x.dir, journalName), x.header(id), x.notice)
		var changed *journal.ChangedError
		switch {
		case errors.As(err, &changed):
			return exit.UsageError{Err: fmt.Errorf("--resume %s: %s", x.dir, changedWords(changed))}
		case errors.Is(err, journal.ErrOtherRun):
			why := changedSettings(config, x.o.Settings, lasting)
			if why == "" {
				why = x.otherServer()
			}
			return exit.UsageError{Err: fmt.Errorf("%w (%s)", err, why)}
		case errors.Is(err, journal.ErrInUse):
			return exit.Usagef("--resume %s: that run is going on in another process; wait for it, or end it", x.dir)
		case err != nil:
			return err
		}
		sweep(x.dir) // the journal is ours, so nobody else writes here
		settings := x.settings()
		x.moved = keepServer(settings, storedSettings(config))
		return writeSettings(filesys.OS, config, settings) // as it goes on: longer, faster
	}
	x.dir, x.keepDir = x.o.Output, true
	if x.dir == "" {
		name := fmt.Sprintf("%s-%s", fileName(x.data.Name), time.Now().Format("20060102-150405.000"))
		if x.o.Command == "eval" {
			x.dir = filepath.Join("runs", name)
		} else {
			x.dir, x.keepDir = cachedir.Path("runs", name), false
		}
	}
	if x.o.Output != "" {
		if err := emptyFolder(x.dir, x.o.Command); err != nil {
			return err
		}
	}
	mend := "name another by --output DIR"
	if !x.keepDir {
		mend = "name another place by XDG_CACHE_HOME, or the run's own folder by --output DIR"
	}
	if err := makeFolder(filesys.OS, x.dir); err != nil {
		return fmt.Errorf("cannot make the run's folder %s (%w); %s", x.dir, bare(err), mend)
	}
	if x.journal, err = journal.Create(filesys.OS, filepath.Join(x.dir, journalName), x.header(id), x.notice); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("cannot write into the run's folder %s (%w); %s", x.dir, bare(err), mend)
		}
		return err
	}
	if err := writeSettings(filesys.OS, filepath.Join(x.dir, configName), x.settings()); err != nil {
		_ = x.journal.Close() // nothing is in it: the next try finds an empty folder
		_ = os.Remove(filepath.Join(x.dir, journalName))
		x.journal = nil
		return err
	}
	return nil
}

// hasAnswered reports whether the run that is resumed has replies of the server that
// is asked now.
func (x *session) hasAnswered() bool {
	if x.o.Resume == "" {
		return false
	}
	was := storedSettings(filepath.Join(x.o.Resume, configName))
	if was == nil || !sameServer(was, x.o.Settings) {
		return false
	}
	return journal.AnyFinished(filesys.OS, filepath.Join(x.o.Resume, journalName))
}

// serverSettings are the settings that name the server of a run.
var serverSettings = []string{"base-url", envServer}

func sameServer(a, b map[string]any) bool {
	return !slices.ContainsFunc(serverSettings, func(name string) bool { return settingText(a[name]) != settingText(b[name]) })
}

// keepServer sets the server in a run's settings to the one in its stored settings,
// and reports whether it was another.
func keepServer(settings, was map[string]any) bool {
	if was == nil || sameServer(settings, was) {
		return false
	}
	for _, name := range serverSettings {
		delete(settings, name)
		switch v := was[name].(type) {
		case nil:
		case []any: // a list of addresses, as YAML is read
			list := make([]string, len(v))
			for i, address := range v {
				list[i] = fmt.Sprint(address)
			}
			settings[name] = list
		default:
			settings[name] = v
		}
	}
	return true
}

// observeServer stores the server that a resumed run was moved to, once it has
// answered: a wrong address must not be what the next --resume takes. It is nil for
// a run that asks the stored one.
func (x *session) observeServer() telemetry.Observe {
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
	x      *session
	stored atomic.Bool
}

// Event implements engine.Watcher.
func (w *movedRun) Event(_ time.Time, e engine.Event) {
	if end, ok := e.(engine.ModelEnd); !ok || end.Err != nil || !w.stored.CompareAndSwap(false, true) {
		return
	}
	if err := writeSettings(filesys.OS, filepath.Join(w.x.dir, configName), w.x.settings()); err != nil {
		w.x.notice(text.Line(err))
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
	return fmt.Sprintf("--%s is %s and was %s when the run began; resume with that, or begin a new run", c.Name, value(c.Now), value(c.Was))
}

// settings are the run's, as its folder keeps them.
func (x *session) settings() map[string]any {
	all := maps.Clone(x.o.Settings)
	if all == nil {
		all = map[string]any{}
	}
	all[commandKey] = x.o.Command
	return all
}

// commandKey names, in a run's config.yaml, the command whose run it is.
const commandKey = "command"

// makeFolder makes a folder and those above it that are missing, and returns when
// the names of all of them are on disk.
func makeFolder(sys filesys.FS, dir string) error {
	parents := []string{filepath.Dir(dir)}
	for {
		top := parents[len(parents)-1]
		if _, err := os.Stat(top); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(top) == top {
			break
		}
		parents = append(parents, filepath.Dir(top))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := sys.SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// emptyFolder refuses a folder that has something in it: a run writes over no
// file that is not its own.
func emptyFolder(dir, command string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return exit.Usagef("--output %s: cannot be used as a folder (%w); name another", dir, bare(err))
	case len(entries) == 0:
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, journalName)); err == nil {
		if was := commandOf(dir); was != "" {
			command = was
		}
		return exit.Usagef("--output %s: there is a run in that folder; name a new one, or go on with that run: agentcli %s --resume %s", dir, command, text.ShellWord(dir))
	}
	return exit.Usagef("--output %s: that folder is not empty; name a new one", dir)
}

// commandOf is the command whose run is in the folder; "" where it does not say.
func commandOf(dir string) string {
	var was struct {
		Command string `yaml:"command"`
	}
	b, err := os.ReadFile(filepath.Join(dir, configName))
	if err != nil || yaml.Unmarshal(b, &was) != nil {
		return ""
	}
	return was.Command
}

// bare is a file error without the call and the path, which the message names.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// sweep removes what a run that was killed left half written in its folder.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the run will say what is wrong with the folder
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "."+dataName+".") && strings.HasSuffix(name, ".tmp") || name == reportName+".tmp" || name == configName+".tmp" {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
}

// lasting are the settings that the finished trajectories of a run were made
// with; see identity.
var lasting = []string{"model", "token-mode", "tokenizer", "dtype", "parser", "dataset", "split", "level", "shots", "field", "system", "prompt", "reward", "seed",
	"temperature", "top-p", "top-k", "min-p", "max-tokens", "stop", "stop-ids", "tools", "tool", "mcp", "mcp-config", "python-session", "max-turns", "max-prompt-tokens", "max-response-tokens", "max-observation-tokens", "final-turn", "continue-reply"}

// otherServer says what has changed beside the flags: where auto chose how the server
// is asked, most likely what it chose.
func (x *session) otherServer() string {
	if x.o.Model.TokenMode != modeAuto || x.info.Kind != "server" {
		return "no flag differs: the model's files, or what a tool offers, have changed"
	}
	now, was, mend := modeChat, modeCompletions, "that takes token ids"
	if x.info.TokenMode == modeCompletions {
		now, was, mend = modeCompletions, modeChat+", or another tokenizer", "like that one"
	}
	return fmt.Sprintf("--token-mode auto finds %s with this server, which serves %s, and found %s, or another model, when the run began; go on with a server %s, or begin a new run",
		now, x.info.Name, was, mend)
}

// settingText is a setting's value in one line.
func settingText(v any) string {
	b, err := yaml.Marshal(v)
	if v == nil || err != nil {
		return "not set"
	}
	return text.OneLine(string(b))
}

// lastingInLoop are the settings that decide which tasks a loop trains on, which it
// measures, and what stands in them.
var lastingInLoop = []string{"dataset", "split", "level", "shots", "field", "system", "prompt", "seed", "eval-dataset", "eval-split", "holdout"}

// storedSettings are the settings in a run's folder; nil where they cannot be read.
func storedSettings(path string) map[string]any {
	was := map[string]any{}
	b, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(b, &was) != nil {
		return nil
	}
	return was
}

// changedSettings says which of the named settings differ from a run's stored ones; "": none.
func changedSettings(path string, now map[string]any, names []string) string {
	was := storedSettings(path)
	if was == nil {
		return ""
	}
	var list []string
	for _, name := range names {
		if a, b := settingText(was[name]), settingText(now[name]); a != b {
			list = append(list, fmt.Sprintf("--%s is %s and was %s", name, b, a))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, ", ")
}

// writeSettings writes a run's settings as --config reads them. What --resume
// needs is in them whole, so a file with a key in an address is its owner's alone.
func writeSettings(sys filesys.FS, path string, settings map[string]any) error {
	mode := fs.FileMode(0o644)
	if !reflect.DeepEqual(settings, shownSettings(settings)) {
		mode = 0o600
	}
	b, err := settingsYAML(settings)
	if err == nil {
		err = filesys.WriteFile(sys, path, b, mode)
	}
	if err != nil {
		return fmt.Errorf("cannot write the run's settings: %w", err)
	}
	return nil
}

// fileName makes a dataset's name fit for a folder.
func fileName(s string) string {
	s = strings.TrimSuffix(filepath.Base(s), filepath.Ext(s))
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r < ' ' || r == ':' {
			return '-'
		}
		return r
	}, s)
}
