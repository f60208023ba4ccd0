package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"
)

// pages are the documents for users.
func pages(t *testing.T) []string {
	t.Helper()
	const root = "../../"
	list, err := filepath.Glob(root + "docs/*.md")
	if err != nil || len(list) < 5 {
		t.Fatal(list, err)
	}
	return append(list, root+"README.md", root+"examples/README.md")
}

// otherFlags are flags of other programs that pages name.
var otherFlags = []string{
	"--sampling-defaults", "--reasoning-parser", "--enable-auto-tool-choice", "--tool-call-parser",
	"--generation-config", "--skip-tokenizer-init", "--no-deps",
	"--return-tokens-as-token-ids", "--logprobs-mode", "--chat-template-content-format", "--chat-template", "--max-model-len", "--user",
	"--scope", "--incremental-streaming-output", "--max-logprobs", "--stream-output",
	"--model-path", "--enable-deterministic-inference", "--enable-lora", "--max-lora-rank", "--lora-modules", "--enable-return-routed-experts",
	"--no-enable-chunked-prefill", "--max-num-batched-tokens", "--api-key", "--weight-transfer-config",
	"--vllm", "--rlhf", "--use", // ms-swift's, which go on with an underscore
}

var flagInText = regexp.MustCompile(`(^|[\s(\x60'"/|])(--[a-z][a-z0-9]*(-[a-z0-9]+)*)`)

// TestPagesNameFlagsThatExist looks up each flag that a page names.
func TestPagesNameFlagsThatExist(t *testing.T) {
	known := map[string]bool{"--version": true, "--help": true}
	var collect func([]*cli.Command)
	collect = func(list []*cli.Command) {
		for _, c := range list {
			for _, f := range c.Flags {
				for _, n := range f.Names() {
					known["--"+n] = true
				}
			}
			collect(c.Subcommands)
		}
	}
	collect(commands())
	for _, f := range otherFlags {
		known[f] = true
	}
	seen := 0
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			for _, m := range flagInText.FindAllStringSubmatch(line, -1) {
				if seen++; !known[m[2]] {
					t.Errorf("%s:%d: there is no flag %s", strings.TrimPrefix(page, "../../"), i+1, m[2])
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d flags found, which shows nothing", seen)
	}
}

// long are commands of pages that need a local model or minutes, by their beginning:
// of these only the flags are checked.
var long = []string{
	"agentcli eval -d arith --limit 64 --grammar",
	"agentcli score replies.jsonl --reward judge", // judge_test.go
	"agentcli train", "agentcli loop", "agentcli compare", "agentcli model convert", "agentcli model info", "agentcli eval --model",
	"agentcli inspect traj.parquet arith/11+94#1",
	"agentcli rollout --serve",                                      // app/rolloutserver
	"agentcli rollout -d tasks.jsonl --scheduler openenv_scheduler", // scheduler/openenv_test.go
	"agentcli rollout -d gsm8k --model Qwen/Qwen3-30B-A3B",          // router_replay_test.go
	"agentcli serve", // cmd/agentcli/serve_test.go
	"agentcli retriever serve", "agentcli retriever index corpus.jsonl -o index --kind",
	"agentcli eval -d findfact", "agentcli eval -d questions.jsonl --env search", "agentcli rollout -d questions.jsonl --env search",
	"agentcli doctor", "agentcli eval -d problems.jsonl --mcp", "agentcli datasets pull", "agentcli inspect guess.parquet",
}

// failing are commands that a page shows with their error, and the exit code.
var failing = map[string]int{
	"agentcli eval -d names.jsonl --base-url http://localhost:8000/v1":               exitFailed,
	"agentcli eval -d aime2024 --limit 2 --base-url http://127.0.0.1:9/v1 --model x": exitFailed,
}

// files are what the commands read; traj.parquet and run/ are made at the beginning.
const documentFiles = `
-- aime2024.jsonl --
{"id": "1", "problem": "What is 2 * 3?", "answer": "6"}
{"id": "2", "problem": "What is 4 * 3?", "answer": "12"}
-- names.jsonl --
{"a": "1", "q": "What is 1 * 1?"}
-- q.jsonl --
{"id": "t3", "question": "What is 1 * 2?", "answer": "2"}
-- questions.jsonl --
{"id": "t3", "question": "What is 1 * 2?", "answer": "2"}
-- mine.yaml --
name: mine
splits: {test: {files: [mine.csv]}}
fields: {question: q, answer: right, answer_form: choice, choices: [right, wrong], shuffle_choices: true}
prompt: |-
  {context} {question}
  {choices}
reward: exact
-- mine.csv --
q,right,wrong,context
What is 1 * 2?,2,3,It is even.
-- weather.jsonl --
{"id": "1", "prompt": "What is 2 * 3?", "answer": [{"f": {"x": [1]}}], "tools": [{"type": "function", "function": {"name": "f"}}]}
-- lakes.jsonl --
{"id": "a", "question": "go", "env_config": {"name": "frozen_lake", "size": 3}}
-- problems.jsonl --
{"id": "t3", "question": "What is 1 * 2?", "answer": "2"}
-- corpus.jsonl --
{"id": "0", "contents": "\"Go\"\na language"}
{"id": "1", "contents": "\"Unix\"\nan operating system"}
{"id": "2", "contents": "\"C\"\nanother language"}
-- s.jsonl --
{"response": "So it is \\boxed{2}", "answer": "2"}
-- units.jsonl --
{"response": "It is 3.5 km", "answer": "3.5 km"}
-- programs.jsonl --
{"response": "~~~python\nprint(sum(map(int, input().split())))\n~~~", "answer": "{\"inputs\": [\"1 2\"], \"outputs\": [\"3\"]}"}
-- replies.jsonl --
{"response": "So it is. The end.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
-- mcp.json --
{"mcpServers": {}}
`

var shownCommand = regexp.MustCompile(`^(?:    )?(?:\$ )?(agentcli [a-z].*)$`)

// commandsOf are the shell commands in a page's blocks.
func commandsOf(page string) (list []string) {
	fenced := false
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if m := shownCommand.FindStringSubmatch(line); m != nil && (fenced || strings.HasPrefix(line, "    ")) {
			command, _, _ := strings.Cut(m[1], "     #")
			command, _, _ = strings.Cut(command, "   #")
			list = append(list, strings.TrimSpace(command))
		}
	}
	return list
}

// TestCommandsOfThePagesRun runs each command that a page shows, against the stand-in
// server in the place of the reader's.
func TestCommandsOfThePagesRun(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder // aime2024 has 30
	for i := 3; i <= 30; i++ {
		fmt.Fprintf(&rows, "{\"id\": \"%d\", \"problem\": \"What is %d * 3?\", \"answer\": \"%d\"}\n", i, 2*i, 6*i)
	}
	files := strings.Replace(documentFiles, "-- names.jsonl --", rows.String()+"-- names.jsonl --", 1)
	n := 0
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var s strings.Builder
		s.WriteString("env OPENAI_BASE_URL=$MOCK\n")
		fmt.Fprintf(&s, "symlink examples -> %s/examples\nsymlink vstar.parquet -> %s/datasets/testdata/deepeyes.parquet\n", root, root)
		for _, c := range []string{"aime2024 aime2024.jsonl", "gsm8k aime2024.jsonl --split test", "gsm8k aime2024.jsonl --split train"} {
			fmt.Fprintf(&s, "exec agentcli datasets import %s\n", c)
		}
		s.WriteString("exec agentcli rollout --model good -d q.jsonl --reward exact --output run\n" +
			"exec agentcli rollout --model good -d q.jsonl --reward exact -o traj.parquet\n")
		for _, c := range commandsOf(string(b)) {
			n++
			verb := "exec"
			run := strings.NewReplacer("http://gpu1:8000/v1,http://gpu2:8000/v1", "$MOCK", "http://localhost:8000/v1", "$MOCK").Replace(c)
			switch at := slices.IndexFunc(long, func(p string) bool { return strings.HasPrefix(c, p) }); {
			case at >= 0:
				run, _, _ = strings.Cut(run, " > ")
				run += " --help"
			default:
				for shown, code := range failing {
					if strings.HasPrefix(c, shown) {
						verb = fmt.Sprint("exits ", code)
					}
				}
			}
			if name, ok := strings.CutPrefix(c, "agentcli datasets import "); ok {
				fmt.Fprintf(&s, "rm cache/agentcli/datasets/%s\n", strings.Fields(name)[0])
			}
			if strings.Contains(run, "--output run") {
				s.WriteString("rm run\n")
			}
			fmt.Fprintf(&s, "%s sh -c '%s'\n", verb, strings.ReplaceAll(run, "'", "''"))
		}
		name := strings.NewReplacer("../", "", "/", "_", ".md", ".txt").Replace(page)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s.String()+files), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n < 30 {
		t.Errorf("%d commands found, which shows nothing", n)
	}
	p := scriptParams(t, &scriptMessages{last: map[string]string{}, all: map[string][]string{}})
	p.Dir = dir
	testscript.Run(t, p)
}
