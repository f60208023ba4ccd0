package main

import (
	"os"
	"path/filepath"

	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/internal/text"

	"github.com/urfave/cli/v2"
)

// runOptionsOf are the options of eval and rollout, in loop.Rollout: by the flags, --config,
// and the folder that --resume names.
func runOptionsOf(c *cli.Context) (*options, error) {
	if err := noArguments(c); err != nil {
		return nil, err
	}
	if dir := c.String("resume"); dir != "" {
		if c.String("config") != "" {
			return nil, exit.Usagef("--resume takes the settings of the run in its folder; leave --config out")
		}
		if err := checkResumed(c, dir); err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(dir, rundir.JournalFile)); err != nil {
			return nil, exit.Usagef("--resume %s: there is no %s in that folder, so it holds no run of %s", dir, rundir.JournalFile, c.Command.Name)
		}
		if stored := rundir.ReadSettings(filepath.Join(dir, rundir.ConfigFile)); stored["dataset"] != nil && c.String("serve") != "" {
			return nil, exit.Usagef("--resume %s: that run takes its rows from a dataset; leave --serve out", dir)
		}
		if err := applyConfig(c, filepath.Join(dir, rundir.ConfigFile)); err != nil {
			return nil, err
		}
	}
	if err := applyConfig(c, c.String("config")); err != nil {
		return nil, err
	}
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	return o, finishRun(c, o)
}

// checkResumed refuses what --resume names where it holds no run of the command.
func checkResumed(c *cli.Context, dir string) error {
	st, err := os.Stat(dir)
	switch was := rundir.CommandOf(dir); {
	case err != nil:
		return exit.Usagef("--resume %s: there is no such folder", dir)
	case !st.IsDir():
		return exit.Usagef("--resume %s: that is a file; name the folder of a run", dir)
	case !rundir.Exists(filepath.Join(dir, rundir.ConfigFile)):
		return exit.Usagef("--resume %s: there is no %s in that folder, so it holds no run", dir, rundir.ConfigFile)
	case was != "" && was != c.Command.Name:
		return exit.Usagef("--resume %s: that is a run of %s: agentcli %s --resume %s", dir, was, was, text.ShellWord(dir))
	}
	return nil
}

// finishRun completes loop.Rollout by what no flag says, and checks it.
func finishRun(c *cli.Context, o *options) error {
	run := &o.loop.Rollout
	run.Command, run.Settings, run.Fixed = c.Command.Name, keptSettings(c), fixedNames(commandOf(c))
	if dir := o.serve.AllowMediaPath; dir != "" { // no other folder is opened where --resume is given elsewhere
		run.Settings["allow-media-path"] = rundir.Absolute(dir)
	}
	run.Model.Backend, run.Model.APIKey = backendOf(c), os.Getenv("OPENAI_API_KEY")
	m := run.Model
	if err := models.CheckComputation(models.LocalOptions{DType: m.DType, Device: m.Device, Threads: m.Threads, MaxContext: m.MaxContext,
		KVCache: m.KVCache, KVHost: m.KVHost}); err != nil {
		return err
	}
	return run.Validate()
}
