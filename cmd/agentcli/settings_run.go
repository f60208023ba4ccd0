package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"agentcli/app/console"
	"agentcli/app/loop"
	"agentcli/app/models"
	"agentcli/app/report"
	"agentcli/app/rollout"
	"agentcli/app/rundir"
	"agentcli/datasets"
	"agentcli/engine"
	"agentcli/env"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/llm"
	"agentcli/media"
	"agentcli/model/chat"
	"agentcli/rewards"
	"agentcli/rewards/judge"
	"agentcli/rewards/mathgrade"
	"agentcli/scheduler"

	"github.com/urfave/cli/v2"
)

// The settings of the commands that play tasks: the dataset, sampling, tools, the model and
// its server, and the limits of a run.

const (
	groupData     = "data"
	groupSampling = "sampling"
	groupTools    = "tools"
	groupLimits   = "limits of a trajectory"
	groupModel    = "model"
	groupServer   = "server"
	groupRun      = "run"
	groupBudget   = "budget"
	groupFolder   = "folder"
	groupShow     = "observability"
	groupServe    = "rollout server"
	groupInfo     = "information"
)

func dataSettings(o *options) []row {
	run := &o.loop.Rollout
	return section(row{group: groupData, fixed: evalRolloutLoop}, []row{
		{name: "dataset", short: "d", field: &run.Dataset, basic: evalRolloutLoop,
			help: "`NAME` from agentcli datasets list, or a .jsonl, .json, .csv, .parquet or .yaml file; several with weights as a:2,b:1",
			but: []variant{{in: forRollout | forLoop,
				help: "`NAME` from agentcli datasets list, or a .jsonl, .json, .csv, .parquet or .yaml file; several with weights as a:2,b:1 " +
					"(default: arith)"}}},
		{name: "split", field: &run.Split, basic: evalRollout,
			help: "split of the dataset (default: test of a generated dataset and of a benchmark with a train split; else from the dataset)",
			but: []variant{
				{in: forRollout, help: "split of the dataset (default: train where there is one; else from the dataset)"},
				{in: forLoop, help: "split to train on (default: train where there is one; else from the dataset)"}}},
		{name: "limit", field: &run.Limit, value: 0, free: evalRollout, basic: evalRollout,
			help: "maximum number of problems; 0: all; required for a generated dataset, which is infinite (default: all)",
			but: []variant{{in: forRollout,
				help: fmt.Sprintf("maximum number of tasks; 0: all (default: all; of a generated dataset %d)", rollout.GeneratedTasks)}}},
		{name: "rows", value: "", help: "rows of the dataset's file by number, for example 10-20 or 1,5,10-20 (default: all)",
			read: func(c *cli.Context) (err error) {
				if s := c.String("rows"); s != "" {
					if run.Select.Rows, err = datasets.ParseRows(s); err != nil {
						return exit.Usagef("--rows: %w", err)
					}
				}
				return nil
			}},
		{name: "ids", field: &run.Select.IDs, help: "`ID` of a problem of the dataset's file; repeatable (default: all)"},
		{name: "shuffle", field: &run.Shuffle, help: "rows of the dataset's file in an order that --seed decides"},
		{name: "failed-of", field: &run.FailedOf, kind: path,
			help: "only the problems that this `RUN` solved in less than half of its attempts: a folder of eval or rollout, " +
				"or a file of trajectories"},
		{name: "level", field: &run.Level, basic: evalRollout, help: "difficulty of a generated dataset (default: 1)"},
		{name: "shots", field: &run.Shots, check: notNegative, help: "worked examples before the question (default: from the dataset)"},
		{name: "field", value: []string(nil), help: "column of a field, for example question=problem; images= leaves images out; repeatable",
			read: func(c *cli.Context) (err error) { run.Fields, err = fieldsOf(c.StringSlice("field")); return err }},
		{name: "max-images", field: &run.Images.MaxImages, value: 0, check: notNegative,
			help: fmt.Sprintf("maximum number of images of a row, and of those that tools show (default: %d)", datasets.DefaultMaxImages)},
		{name: "max-image-bytes", field: &run.Images.MaxImageBytes, value: 0, check: notNegative,
			help: fmt.Sprintf("maximum size of an image file in `BYTES` (default: %d)", media.DefaultMaxBytes)},
		{name: "max-image-pixels", field: []any{&run.Images.MaxImagePixels, &o.loop.Train.MaxImagePixels}, value: 0, check: notNegative,
			fixed: evalRollout | forLoop, free: forTrain, always: true,
			help: fmt.Sprintf("maximum number of pixels of an image, width times height, by its header (default: %d)", media.DefaultMaxPixels),
			but: []variant{{in: forTrain, help: fmt.Sprintf("raise the maximum number of pixels of an image, width times height "+
				"(default: %d)", media.DefaultMaxPixels)}}},
		{name: "images", field: &run.ImageFiles, value: rollout.ImageFiles[0], free: evalRollout | forLoop,
			help: "where a file of trajectories has its images: inline, or folder, each once in the folder NAME.images beside it"},
		{name: "system", field: &run.System, help: "system prompt (default: from the row, else the dataset, else the environment)"},
		{name: "prompt", field: &run.Prompt, help: "text around the question, with {question} in it (default: from the dataset)"},
		{name: "reward", field: []any{&run.Reward, &o.loop.Train.Reward}, kind: address,
			fixed: evalRollout | forTrain, free: forLoop, basic: evalRollout | trainLoop,
			help: "reward function: " + rewards.Choices + " (default: from the dataset and its rows)",
			but: []variant{{in: forTrain, group: groupShaping,
				help: "score the rows again with this reward function: " + rewards.Choices + " (default: the rewards in the file)"}},
			idle: unless(func() bool { g := o.config(); return !g.IsSupervised() || g.TakesPairs() }, o.takesNoRewards)},
		{name: "profile", field: []any{&run.Grader.Profile, &o.loop.Train.Grader.Profile}, kind: optional,
			fixed: evalRollout | forTrain, free: forLoop, once: forScore, idle: o.unread("profile"),
			help: "rules of the math grader: " + strings.Join(mathgrade.Profiles, ", ") + " (default: default)",
			but:  []variant{{in: forTrain, group: groupShaping}}},
		{name: "math-tolerance", check: isTolerance, field: []any{&run.Grader.MathTolerance, &o.loop.Train.Grader.MathTolerance}, value: 0.,
			fixed: evalRollout | forTrain, free: forLoop, once: forScore, idle: o.unread("math_tolerance"),
			help: "largest relative difference of two numbers that the math grader takes for equal (default: 0, exact)",
			but:  []variant{{in: forTrain, group: groupShaping}}},
		{name: "reward-options", value: "", kind: optional, content: rundir.JSONText,
			fixed: evalRollout | forTrain, free: forLoop, once: forScore, idle: o.unread(""),
			help: "options of the reward: a JSON object as {\"length\": {\"max\": 4096, \"buffer\": 512}}, or `JSON|@FILE`; " +
				"a row's own options come first (docs/rewards.md)",
			but: []variant{{in: forTrain, group: groupShaping}},
			read: func(c *cli.Context) error {
				return readRewardOptions(c.String("reward-options"), &run.Grader, &o.loop.Train.Grader)
			}},
	})
}

// judgeSettings are of the model that the reward judge asks.
func judgeSettings(o *options) []row {
	run, train := &o.loop.Rollout.Judge, &o.loop.Train.Judge
	inShaping := []variant{{in: forTrain, group: groupShaping}}
	return section(row{group: groupData, fixed: evalRollout | forTrain, free: forLoop, once: forScore, always: true}, []row{
		{name: "judge", field: []any{&run.Server, &train.Server}, kind: address, but: inShaping, idle: o.unread("judge"),
			help: "server of the model that --reward judge asks: `URL` or URL#MODEL; its key is in JUDGE_API_KEY, else OPENAI_API_KEY"},
		{name: "judge-rubric", field: []any{&run.Rubric, &train.Rubric}, kind: path, but: inShaping,
			help: "what the judge is told: " + strings.Join(judge.Rubrics(), ", ") + ", or a `FILE` (default: the one of the reward's name, else " +
				judge.Rubrics()[0] + ")"},
		{name: "judge-votes", field: []any{&run.Votes, &train.Votes}, value: 0, check: notNegative, but: inShaping,
			help: "replies of the judge for each grade, of which the most or the mean counts (default: 1)"},
		{name: "judge-price-in", field: []any{&run.PriceIn, &train.PriceIn}, value: 0., check: notNegative,
			free: allFour, once: forScore, but: inShaping,
			help: "`USD` per million prompt tokens of the judge"},
		{name: "judge-price-out", field: []any{&run.PriceOut, &train.PriceOut}, value: 0., check: notNegative,
			free: allFour, once: forScore, but: inShaping,
			help: "`USD` per million reply tokens of the judge"},
	})
}

// readRewardOptions puts the options of --reward-options over those of other flags.
func readRewardOptions(value string, all ...*rewards.Options) error {
	text, err := rundir.JSONText(value)
	if err != nil {
		return err
	}
	for _, o := range all {
		before := *o
		if *o, err = o.With([]byte(text)); err != nil {
			if e := (*malformed.Error)(nil); errors.As(err, &e) { // whose field is all of the flag
				err = e.Err
			}
			return exit.Usagef("--reward-options: %w", err)
		}
		if before.Profile != "" && before.Profile != o.Profile {
			return exit.Usagef("--profile is %s, and --reward-options has the profile %s; leave one out", before.Profile, o.Profile)
		}
		if before.MathTolerance != 0 && before.MathTolerance != o.MathTolerance {
			return exit.Usagef("--math-tolerance is %g, and --reward-options has math_tolerance %g; leave one out",
				before.MathTolerance, o.MathTolerance)
		}
	}
	return nil
}

func isTolerance(name string, value any) error {
	if v := value.(float64); !(v >= 0 && v < 1) {
		return exit.Usagef("--%s is %g; it is a relative difference of at least 0 and below 1", name, v)
	}
	return nil
}

func fieldsOf(list []string) (map[string]string, error) {
	var fields map[string]string
	for _, f := range list {
		name, column, ok := strings.Cut(f, "=")
		if !ok || name == "" || column == "" && name != "images" {
			return nil, exit.Usagef("--field %q is not of the form question=COLUMN", f)
		}
		if fields == nil {
			fields = map[string]string{}
		}
		fields[name] = column
	}
	return fields, nil
}

func samplingSettings(o *options) []row {
	s := &o.loop.Rollout.Sampling
	const off, ofServer = " (default: off)", " (default: off; with a server, its own)"
	const withForce = "; with --force only (default: off)"
	const mass = "sample from the likeliest tokens of this probability mass, above 0; 1: off"
	const top = "sample from the K likeliest tokens; -1 or 0: off"
	const share = "sample from tokens at least this likely, as a share of the likeliest"
	return section(row{group: groupSampling, fixed: evalRollout, free: forLoop}, []row{
		{name: "seed", field: []any{&o.loop.Rollout.Seed, &o.config().Seed}, fixed: allFour, basic: allFour,
			help: "seed of the run, from which the seeds of all attempts follow", always: true,
			but: []variant{{in: forTrain, group: groupOptimiser, help: "seed of the order of the groups"},
				{in: forLoop, group: groupOptimiser, help: "seed of rollouts, evaluations and the order of the groups"}}},
		{name: "temperature", field: &s.Temperature, basic: evalRolloutLoop, help: "sampling temperature; 0: greedy (default: 1)",
			but: []variant{{in: forEval, help: "sampling temperature; 0: greedy (default: 1; with a server, its own)"},
				{in: forLoop, help: "sampling temperature of rollouts and evaluations, above 0 (default: 1)"}}},
		{name: "top-p", value: 0., basic: evalRollout,
			help: mass + off, but: []variant{{in: forEval, help: mass + ofServer}, {in: forLoop, help: mass + withForce}},
			read: func(c *cli.Context) error {
				if s.TopP = c.Float64("top-p"); c.IsSet("top-p") && s.TopP == 0 {
					return exit.Usagef("--top-p is 0, which leaves no token; it must be above 0, up to 1 (off); --temperature 0 is greedy")
				}
				return nil
			}},
		{name: "top-k", value: 0, help: top + off, but: []variant{{in: forEval, help: top + ofServer}, {in: forLoop, help: top + withForce}},
			read: func(c *cli.Context) error {
				if s.TopK = c.Int("top-k"); c.IsSet("top-k") && s.TopK == 0 {
					s.TopK = -1 // off, as Hugging Face writes it; left open it would be the server's own
				}
				return nil
			}},
		{name: "min-p", field: &s.MinP,
			help: share + off, but: []variant{{in: forEval, help: share + ofServer}, {in: forLoop, help: share + withForce}}},
		{name: "grammar", value: "",
			help: "what each reply must be: json, `schema:FILE`, regex:EXPRESSION, choice:A|B or tools " +
				"(docs/grammars.md#in-rollouts; default: anything)",
			but: []variant{{in: forLoop, help: "what each reply must be: json, `schema:FILE`, regex:EXPRESSION, choice:A|B or tools " +
				"(docs/grammars.md#in-rollouts); with --force only (default: anything)"}},
			read: func(c *cli.Context) (err error) {
				if spec := c.String("grammar"); spec != "" {
					s.Grammar, err = rollout.ParseGrammar(spec)
				}
				return err
			}},
		{name: "max-tokens", field: &s.MaxTokens, basic: evalRolloutLoop, help: "maximum tokens per reply (default: from the dataset)"},
		{name: "stop", field: &s.Stop, verbatim: true, help: "stop string; repeatable"},
		{name: "stop-ids", value: []string(nil), help: "token ids that end a reply, in addition to the model's own, for example 2,50",
			read: func(c *cli.Context) (err error) {
				s.StopIDs, err = rollout.ParseStopIDs(c.StringSlice("stop-ids"))
				return err
			}},
	})
}

func toolSettings(o *options) []row {
	run := &o.loop.Rollout
	added := &run.Added
	return section(row{group: groupTools, fixed: evalRollout, free: forLoop}, []row{
		{name: "env", field: &run.Env, basic: evalRollout,
			help: "environment of all rows: " + strings.Join(rollout.Environments(), ", ") +
				" (docs/datasets.md#environments; default: what each row names, else " + rollout.Environments()[0] + ")"},
		{name: "retriever", field: &run.Retriever, kind: address, free: evalRolloutLoop, basic: evalRollout,
			help: "address of the search server for the tool search, for example http://127.0.0.1:8000 (agentcli retriever serve)"},
		{name: "retriever-topk", field: &run.RetrieverTopK,
			help: fmt.Sprintf("passages of one search (default: %d)", rollout.DefaultRetrieverTopK)},
		{name: "bbox-space", field: &run.BoxSpace, kind: optional,
			help: "coordinates of the boxes of image_zoom_in_tool: " + strings.Join(env.BoxSpaces, ", ") +
				" (docs/images.md#agents-that-look; default: seen)"},
		{name: "min-pixels", field: &run.MinPixels, value: 0, check: notNegative,
			help: "minimum area in pixels at which the model is shown an image; of a server, what its " +
				"boxes are of (default: the local model's, of a server 3136)"},
		{name: "max-pixels", field: &run.MaxPixels, value: 0, check: notNegative,
			help: "maximum area in pixels at which the model is shown an image; of a server, what its " +
				"boxes are of (default: the local model's, of a server 1003520)"},
		{name: "max-image-tokens", field: &run.MaxImageTokens, value: 0, check: notNegative,
			help: "maximum tokens of an image that a tool gives; a larger one is refused with a message for the model " +
				"(docs/images.md#agents-that-look; default: 0, no limit)"},
		{name: "scheduler", field: &run.Scheduler, kind: address, basic: evalRollout,
			help: "what decides what follows a reply (docs/scheduling.md): " + strings.Join(scheduler.Names(), ", ") +
				", `exec:CMD` or the address of a server (default: the loop of model and tools)"},
		{name: "gym-env", field: &run.GymEnv, kind: address,
			help: "environment of --scheduler " + scheduler.GymName + ": " + strings.Join(scheduler.Gyms(), ", ") +
				", `exec:CMD` or the address of a server; of " + scheduler.OpenEnvName +
				": the address of a server of OpenEnv (default: what each row's env_config names)"},
		{name: "scheduler-timeout", field: &run.SchedulerTimeout, value: scheduler.DefaultTimeout, free: evalRolloutLoop,
			help: "time limit of one answer of a scheduler or an environment that is a program or a server"},
		{name: "tools", value: "", basic: evalRolloutLoop,
			help: "comma-separated built-in tools: " + strings.Join(rollout.BuiltinTools(), ", ") + "; or none (default: from the dataset)",
			read: func(c *cli.Context) error {
				switch t := c.String("tools"); t {
				case "":
				case "none":
					run.Tools = []string{}
				default:
					run.Tools = strings.FieldsFunc(t, func(r rune) bool { return r == ',' || r == ' ' })
				}
				return nil
			}},
		{name: "tool", field: &added.Programs, kind: address, fixed: evalRollout, free: forLoop, once: forDoctor,
			basic: evalRollout, help: "your own program as a tool: `exec:CMD`, which reads and writes JSON lines (docs/tools.md); repeatable",
			check: each(func(p string) bool { return strings.TrimPrefix(p, rollout.ExecPrefix) != "" },
				"names no program; write --tool 'exec:CMD ARGS'")},
		{name: "mcp", field: &added.MCP, kind: address, fixed: evalRollout, free: forLoop, once: forDoctor,
			basic: evalRollout, help: "MCP server with tools: `CMD|URL`, a command with its arguments or an address of streamable HTTP; repeatable",
			check: each(func(s string) bool { return s != "" }, "is empty; give a command or an address")},
		{name: "mcp-config", field: &added.MCPConfig, kind: path, fixed: evalRollout, free: forLoop, once: forDoctor,
			help: "JSON `FILE` of MCP servers with tools, in the mcpServers format of Claude and Cursor"},
		{name: "tool-env", field: []any{&added.Env, &o.loop.Train.ToolEnv}, kind: optional, always: true,
			free: evalRolloutLoop, fixed: forTrain, once: forDoctor | forScore,
			help:  "variable `NAME` of the environment for programs of --tool, --mcp, --scheduler and --reward exec:; repeatable (default: no keys)",
			check: checkToolEnv},
		{name: "tool-timeout", field: &run.ToolTimeout, value: rollout.DefaultToolTimeout, help: "time limit of one tool call, for example 10s"},
		{name: "tool-cache", field: &added.Cache, free: evalRolloutLoop,
			help: "cache folder `DIR|on` for results of deterministic tools and of python without sessions; on: the program's cache folder"},
		{name: "tool-cache-also", field: &added.CacheAlso, free: evalRolloutLoop,
			help: "`NAME` of another tool to cache; its results must depend only on its arguments; repeatable",
			check: func(_ string, v any) error {
				if list := v.([]string); len(list) > 0 && added.Cache == "" {
					return exit.Usagef("--tool-cache-also %s needs --tool-cache DIR, or --tool-cache on", list[0])
				}
				return nil
			}},
		{name: "sandbox", value: "strict", free: evalRolloutLoop,
			help:  "isolation of the python tool: strict, or best-effort, which leaves out parts that the kernel refuses (agentcli doctor)",
			check: oneOf([]string{"strict", "best-effort"}, "weaker"),
			read:  func(c *cli.Context) error { run.BestEffort = c.String("sandbox") != "strict"; return nil }},
		{name: "python", field: &run.Python, kind: path, fixed: evalRollout, free: forLoop, once: forDoctor,
			help: "`PATH` of the interpreter for the python tool (default: the first in PATH that works)"},
		{name: "python-session", field: &run.Session, help: "keep the variables and files of the python tool within a trajectory"},
	})
}

// each checks every value of a list without the blanks around it.
func each(ok func(string) bool, why string) func(string, any) error {
	return func(name string, v any) error {
		for _, s := range v.([]string) {
			if !ok(strings.TrimSpace(s)) {
				return exit.Usagef("--%s %q %s", name, s, why)
			}
		}
		return nil
	}
}

func checkToolEnv(_ string, v any) error {
	for _, name := range v.([]string) {
		if name == "" || strings.ContainsAny(name, "= ") {
			return exit.Usagef("--tool-env wants the NAME of a variable of the environment; a value is set there, as NAME=VALUE agentcli …")
		}
		if _, ok := os.LookupEnv(name); !ok {
			return exit.Usagef("--tool-env %s: there is no such variable in the environment", name)
		}
	}
	return nil
}

func limitSettings(o *options) []row {
	run := &o.loop.Rollout
	return section(row{group: groupLimits, fixed: evalRollout, free: forLoop}, []row{
		{name: "max-turns", field: &run.MaxTurns, basic: evalRolloutLoop,
			help: "maximum model calls per trajectory (default: from the dataset)"},
		{name: "max-prompt-tokens", field: &run.MaxPromptTokens, help: "maximum tokens of any prompt (default: the model's window)"},
		{name: "max-response-tokens", field: &run.MaxResponseTokens, help: "maximum tokens after the first prompt (default: no limit)"},
		{name: "max-observation-tokens", field: &run.MaxObservationTokens,
			help: "maximum tokens of one tool result; the middle of a longer one is removed (default: 8000 characters)"},
		{name: "final-turn", field: &run.FinalTurn,
			help: "after tool calls in the last turn, give the model their results and one more turn without tools"},
		{name: "continue-reply", field: &run.ContinueReply,
			help: "put tool results as <information> into the reply, and let the model continue it, as in Search-R1; implies --parser search"},
		{name: "timeout", field: &run.Timeout, free: evalRolloutLoop, basic: evalRollout,
			help: "time limit of a trajectory, for example 90s or 5m; waiting for servers and queues is not counted (default: no limit)"},
		{name: "reward-timeout", field: &run.RewardTimeout, value: rollout.DefaultRewardTimeout, free: evalRolloutLoop,
			help: "time limit of one reward, for example 5m for a judge with a queue"},
	})
}

// samplesHere says why a setting of servers has no effect in a loop that samples itself.
func samplesHere(o *options) func(*cli.Context) string {
	return unless(func() bool { return o.loop.Serves() }, because("without --base-url: the model is sampled in this process"))
}

func serverSettings(o *options) []row {
	m, l := &o.loop.Rollout.Model, &o.loop
	return section(row{group: groupServer, free: evalRolloutLoop}, []row{
		{name: "base-url", value: []string(nil), kind: address, basic: evalRolloutLoop, always: true,
			help: "address of an OpenAI-compatible server, for example http://localhost:8000/v1 (or OPENAI_BASE_URL); " +
				"repeat or separate with commas for several servers of one model",
			but: []variant{{in: forLoop, help: "address of a server that draws the rollouts, for example http://localhost:8000/v1 " +
				"(agentcli serve --admin, SGLang); repeat or separate with commas for several (default: this process draws them)"}},
			read: func(c *cli.Context) error {
				m.BaseURL = models.ParseAddresses(c.StringSlice("base-url")...)
				return nil
			}},
		// A setting, so that a run's config.yaml keeps what it began with, for --resume from another shell.
		{name: rundir.ServerFromEnv, value: "", kind: address, env: "OPENAI_BASE_URL", hidden: true, free: evalRolloutLoop,
			help: "address of a server, from the environment",
			read: func(c *cli.Context) error {
				if len(m.BaseURL) == 0 {
					m.BaseURL = models.ParseAddresses(c.String(rundir.ServerFromEnv))
					m.BaseFromEnv = len(m.BaseURL) > 0
				}
				return nil
			}},
		{name: "parser", value: chat.ParserAuto, fixed: evalRollout, free: forLoop,
			help: "format of tool calls in the server's text: " + strings.Join(chat.Parsers(), ", ") + " (auto: from the model's name)",
			read: func(c *cli.Context) error {
				if m.Parser = c.String("parser"); m.Parser == chat.ParserAuto {
					return nil
				}
				p, err := chat.ParserFor(m.Parser, nil)
				if err != nil {
					return exit.Usagef("--parser %q is unknown; it is one of %s", m.Parser, strings.Join(chat.Parsers(), ", "))
				}
				m.Parser = p.Name()
				return nil
			}},
		{name: "admin-key", field: &l.AdminKey, env: "AGENTCLI_ADMIN_KEY", once: forLoop,
			help: "`KEY` of requests that exchange a server's weights, as its own --admin-key (default: OPENAI_API_KEY)"},
		{name: "weights-through", field: &l.WeightsThrough, kind: optional, free: forLoop, idle: samplesHere(o),
			help: "how new weights reach the servers: disk (they open a folder within --output), wire (the request has them) or adapter " +
				"(they load what --lora-rank trains from that folder) (default: disk where a server on this machine opens the folder, " +
				"else wire; vLLM: adapter)",
			check: func(name string, v any) error {
				if v == "" {
					return nil
				}
				return oneOf([]string{loop.ThroughDisk, loop.ThroughWire, loop.ThroughAdapter})(name, v)
			}},
		{name: "token-mode", field: &m.TokenMode, value: models.TokenModeChat, fixed: evalRollout, free: forLoop, idle: samplesHere(o),
			but: []variant{{in: forLoop, value: models.TokenModeCompletions,
				help: "input of the servers: completions (token ids), or auto; chat is refused"}},
			help: "input of the server: chat (messages, rendered by the server), completions (token ids, rendered by agentcli; token-exact), " +
				"or auto (completions where possible)",
			check: oneOf([]string{models.TokenModeChat, models.TokenModeCompletions, models.TokenModeAuto})},
		{name: "tokenizer", field: &m.Tokenizer, kind: path, fixed: evalRollout, refused: forLoop,
			help: "tokenizer for --token-mode completions, and for ids beside images in chats: a folder, a .gguf or org/name " +
				"(default: the server's name for its model)"},
		{name: "chat-template", field: []any{&m.ChatTemplate, &o.loop.Train.Open.ChatTemplate}, fixed: evalRollout | trainLoop, always: true,
			help: "file with a chat template, or the name of a chat format, for a local model or --token-mode completions " +
				"(default: the model's own)",
			but: []variant{{in: trainLoop,
				help: "file with a chat template, which is saved with the model, or the name of a chat format (default: the model's own)"}}},
		{name: "stream", field: &m.Stream, help: "stream the server's replies", idle: samplesHere(o)},
		{name: "retries", field: &m.Retries, value: llm.DefaultRetries, help: "retries of a failed request", check: notNegative,
			idle: samplesHere(o)},
		{name: "model-timeout", field: &m.ModelTimeout, value: llm.DefaultTimeout, idle: samplesHere(o),
			help: "time limit of one request, for example 10m", check: positive},
		{name: "stream-timeout", field: &m.StreamIdle, value: llm.DefaultIdle, idle: samplesHere(o),
			help: "longest silence within a stream, for example 2m; 0: no limit", check: notNegative},
		{name: "patience", field: &m.Patience, value: llm.DefaultPatience, idle: samplesHere(o),
			help:  "maximum wait for a server that has answered before and no longer does, for example while it restarts; 0: only --retries",
			check: notNegative},
	})
}

func runSettings(o *options) []row {
	run := &o.loop.Rollout
	return section(row{group: groupRun, free: evalRolloutLoop}, []row{
		{name: "pass-k", short: "k", field: &o.passK, value: 1, free: forEval, basic: forEval, help: "k of pass@k", check: positive},
		{name: "format", field: &o.format, value: "table", free: forEval, basic: forEval,
			help: "format of the report on stdout: " + strings.Join(report.Formats, ", ")},
		{name: "problems", field: &o.problems, free: forEval, basic: forEval, help: "show a row for each problem below the report"},
		{name: "samples", short: "n", field: &run.Samples, value: rollout.DefaultSamples, basic: evalRolloutLoop, help: "attempts at each task",
			but: []variant{{in: forEval, value: 0, help: "attempts at each problem, at least k (default: k)"},
				{in: forLoop, group: groupLoop}}},
		{name: "parallel", short: "j", field: &run.Parallel, value: engine.DefaultParallel, basic: evalRolloutLoop,
			help: "trajectories that run at once"},
		{name: "ordered", field: &run.Ordered, free: evalRollout, refused: forLoop,
			help: "write rows in the order of the tasks, then of the attempts; rows that end earlier wait in the journal"},
		{name: "fail-on-error", value: "",
			help: "end the run after `N` infrastructure failures, or after this share of all trajectories: 0.1 or 10% (default: no limit)",
			read: func(c *cli.Context) (err error) {
				run.FailOnError, err = errorLimit(c.String("fail-on-error"))
				return err
			}},
	})
}

// errorLimit reads --fail-on-error: a count, or a share as 0.1 or 10%.
func errorLimit(s string) (engine.ErrorLimit, error) {
	wrong := exit.Usagef("--fail-on-error %q is neither a number of trajectories, from 1, nor a share of them: 0.1 or 10%%", s)
	if s == "" {
		return engine.ErrorLimit{}, nil
	}
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 {
			return engine.ErrorLimit{}, wrong
		}
		return engine.ErrorLimit{Count: n}, nil
	}
	number, percent := strings.CutSuffix(s, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share > 0 && share <= 1) {
		return engine.ErrorLimit{}, wrong
	}
	return engine.ErrorLimit{Share: share}, nil
}

func budgetSettings(o *options) []row {
	b := &o.loop.Rollout.Budget
	return section(row{group: groupBudget, free: evalRollout, refused: forLoop}, []row{
		{name: "budget-tokens", field: &b.Tokens,
			help: "start no trajectory after `N` prompt and reply tokens in total, resumed runs included (default: no limit)"},
		{name: "budget-cost", field: &b.Cost,
			help: "start no trajectory after a cost of `USD` in total, computed from --price-in and --price-out (default: no limit)"},
		{name: "price-in", field: &b.PriceIn, help: "`USD` per million prompt tokens"},
		{name: "price-out", field: &b.PriceOut, help: "`USD` per million sampled tokens"},
	})
}

// tokenVariable is where a server's token may be in place of --token.
const tokenVariable = "AGENTCLI_TOKEN"

// onceSettings are those of one call: where it writes, what it shows, and what it prints in
// place of a run.
func onceSettings(o *options) []row {
	run := &o.loop.Rollout
	return section(row{group: groupShow, once: evalRolloutLoop}, []row{
		{name: "trace", field: &run.Trace, basic: evalRollout,
			help: "show one trajectory on stderr while it is played; `ID`: a task's id, task#attempt, or first"},
		{name: "serve", field: &o.serve.Serve, group: groupServe, free: forRollout, basic: forRollout,
			help: "play rows of requests at `ADDR`, for example 127.0.0.1:8000, for trainers of ms-swift, TRL and others (docs/rollout-server.md)"},
		{name: "token", field: &o.serve.Token, group: groupServe, env: tokenVariable, once: forRollout,
			help: "what requests of --serve carry as a bearer token; needed at an address that other machines reach"},
		{name: "sync-through", field: &o.serve.SyncThrough, kind: address, group: groupServe, free: forRollout,
			help: "with --serve: server at `URL` (swift rollout, vllm serve) that gets the weights that a trainer pushes over NCCL, and that " +
				"samples where --base-url names no other"},
		{name: "allow-media-host", field: &o.serve.AllowMediaHosts, group: groupServe, free: forRollout,
			help: "with --serve: fetch images that rows name by an address at `HOST`, or HOST:PORT, for example images.example.org; " +
				"repeatable (default: none are fetched)"},
		{name: "allow-media-path", field: &o.serve.AllowMediaPath, group: groupServe, free: forRollout,
			help: "with --serve: open images that rows name by a path below `DIR` (default: none is opened)"},
		{name: "metrics-addr", field: &run.MetricsAddr, help: "serve metrics for Prometheus at http://`HOST:PORT`/metrics"},
		{name: "otlp", field: &run.OTLP,
			help: "send OpenTelemetry spans to the collector at `URL`, for example http://localhost:4318 (or OTEL_EXPORTER_OTLP_ENDPOINT)"},
		{name: "log-format", value: console.Formats[0], once: allFour,
			help: "format of stderr: text, or json (one object per line)", read: setLogFormat},
		{name: "dry-run", group: groupInfo, field: &o.loop.Train.DryRun, once: forTrain, refused: forLoop, basic: forTrain,
			help: "print groups, tokens, steps and estimated memory and time, and do not train"},
		{name: "print-config", group: groupInfo, value: false, once: trainLoop, basic: trainLoop,
			help: "print all settings, presets applied, as --config reads them", read: ignored},
		{name: "help-all", group: groupInfo, value: false, once: allFour, basic: allFour, help: "show all options", read: ignored},
	})
}

// ignored is read by the command itself.
func ignored(*cli.Context) error { return nil }
