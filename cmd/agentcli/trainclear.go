package main

import (
	"os"
	"path/filepath"

	"agentcli/trainer/metrics"
)

// clearOutput takes away what a run that made no step has left in its folder, and
// the folder if that was all: the corrected command takes the same name.
func clearOutput(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*")) //nolint:errcheck // the pattern is good
	for _, f := range append(logs, filepath.Join(dir, configName), filepath.Join(dir, trainFilesName), filepath.Join(dir, metrics.FileName)) {
		_ = os.Remove(f)
	}
	_ = os.Remove(dir)
}
