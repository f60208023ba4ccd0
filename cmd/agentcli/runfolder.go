package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentcli/engine"
	"agentcli/internal/cachedir"
	"agentcli/internal/text"

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
	info.BaseURL = "" // a server may move
	b, err := json.Marshal(map[string]any{
		"model": info, "parser": x.o.Model.Parser, "dataset": x.o.Dataset, "split": x.o.Split, "level": x.o.Level, "shots": x.o.Shots,
		"fields": x.o.Fields, "system": x.o.System, "prompt": x.o.Prompt, "reward": x.reward, "seed": x.o.Seed, "sampling": x.o.Sampling,
		"tools": x.o.Tools, "max_turns": x.o.MaxTurns, "max_prompt": x.o.MaxPromptTokens, "max_response": x.o.MaxResponseTokens,
	})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// openFolder makes or finds the run's folder and its journal. Without --output
// a rollout keeps its journal in the cache until it has ended well.
func (x *session) openFolder() (err error) {
	id := x.identity()
	if x.o.Resume != "" {
		x.dir, x.keepDir = x.o.Resume, !isWithin(cachedir.Path("runs"), x.o.Resume)
		config := filepath.Join(x.dir, configName)
		x.journal, err = engine.OpenJournal(filepath.Join(x.dir, journalName), id, x.notice)
		switch {
		case errors.Is(err, engine.ErrOtherRun):
			return usageError{fmt.Errorf("%w%s", err, changedSettings(config, x.o.Settings))}
		case err != nil:
			return err
		}
		sweep(x.dir)                               // the journal is ours, so nobody else writes here
		return writeSettings(config, x.o.Settings) // as it goes on: longer, elsewhere, faster
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
	if err := os.MkdirAll(x.dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the run's folder: %w", err)
	}
	if x.journal, err = engine.CreateJournal(filepath.Join(x.dir, journalName), id); err != nil {
		return err
	}
	return writeSettings(filepath.Join(x.dir, configName), x.o.Settings)
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
var lasting = []string{"model", "dtype", "parser", "dataset", "split", "level", "shots", "field", "system", "prompt", "reward", "seed",
	"temperature", "top-p", "top-k", "min-p", "max-tokens", "stop", "stop-ids", "tools", "max-turns", "max-prompt-tokens", "max-response-tokens"}

// changedSettings names what differs from a run's stored settings and must not.
func changedSettings(path string, now map[string]any) string {
	was := map[string]any{}
	b, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(b, &was) != nil {
		return ""
	}
	text := func(v any) string {
		b, err := yaml.Marshal(v)
		if v == nil || err != nil {
			return "not set"
		}
		return text.OneLine(string(b))
	}
	var list []string
	for _, name := range lasting {
		if a, b := text(was[name]), text(now[name]); a != b {
			list = append(list, fmt.Sprintf("--%s is %s and was %s", name, b, a))
		}
	}
	if len(list) == 0 {
		return " (no flag differs: the model's files have changed)"
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// writeSettings writes a run's settings as --config reads them.
func writeSettings(path string, settings map[string]any) error {
	b, err := yaml.Marshal(settings)
	if err == nil {
		err = os.WriteFile(path+".tmp", b, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
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
