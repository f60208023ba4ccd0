package main

import (
	"os"
	"strings"
	"testing"
)

// TestSettingsOfARunWithoutEffectAreRefused: what is for a server's run, or for a program
// that is asked, is refused without one, before anything is opened.
func TestSettingsOfARunWithoutEffectAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("q.jsonl", []byte(`{"question":"x","answer":"7"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args string) (string, int) {
		_, log, code := run(t, strings.Fields(args+" -d q.jsonl --reward exact --base-url http://127.0.0.1:1/v1 --model m")...)
		return log, code
	}
	for args, want := range map[string]string{ // the settings that the line names
		"rollout -o f --token x":                    "--token --serve",
		"rollout -o f --allow-media-host x":         "--allow-media-host --serve",
		"rollout -o f --allow-media-path .":         "--allow-media-path --serve",
		"rollout -o f --sync-through http://x":      "--sync-through --serve",
		"rollout -o f --scheduler-timeout 5s":       "--scheduler-timeout",
		"eval --scheduler-timeout 5s":               "--scheduler-timeout",
		"eval --scheduler-timeout 5s --scheduler x": `"x"`,
		"rollout -o f --gym-env frozen_lake":        "--gym-env frozen_lake --scheduler gym_scheduler",
		"eval --scheduler search-r1 --gym-env x":    "--gym-env --scheduler gym_scheduler openenv_scheduler search-r1",
		"eval --scheduler-timeout 5s --scheduler " +
			"gym_scheduler --gym-env frozen_lake": "--scheduler-timeout",
	} {
		log, code := run(args)
		for _, name := range strings.Fields(want) {
			if code != exitUsage || !strings.Contains(log, name) || strings.Count(log, "\n") != 1 {
				t.Errorf("%s: exit %d, %s is not named: %s", args, code, name, log)
			}
		}
	}
	t.Setenv(tokenVariable, "of the shell") // which other commands are for
	for _, args := range []string{"rollout -o f", "rollout -o f --scheduler-timeout 1m",
		"eval --scheduler-timeout 5s --scheduler http://127.0.0.1:1/"} {
		if log, code := run(args); strings.Contains(log, "effect") || strings.Contains(log, "--token") {
			t.Errorf("%s: exit %d: %s", args, code, log)
		}
	}
}
