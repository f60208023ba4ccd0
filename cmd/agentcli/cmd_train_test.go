package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/train"
	"agentcli/app/train/traintest"
	"agentcli/internal/exit"
	"agentcli/model/weights"
	"agentcli/trainer"

	"agentcli/model/chat"
	"github.com/urfave/cli/v2"
)

// A resumed run reads the files that it began with, though more match the
// pattern by now, and takes no other settings.
func TestResumeKeepsFilesAndSettings(t *testing.T) {
	dir := t.TempDir()
	traintest.Rollouts(t, dir)
	model, err := filepath.Abs(traintest.Model)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := 1
	begin := []string{"agentcli", "train", "*.parquet", "-m", model, "--minibatch", "4", "--dtype",
		"float32", "--threads", "1", "--kl-coef", "0.1", "-o", "out"}
	if code := executeWith(ctx, begin, console.Streams{Out: &bytes.Buffer{}, Err: traintest.StopAfter{Left: &left, Stop: cancel}},
		testBackend); code != exitInterrupted {
		t.Fatalf("exit code %d", code)
	}
	if err := os.Rename(traintest.Rollouts(t, t.TempDir()), "more.parquet"); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{"--lr 1", "--dtype bfloat16", "--ref " + model, "--kl-coef 0.2", "--epochs 2", "--model other"} {
		var log bytes.Buffer
		args := append([]string{"agentcli", "train", "--resume", "out"}, strings.Fields(change)...)
		if code := executeWith(context.Background(), args, console.Streams{Out: &bytes.Buffer{}, Err: &log}, testBackend); code != exitUsage ||
			!strings.Contains(log.String(), strings.Fields(change)[0]) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", change, code, log.String())
		}
	}
	// As a library the same: nobody looked at the flags.
	o := train.Options{Backend: testBackend, Files: []string{"traj.parquet"}, Resume: "out", Model: model, Config: trainer.DefaultConfig(),
		Open: models.TrainableOptions{DType: "float32", Threads: 1}, Output: "out", Keep: 1, Save: weights.F32, Settings: map[string]any{}}
	o.Config.Minibatch, o.Config.KLCoef = 4, .1
	for _, change := range []func(*train.Options){func(o *train.Options) { o.Open.DType = "bf16" }, func(o *train.Options) { o.Ref = model }} {
		changed := o
		change(&changed)
		var usage exit.UsageError
		if err := train.Run(context.Background(), changed, console.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}); !errors.As(err, &usage) {
			t.Error(err)
		}
	}
	t.Chdir(t.TempDir()) // elsewhere, too, and with what does not matter changed
	var log bytes.Buffer
	if code := executeWith(context.Background(),
		[]string{"agentcli", "train", "--resume", filepath.Join(dir, "out"), "--micro-tokens", "50", "--save-dtype", "bf16", "--epochs=1"},
		console.Streams{Out: &bytes.Buffer{}, Err: &log}, testBackend); code != exitUsage { // one that was not given at first
		t.Errorf("exit code %d: %s", code, log.String())
	}
	log.Reset()
	if code := executeWith(context.Background(),
		[]string{"agentcli", "train", "--resume", filepath.Join(dir, "out"), "--micro-tokens", "50",
			"--save-dtype", "bf16", "--minibatch", "4", "--log-format", "json"},
		console.Streams{Out: &bytes.Buffer{}, Err: &log}, testBackend); code != exitDone {
		t.Fatalf("exit code %d: %s", code, log.String())
	}
	steps := 0
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil || o["msg"] == "" {
			t.Errorf("%q is no object: %v", line, err)
		}
		if _, ok := o["actor/pg_loss"]; ok {
			steps++
		}
	}
	if steps != 3 { // the first was before the interruption
		t.Errorf("%d steps as objects in %s", steps, log.String())
	}
	if !strings.Contains(log.String(), "on 16 trajectories") || strings.Contains(log.String(), "more.parquet") {
		t.Error(log.String())
	}
}

func TestEveryFlagOfTrainSaysWhatItIs(t *testing.T) {
	for _, f := range trainCommand().Flags {
		if d, ok := f.(cli.DocGenerationFlag); !ok || strings.TrimSpace(d.GetUsage()) == "" {
			t.Errorf("--%s has no description", f.Names()[0])
		}
	}
}

func TestLogprobsOfIdsThatAreNone(t *testing.T) {
	for _, in := range []string{`{"token_ids":[99999]}`, `{"token_ids":[1,99999]}`, `{"token_ids":[-1]}`, `{"token_ids":[264,1]}`} {
		var log, out bytes.Buffer
		code := executeWith(context.Background(), []string{"agentcli", "model", "logprobs", traintest.Model},
			console.Streams{In: strings.NewReader(`{"token_ids":[263]}` + "\n" + in), Out: &out, Err: &log}, testBackend)
		if code != exitFailed || out.String() != `{"logprobs":[]}`+"\n" ||
			!strings.Contains(log.String(), "stdin: line 2: token_ids: id ") || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: %d %s%s", in, code, out.String(), log.String())
		}
	}
}

func TestTheTemplateThatIsNamedIsTheOneThatRowsAreCheckedAgainst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named := filepath.Join(dir, "t.jinja")
	if err := os.WriteFile(named, []byte(toolless), 0o600); err != nil {
		t.Fatal(err)
	}
	file := traintest.RolloutsOf(t, filepath.Join(dir, "traj.parquet"),
		fmt.Sprintf(`{"model":{"template_hash":%q}}`, models.HashText(toolless)))
	for i, c := range []struct {
		template []string
		want     error
	}{
		{nil, train.ErrOtherTemplate},
		{[]string{"--chat-template", "chatml"}, train.ErrOtherTemplate},
		{[]string{"--chat-template", filepath.Join(dir, "none.jinja")}, chat.ErrNoFormat},
		{[]string{"--chat-template", named}, nil},
	} {
		var log bytes.Buffer
		_, err := runApp(t, t.Context(), &log, append([]string{"agentcli", "train", file, "--minibatch", "0", "--dtype", "float32",
			"--threads", "1", "--output", filepath.Join(dir, strconv.Itoa(i))}, c.template...)...)
		if !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.template, err, c.want)
		}
	}
}

func TestAFileOfAnotherChatTemplateIsRefused(t *testing.T) {
	t.Parallel()
	m, err := testBackend.OpenTrainable(traintest.Model, models.TrainableOptions{DType: "float32", Threads: 1, Frozen: true})
	if err != nil {
		t.Fatal(err)
	}
	own := models.HashText(m.ChatTemplate())
	m.Close()
	for _, algo := range []string{"grpo", "sft", "dpo"} {
		for hash, wrong := range map[string]bool{"": false, own: false, "0123456789abcdef": true} {
			dir := t.TempDir()
			file := traintest.RolloutsOf(t, filepath.Join(dir, "traj.parquet"), fmt.Sprintf(`{"model":{"template_hash":%q}}`, hash))
			args := []string{"agentcli", "train", file, "--algo", algo, "--minibatch", "0", "--dtype", "float32", "--threads", "1"}
			var log bytes.Buffer
			_, err := runApp(t, t.Context(), &log, append(args, "--output", filepath.Join(dir, "a"))...)
			if (err != nil) != wrong || wrong && (!errors.Is(err, train.ErrOtherTemplate) ||
				!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--force") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s, template %q: %v", algo, hash, err)
			}
			if !wrong {
				continue
			}
			if _, err := runApp(t, t.Context(), &log, append(args, "--force", "--output", filepath.Join(dir, "b"))...); err != nil ||
				strings.Count(log.String(), "(--force)") != 1 || !strings.Contains(log.String(), file+" ") {
				t.Errorf("%s with --force: %v: %s", algo, err, log.String())
			}
		}
	}
}
