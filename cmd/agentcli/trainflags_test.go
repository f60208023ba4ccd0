package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"agentcli/trainer"

	"github.com/urfave/cli/v2"
)

// settingsFrom are a training run's settings by its command line.
func settingsFrom(t *testing.T, args ...string) (o trainOptions) {
	t.Helper()
	app := newApp(streams{out: &bytes.Buffer{}, err: &bytes.Buffer{}})
	find(app.Commands, "train").Action = func(c *cli.Context) (err error) {
		if err = applyConfig(c, c.String("config")); err == nil {
			if err = applyPreset(c); err == nil {
				o, err = trainSettingsOf(c)
			}
		}
		return err
	}
	if err := app.Run(append([]string{"agentcli", "train"}, args...)); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	o.Settings = nil // what was given, not what it means
	return o
}

func TestPrintConfigReadsBackAsTheSameSettings(t *testing.T) {
	cases := [][]string{
		{},
		{"--ptx", "text.jsonl", "--ptx-coef", ".2", "--threads", "3", "--save-every", "7", "--keep", "2", "--force", "--reward", "exec:a b # c", "--seed", "-4"},
		{"--model", "m", "--ref", "http://h/v1#n", "--kl-coef", ".1", "--dtype", "bf16", "--device", "cuda:1", "--save-dtype", "bf16", "--skip-bad-steps"},
		{"--lora-rank", "4", "--lora-alpha", "3.5", "--lora-targets", "q,v", "--lora-dropout", ".1", "--grad-checkpoint", "--deterministic"},
		{"--algo", "prm", "--prm-token", "\n\n", "--prm-tokens", ""},
		{"--advantage", "gdpo", "--part-weights", "1", "--length-penalty", ".2,0,0", "--betas", ".8,.99", "--lr", "3e-07"},
	}
	for _, algo := range []string{trainer.AlgoGRPO, trainer.AlgoPPO, trainer.AlgoSFT, trainer.AlgoDPO, trainer.AlgoRM, trainer.AlgoPRM} {
		cases = append(cases, []string{"--algo", algo})
	}
	for _, name := range slices.Sorted(maps.Keys(presets)) {
		cases = append(cases, []string{"--preset", name})
	}
	for _, args := range cases {
		var out, log bytes.Buffer
		if code := execute(t.Context(), append([]string{"agentcli", "train", "--print-config"}, args...), streams{out: &out, err: &log}); code != 0 {
			t.Errorf("%v: exit %d: %s", args, code, log.String())
			continue
		}
		file := filepath.Join(t.TempDir(), "train.yaml")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if want, got := settingsFrom(t, args...), settingsFrom(t, "--config", file); !reflect.DeepEqual(want, got) {
			t.Errorf("%v:\n%+v reads back as\n%+v\n%s", args, want, got, out.String())
		}
	}
}
