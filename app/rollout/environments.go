package rollout

import (
	"fmt"
	"slices"
	"strings"

	"agentcli/datasets"
	"agentcli/env"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/traj"
)

// environment is how the rows that name it are played.
type environment struct {
	name     string
	prompt   string                                               // text around a question; "": the dataset's
	system   func(Options) string                                 // system prompt of rows without one; nil: the dataset's
	reward   string                                               // of rows whose dataset names none; "": the dataset's
	defaults func(*Options)                                       // settings that the user did not give
	open     func(traj.Task, env.Config) (env.Environment, error) // of one trajectory, with the run's tools
}

const searchEnv = "search"

// environments are what a row and Options.Env may name; the first is the default.
var environments = []environment{
	{name: "tool", defaults: func(*Options) {}, open: toolEnvironment},
	{name: searchEnv, prompt: SearchPrompt, defaults: searchDefaults, open: toolEnvironment},
	{name: "no-search", prompt: NoSearchPrompt, defaults: noSearchDefaults, open: toolEnvironment},
	{deepEyesEnv, "", deepEyesSystem, deepEyesReward, deepEyesDefaults, toolEnvironment},
	{"visual_toolbox_v2", "", deepEyesSystem, deepEyesReward, deepEyesDefaults, toolEnvironment}, // as DeepEyes' rows call it
}

const deepEyesEnv = "deepeyes"

// Rewards of DeepEyes' rows.
const (
	deepEyesReward     = "deepeyes"
	deepEyesMathReward = "deepeyes-math"
)

// sourceRewards are the rewards that DeepEyes chooses by a row's data_source
// (verl/utils/reward_score/__init__.py). Of geoguessr it has the parts of deepeyes, and a
// judge in the form of deepeyes-math.
var sourceRewards = map[string]string{
	"vstar": deepEyesReward, "vl_agent": deepEyesReward, "chart": deepEyesReward, "geoguessr": deepEyesReward,
	"thinklite_eureka": deepEyesMathReward, "xince": deepEyesMathReward,
}

func toolEnvironment(_ traj.Task, c env.Config) (env.Environment, error) { return env.New(c) }

// Environments names them.
func Environments() []string {
	names := make([]string, len(environments))
	for i, e := range environments {
		names[i] = e.name
	}
	return names
}

// environmentNamed finds an environment; "" is the default one.
func environmentNamed(name string) (environment, error) {
	if name == "" {
		return environments[0], nil
	}
	for _, e := range environments {
		if e.name == name {
			return e, nil
		}
	}
	remedy := ""
	if near := text.Nearest(name, Environments()); near != "" {
		remedy = fmt.Sprintf("did you mean %s? ", near)
	}
	return environment{}, exit.Usagef("%s %q: there is no such environment; %sthe environments are %s", setting.Name("Env"), name, remedy,
		strings.Join(Environments(), ", "))
}

// ByEnv adds to a dataset's options which environments its rows may name, what these suggest,
// and the rewards of rows by their source. A reward that the user named is that of all rows.
func (o *Options) ByEnv(d datasets.Options) datasets.Options {
	d.Env, d.Envs, d.EnvDefaults = o.Env, Environments(), map[string]datasets.EnvDefaults{}
	for _, e := range environments {
		own := datasets.EnvDefaults{Prompt: e.prompt}
		if e.system != nil {
			own.System = e.system(*o)
		}
		if o.Reward == "" {
			own.Reward = e.reward
		}
		d.EnvDefaults[e.name] = own
	}
	if o.Reward == "" {
		d.SourceRewards = sourceRewards
	}
	return d
}

// SearchPrompt is the question's surroundings that Search-R1 trains base models with
// (scripts/data_process/nq_search.py).
const SearchPrompt = "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new " +
	"information. After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query </search> and it " +
	"will return the top searched results between <information> and </information>. You can search as many times as your want. If you " +
	"find no further external knowledge needed, you can directly provide the answer inside <answer> and </answer>, without detailed " +
	"illustrations. For example, <answer> Beijing </answer>. Question: {question}\n"

// NoSearchPrompt is the question's surroundings of Search-R1's baseline without a search
// (scripts/data_process/nq.py).
const NoSearchPrompt = "Answer the given question. You should first have a reasoning process in mind and then provides the answer. " +
	"Show your reasoning in <think> </think> tags and return the final answer in <answer> </answer> tags, for example " +
	"<answer> Beijing </answer>. Question: {question}\n"

// Search-R1's limits (train_ppo.sh): turns with a search, and tokens of a reply and of
// what a search found.
const (
	searchTurns  = 4
	searchTokens = 500
)

// searchDefaults are Search-R1's: results in the model's own reply, four turns and one
// more without a search.
func searchDefaults(o *Options) {
	o.ContinueReply, o.FinalTurn = true, true
	if o.Tools == nil {
		o.Tools = []string{}
		if len(o.Added.Programs) == 0 && len(o.Added.MCP) == 0 && o.Added.MCPConfig == "" {
			o.Tools = []string{"search"}
		}
	}
	if o.Prompt == nil {
		prompt := SearchPrompt
		o.Prompt = &prompt
	}
	if o.MaxTurns == 0 {
		o.MaxTurns = searchTurns
	}
	if o.Sampling.MaxTokens == 0 {
		o.Sampling.MaxTokens = searchTokens
	}
	if o.MaxObservationTokens == 0 {
		o.MaxObservationTokens = searchTokens
	}
}

// noSearchDefaults are those of do_search=false: one reply, without tools.
func noSearchDefaults(o *Options) {
	if o.Tools == nil {
		o.Tools = []string{}
	}
	if o.Prompt == nil {
		prompt := NoSearchPrompt
		o.Prompt = &prompt
	}
	if o.MaxTurns == 0 {
		o.MaxTurns = 1
	}
	if o.Sampling.MaxTokens == 0 {
		o.Sampling.MaxTokens = searchTokens
	}
}

// DeepEyes' limits (agent.max_turns, agent.single_response_max_tokens): replies, and tokens of
// each. A call in the last reply is not run.
const (
	deepEyesTurns  = 5
	deepEyesTokens = 10240
)

// deepEyesSystem is the system prompt of rows that have none, in the form that the reward
// deepeyes reads. It names the tool where that is offered.
func deepEyesSystem(o Options) string {
	look := ""
	if o.Tools == nil || slices.Contains(o.Tools, zoomTool) {
		look = "Where something is too small to see, call " + zoomTool + " with a box around it: " +
			"the result is that part of the original image. You may call it several times. "
	}
	return "You answer questions about images. Think first, between <think> and </think>. " + look +
		"Write the final answer between <answer> and </answer>, as short as possible."
}

// deepEyesDefaults are DeepEyes': the tool that zooms, and five turns.
func deepEyesDefaults(o *Options) {
	if o.Tools == nil {
		o.Tools = []string{zoomTool}
	}
	if o.MaxTurns == 0 {
		o.MaxTurns = deepEyesTurns
	}
	if o.Sampling.MaxTokens == 0 {
		o.Sampling.MaxTokens = deepEyesTokens
	}
}
