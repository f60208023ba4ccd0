//go:build libtorch

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/parquet"
	"agentcli/trainer"
	"agentcli/traj"
	"agentcli/weights"
)

const tinyModel = "../../policy/testdata/tiny-llama"

// tinyRollouts is a file of four groups of four for the tiny model.
func tinyRollouts(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "traj.parquet")
	w, err := parquet.CreateFile(path, parquet.Metadata{Run: json.RawMessage(`{}`)}, parquet.WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for g := range 4 {
		for k := range 4 {
			s := traj.Sequence{}
			for i := range 6 {
				s.TokenIDs = append(s.TokenIDs, int32(5+g+i*(1+k*i/3)))
				s.LossMask = append(s.LossMask, i >= 3)
				s.Logprobs = append(s.Logprobs, traj.Logprob(-4))
			}
			reward := float64(k % 2)
			if err := w.Write(&traj.Trajectory{ID: fmt.Sprintf("g%d#%d", g, k), GroupID: fmt.Sprint("g", g), Task: traj.Task{ID: fmt.Sprint("g", g)},
				Policy: tinyModel, Reward: &reward, Termination: traj.Answered, Sequences: []traj.Sequence{s}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func tinyOptions(t *testing.T, file, output string) trainOptions {
	c := trainer.DefaultConfig()
	c.Minibatch, c.Epochs, c.LR, c.KLCoef = 4, 2, 1e-3, .1
	return trainOptions{Files: []string{file}, Model: tinyModel, Open: trainableOptions{DType: "float32", Threads: 1},
		Config: c, Output: output, Save: weights.F32, Settings: map[string]any{}}
}

func TestResumedTrainingWritesTheSameModel(t *testing.T) {
	dir := t.TempDir()
	file := tinyRollouts(t, dir)
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	var out, log bytes.Buffer
	s := streams{out: &out, err: &log}
	if err := runTrain(context.Background(), tinyOptions(t, file, whole), s); err != nil {
		t.Fatal(err)
	}
	if out.String() != whole+"\n" {
		t.Errorf("stdout holds %q", out.String())
	}
	stops := 0
	for o := tinyOptions(t, file, parts); ; o.Resume = parts {
		if stops > 4 {
			t.Fatal("it never ends")
		}
		ctx, cancel := context.WithCancel(context.Background())
		left := 3
		err := runTrain(ctx, o, streams{out: &out, err: stopAfter{&left, cancel}})
		cancel()
		if err == nil {
			break
		}
		var i interruptedError
		if !errors.As(err, &i) || !strings.Contains(err.Error(), "--resume "+parts) {
			t.Fatal(err)
		}
		stops++
	}
	if stops < 2 {
		t.Fatalf("interrupted %d times", stops)
	}
	for _, name := range []string{"model.safetensors", "config.json"} {
		a, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(parts, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s of the interrupted run differs", name)
		}
	}
	lines, err := os.ReadFile(filepath.Join(parts, "metrics.jsonl"))
	if err != nil || bytes.Count(lines, []byte("\n")) != 8 {
		t.Errorf("metrics.jsonl: %v\n%s", err, lines)
	}

	// A finished run is not begun again over its own model.
	o := tinyOptions(t, file, parts)
	o.Resume = parts
	if err := runTrain(context.Background(), o, s); err == nil || !strings.Contains(err.Error(), "finished") {
		t.Errorf("resuming a finished run: %v", err)
	}
}

// stopAfter is a stderr that interrupts the run after some steps are reported.
type stopAfter struct {
	left *int
	stop func()
}

func (w stopAfter) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("agentcli: step ")) {
		if *w.left--; *w.left == 0 {
			w.stop()
		}
	}
	return len(b), nil
}

func TestResumeRefusesOtherSettings(t *testing.T) {
	dir := t.TempDir()
	file := tinyRollouts(t, dir)
	out := filepath.Join(dir, "out")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := 1
	if err := runTrain(ctx, tinyOptions(t, file, out), streams{out: &bytes.Buffer{}, err: stopAfter{&left, cancel}}); err == nil {
		t.Fatal("not interrupted")
	}
	// Ended between the two renames of a checkpoint: the new one counts.
	if err := os.Rename(filepath.Join(out, checkpointName), filepath.Join(out, checkpointName+".new")); err != nil {
		t.Fatal(err)
	}
	o := tinyOptions(t, file, out)
	o.Resume, o.Config.LR = out, 1
	var usage usageError
	if err := runTrain(context.Background(), o, streams{out: &bytes.Buffer{}, err: &bytes.Buffer{}}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "settings") {
		t.Errorf("another learning rate: %v", err)
	}
	o.Config.LR = tinyOptions(t, file, out).Config.LR
	o.Config.MicroTokens = 100 // may change: the machine's memory is not the run's
	if err := runTrain(context.Background(), o, streams{out: &bytes.Buffer{}, err: &bytes.Buffer{}}); err != nil {
		t.Error(err)
	}
}

func TestTrainRefusesInOneLine(t *testing.T) {
	dir := t.TempDir()
	file := tinyRollouts(t, dir)
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(taken, "config.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*trainOptions){
		"no such model folder": func(o *trainOptions) { o.Model = filepath.Join(dir, "none") },
		"none.parquet":         func(o *trainOptions) { o.Files = []string{filepath.Join(dir, "none.parquet")} },
		"take another folder":  func(o *trainOptions) { o.Output = taken },
		"--ref":                func(o *trainOptions) { o.Ref = filepath.Join(dir, "none") },
		"folder of the model":  func(o *trainOptions) { o.Output = tinyModel },
		"config.json":          func(o *trainOptions) { o.Model = dir },
	} {
		o := tinyOptions(t, file, filepath.Join(dir, "out"))
		change(&o)
		err := runTrain(context.Background(), o, streams{out: &bytes.Buffer{}, err: &bytes.Buffer{}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
