package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentcli/app/console"
	"agentcli/app/models"
	"agentcli/app/rundir"
	"agentcli/app/train"
	"agentcli/llm/llmtest"
	"agentcli/trainer/algo"

	"github.com/urfave/cli/v2"
)

// fourCommands are those whose flags are all of the table.
var fourCommands = []string{"eval", "rollout", "train", "loop"}

// A flag without a row would be no setting: not in config.yaml, not in docs/flags.md, and
// free to change on --resume.
func TestEveryFlagIsARow(t *testing.T) {
	for _, name := range fourCommands {
		rows := map[string]bool{"help": true}
		for _, s := range newOptions().rows(commandNames[name]) {
			if rows[s.name] {
				t.Errorf("%s --%s has two rows", name, s.name)
			}
			rows[s.name] = true
		}
		for _, f := range find(newApp(console.Streams{}, models.NoBackend{}).Commands, name).Flags {
			if !rows[f.Names()[0]] {
				t.Errorf("%s --%s has no row", name, f.Names()[0])
			}
		}
	}
}

// What a row needs: a help, a group that the help shows, somewhere for its value to go, and
// for each command one answer to whether a resumed run may change it.
func TestEveryRowIsWhole(t *testing.T) {
	for _, s := range newOptions().table() {
		if s.help == "" || !slices.Contains(groups, s.group) || s.value == nil && s.field == nil || s.field == nil && s.read == nil {
			t.Errorf("--%s lacks a help, a group, a type, or where its value goes", s.name)
		}
		if all := s.fixed + s.free + s.once + s.refused; all != s.commands() {
			t.Errorf("--%s: a command is in two of fixed, free, once and refused", s.name)
		}
		if s.basic&^(s.commands()&^s.refused) != 0 || s.commands() == 0 {
			t.Errorf("--%s is in the help of a command that does not have it", s.name)
		}
		for _, v := range s.but {
			if v.in&^s.commands() != 0 {
				t.Errorf("--%s has words for a command that does not have it", s.name)
			}
		}
		for _, p := range s.fields() {
			if reflect.TypeOf(p).Kind() != reflect.Pointer {
				t.Errorf("--%s sets a copy of %T", s.name, p)
			}
		}
	}
}

// --help is what people use; --help-all is all, and so is what --help counts.
func TestHelpListsWhatPeopleUse(t *testing.T) {
	listed := func(text string) (n int) {
		_, text, _ = strings.Cut(text, "\nOPTIONS:")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "   --") {
				n++
			}
		}
		return n
	}
	for _, name := range fourCommands {
		short, _, code := run(t, name, "--help")
		long, _, longCode := run(t, name, "--help-all")
		if code != exitDone || longCode != exitDone {
			t.Fatalf("%s: exit %d and %d", name, code, longCode)
		}
		if n := listed(short); n < 20 || n > 32 {
			t.Errorf("%s --help lists %d options, want about 25", name, n)
		}
		if more := fmt.Sprintf("%d more options: agentcli %s --help-all\n", listed(long)-listed(short), name); !strings.HasSuffix(short, more) {
			t.Errorf("%s --help does not end with %q", name, more)
		}
		want := 1 // --help itself
		for _, s := range newOptions().rows(commandNames[name]) {
			if !s.hidden && s.refused&commandNames[name] == 0 {
				want++
			}
		}
		if n := listed(long); n != want {
			t.Errorf("%s --help-all lists %d options, want %d", name, n, want)
		}
		for _, text := range []string{short, long} {
			for line := range strings.Lines(text) {
				if strings.Count(line, "(") != strings.Count(line, ")") {
					t.Errorf("%s: half a parenthesis: %s", name, line)
				}
			}
		}
	}
}

// Second names of losses and advantages work, and no help lists them.
func TestAliasesWorkAndAreNotListed(t *testing.T) {
	help, _, _ := run(t, "train", "--help-all")
	for flag, aliases := range map[string][]string{"--loss": {"gpg", "ipo"}, "--advantage": {"reinforce"}, "--rm-loss": {"log-exp"}} {
		_, line, _ := strings.Cut(help, "   "+flag+" value")
		line, _, _ = strings.Cut(line, "\n")
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" ,;()\"", r) })
		for _, alias := range aliases {
			if len(words) < 3 || slices.Contains(words, alias) {
				t.Errorf("the help of %s lists %s: %s", flag, alias, line)
			}
			args := []string{"train", "--print-config", flag, alias}
			if flag == "--rm-loss" {
				args = append(args, "--algo", "rm")
			}
			if _, log, code := run(t, args...); code != exitDone {
				t.Errorf("%s %s: exit %d: %s", flag, alias, code, log)
			}
		}
	}
	if l, _ := algo.LossByName("ipo"); l.Name != "dppo-two-sided" || !strings.Contains(help, "dppo-two-sided") {
		t.Error("--loss ipo has no other name")
	}
}

// two are different values of a setting, as flags.
func two(s row) (a, b []string) {
	flag := "--" + s.name
	switch s.initial().(type) {
	case bool:
		return []string{flag}, []string{flag + "=false"}
	case int, int64:
		return []string{flag, "3"}, []string{flag, "4"}
	case float64:
		return []string{flag, ".25"}, []string{flag, "1e-05"}
	case time.Duration:
		return []string{flag, "3m"}, []string{flag, "4m"}
	case []string:
		return []string{flag, "a", flag, "b"}, []string{flag, "a"}
	}
	return []string{flag, "true"}, []string{flag, "a: b"}
}

// on runs an action with the context of a command line.
func on(t *testing.T, action func(c *cli.Context) error, command string, args ...string) error {
	t.Helper()
	app := newApp(console.Streams{}, models.NoBackend{})
	find(app.Commands, command).Action = action
	return app.Run(append([]string{"agentcli", command}, args...))
}

// A resumed run keeps its fixed settings and may change its free ones, by the table alone.
func TestResumeRefusesWhatIsFixed(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "")
	for _, name := range []string{"train", "loop"} {
		command := commandNames[name]
		var kept []row
		var began []string
		for _, s := range newOptions().rows(command) {
			if (s.fixed|s.free)&command != 0 {
				a, _ := two(s)
				kept, began = append(kept, s), append(began, a...)
			}
		}
		dir := t.TempDir()
		err := on(t, func(c *cli.Context) error {
			all := keptSettings(c)
			all[rundir.CommandKey] = name
			text, err := rundir.MarshalSettings(all)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, rundir.ConfigFile), text, 0o600)
		}, name, began...)
		if err != nil || len(kept) < 60 {
			t.Fatalf("%s: %d settings: %v", name, len(kept), err)
		}
		resume := func(args ...string) error {
			return on(t, func(c *cli.Context) error { return resumeSettings(c, dir) }, name, args...)
		}
		if err := resume(began...); err != nil {
			t.Errorf("%s with the settings that it began with: %v", name, err)
		}
		for _, s := range kept {
			_, b := two(s)
			err := resume(b...)
			if refused := exitCode(err) == exitUsage; refused != (s.fixed&command != 0) || refused &&
				!strings.Contains(err.Error(), "--"+s.name+" ") {
				t.Errorf("%s --resume %v: %v", name, b, err)
			}
		}
	}
}

// What a checkpoint holds a resumed run to is what the table calls fixed.
func TestCheckpointsHoldToWhatIsFixed(t *testing.T) {
	o := newOptions()
	o.config().OffPolicy = algo.NewCorrection(algo.TIS)
	o.loop.Train.Open.LoRA.Rank = 4
	was := o.loop.Train
	same := func() bool {
		now := o.loop.Train
		return train.FixedPart(now.Config) == train.FixedPart(was.Config) && train.AdapterText(now) == train.AdapterText(was)
	}
	config := reflect.ValueOf(o.config()).Elem()
	adapters := reflect.ValueOf(&o.loop.Train.Open.LoRA).Elem()
	inside := func(p any, of reflect.Value) bool {
		at, from := reflect.ValueOf(p).Pointer(), of.UnsafeAddr()
		return at >= from && at < from+of.Type().Size()
	}
	n := 0
	for _, s := range o.table() {
		for _, p := range s.fields() {
			if !inside(p, config) && !inside(p, adapters) {
				continue
			}
			n++
			v := reflect.ValueOf(p).Elem()
			before := reflect.New(v.Type()).Elem()
			before.Set(v)
			switch v.Kind() {
			case reflect.Bool:
				v.SetBool(!v.Bool())
			case reflect.Int, reflect.Int64:
				v.SetInt(v.Int() + 1)
			case reflect.Float64:
				v.SetFloat(v.Float() + 1)
			case reflect.String:
				v.SetString(v.String() + "x")
			}
			if fixed := s.fixed&forTrain != 0; same() == fixed {
				t.Errorf("--%s: fixed %v, and to a checkpoint the same %v", s.name, fixed, same())
			}
			v.Set(before)
		}
	}
	if n < 55 || !same() {
		t.Errorf("%d fields looked at", n)
	}
}

// A number that makes no sense is refused by some check: NaN, or a count below 0.
func TestNumbersAreChecked(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "")
	anything := []string{"seed"}
	beside := map[string][]string{"off-policy-low": {"--off-policy", "tis"}, "off-policy-high": {"--off-policy", "tis"},
		"ptx-coef": {"--ptx", "f"}}
	for _, name := range []string{"eval", "train", "loop"} {
		for _, s := range newOptions().rows(commandNames[name]) {
			value := ""
			switch s.initial().(type) {
			case float64:
				value = fmt.Sprint(math.NaN())
			case int, int64:
				value = "-7"
			case time.Duration:
				value = "-1s"
			}
			if value == "" || slices.Contains(anything, s.name) || s.refused&commandNames[name] != 0 {
				continue
			}
			args := append([]string{"--" + s.name, value}, beside[s.name]...)
			if name == "eval" {
				args = append(args, "-d", filepath.Join(t.TempDir(), "none.jsonl"))
			}
			err := on(t, func(c *cli.Context) error {
				var err error
				switch name {
				case "eval":
					_, err = runOptionsOf(c)
				case "train":
					_, err = parseTrainOptions(c)
				default:
					_, err = loopOptionsOf(c)
				}
				return err
			}, name, args...)
			if err == nil {
				t.Errorf("%s --%s %s is taken", name, s.name, value)
			}
		}
	}
}

// The settings that may name a server are those whose values are redacted where files are
// handed on.
func TestAddressesAreRedacted(t *testing.T) {
	const secret = "http://me:secret@host/v1"
	for _, s := range newOptions().table() {
		var v any = secret
		switch s.initial().(type) {
		case string:
		case []string:
			v = []string{secret}
		default:
			continue
		}
		out := fmt.Sprint(rundir.RedactSettings(map[string]any{s.name: v})[s.name])
		if redacted := !strings.Contains(out, "secret"); redacted != (s.kind&address != 0) {
			t.Errorf("--%s: redacted %v, an address %v", s.name, redacted, s.kind&address != 0)
		}
	}
}

// A preset sets settings that there are, to values that they take.
func TestPresetsAreSettings(t *testing.T) {
	rows := map[string]bool{}
	for _, s := range newOptions().rows(forTrain) {
		rows[s.name] = s.fixed&trainLoop == trainLoop
	}
	for name, p := range presets {
		for flag := range p {
			if !rows[flag] {
				t.Errorf("preset %s sets --%s, which train and loop do not both have", name, flag)
			}
		}
	}
}

// The hash that a resumed rollout is held to, and its journal's header, have what the table
// calls fixed, and nothing that it calls free.
func TestRolloutsAreHeldToWhatIsFixed(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "")
	t.Setenv("SETTINGS_TEST", "1")
	s := llmtest.Start(mock)
	defer s.Close()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"q.jsonl":  `{"id":"1","q":"What is 2 * 3?","a":"6","z":"5"}` + "\n",
		"r.jsonl":  `{"id":"1","q":"What is 2 * 4?","a":"8","z":"5"}` + "\n",
		"mcp.json": `{"mcpServers":{}}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	generated := []string{"-d", "arith", "--limit", "1", "--reward", "exact"}
	file := []string{"-d", "q.jsonl", "--reward", "exact", "--field", "question=q", "--field", "answer=a"}
	elsewhere := map[string]string{ // settings that another test changes, or that need more than a server
		"base-url": "environment.txt", rundir.ServerFromEnv: "environment.txt", "token-mode": "tokenmode.txt", "tokenizer": "tokenmode.txt",
		"tool": "tools.txt", "mcp": "tools.txt", "mcp-config": "tools.txt", "python": "journal.txt", "dtype": "it is of a local model",
		"chat-template": "it is of a local model", "weights-as-stored": "stored_local_test.go",
		"router-replay":  "router_replay_test.go",
		"continue-reply": "search_reply_test.go", "stream": "the server's replies are the same",
		"env": "search_env_test.go", "judge": "judge_test.go", "judge-rubric": "judge_test.go", "judge-votes": "judge_test.go",
		"judge-price-in": "judge_test.go", "judge-price-out": "judge_test.go", "failed-of": "compare.txt",
		"gym-env": "scheduling.txt", "serve": "rollout_server_test.go", "sync-through": "rollout_server_test.go",
		"allow-media-host": "rollout_server_test.go", "allow-media-path": "rollout_server_test.go",
	}
	others := map[string][]string{
		"model": {"wrong"}, "parser": {"hermes"}, "dataset": {"r.jsonl"}, "split": {"test"}, "level": {"2"},
		"field":  {"question=q", "--field", "answer=z"},
		"system": {"s"}, "prompt": {"{question}!"}, "reward": {"em"}, "profile": {"rllm"}, "math-tolerance": {".01"},
		"reward-options": {`{"strict":true}`},
		"stop":           {"x"}, "stop-ids": {"7"}, "tools": {"none"}, "top-p": {".5"},
		"min-p": {".5"}, "temperature": {".5"}, "fail-on-error": {"3"}, "budget-cost": {"9", "--price-in", "1"}, "sandbox": {"best-effort"},
		"tool-env": {"SETTINGS_TEST"}, "tool-cache": {"on"}, "tool-cache-also": {"calculator", "--tool-cache", "on"},
		"device": {"cpu"}, "kv-cache": {"1GB"}, "kv-host": {"1GB"}, "images": {"folder"}, "seed": {"5"}, "scheduler": {"gym_scheduler"},
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	looked := 0
	for i, base := range [][]string{generated, file} {
		began := append(slices.Clone(base), "--base-url", s.BaseURL(), "--model", "good", "-n", "1")
		dir := fmt.Sprint("run", i)
		if _, log, code := run(t, append(append([]string{"rollout"}, began...), "--output", dir)...); code != exitDone {
			t.Fatalf("exit %d: %s", code, log)
		}
		for _, s := range newOptions().rows(forRollout) {
			onFile := slices.Contains([]string{"dataset", "field", "rows", "ids"}, s.name)
			if (s.fixed|s.free)&forRollout == 0 || elsewhere[s.name] != "" || onFile != (i == 1) {
				continue
			}
			looked++
			args := []string{"--" + s.name}
			switch s.initial().(type) {
			case bool:
			case time.Duration:
				args = append(args, "3m")
			case string, []string, float64:
				args = append(args, cmp.Or(strings.Join(others[s.name], "\x00"), "1"))
				args = slices.Concat(args[:1], strings.Split(args[1], "\x00"))
			default:
				args = append(args, "7")
			}
			_, log, code := run(t, append([]string{"rollout", "--resume", dir}, args...)...)
			if refused := code == exitUsage && strings.Contains(log, "--"+s.name+" is "); refused != (s.fixed&forRollout != 0) ||
				!refused && code != exitDone {
				t.Errorf("rollout --resume %v: exit %d: %s", args, code, log)
			}
		}
	}
	if looked < 40 {
		t.Errorf("%d settings looked at", looked)
	}
}
