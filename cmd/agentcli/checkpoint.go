package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"agentcli/trainer"
)

// position is where an interrupted run stands.
type position struct {
	Step    int            `json:"step"`
	Model   string         `json:"model"` // the one that the run started from
	DType   string         `json:"dtype"` // of the computation
	Ref     string         `json:"ref"`   // "": the model itself, or none
	Critic  string         `json:"critic,omitempty"`
	Teacher string         `json:"teacher,omitempty"`
	Config  trainer.Config `json:"config"` // as far as it decides the outcome
}

// decisive leaves out of a configuration what may change between an
// interruption and its resumption.
func decisive(c trainer.Config) trainer.Config {
	c.MicroTokens, c.SaveEvery = 0, 0
	return c
}

// readPosition says where the run in dir stands: zero where dir is "" or the run
// has no checkpoint yet.
func readPosition(dir string) (position, error) {
	var p position
	if dir == "" {
		return p, nil
	}
	final := filepath.Join(dir, checkpointName)
	path := filepath.Join(final, positionName)
	if _, err := os.Stat(final); os.IsNotExist(err) {
		// Ended between the two renames of saveCheckpoint: the new one is whole.
		if err := os.Rename(final+".new", final); err != nil && !os.IsNotExist(err) {
			return p, err
		}
	}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err == nil {
			return p, usagef("--resume %s: that run is finished; its model is in the folder, so train on from it with --model %s", dir, dir)
		}
		return p, nil // interrupted before its first step: start over
	}
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// saveCheckpoint writes a whole new checkpoint beside the old one and then
// takes its place.
func saveCheckpoint(m *trainModels, f *trainer.Frozen, dir string, p position) error {
	final := filepath.Join(dir, checkpointName)
	fresh, old := final+".new", final+".old"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	if err := m.actor.SaveState(filepath.Join(fresh, stateName)); err != nil {
		return err
	}
	if m.critic != nil {
		if err := m.critic.SaveState(filepath.Join(fresh, criticStateName)); err != nil {
			return err
		}
	}
	if err := f.WriteFile(filepath.Join(fresh, frozenName)); err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, positionName), data, fileMode); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(final, old); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Rename(fresh, final); err != nil {
		return err
	}
	return os.RemoveAll(old)
}
