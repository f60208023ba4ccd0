package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"agentcli/internal/cachedir"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/version"
	"agentcli/llm"
	"agentcli/rewards"
	"agentcli/rewards/judge"
	"agentcli/traj"
)

// JudgeOptions name the model that the reward judge asks, and what it is told.
type JudgeOptions struct {
	Server            string  // URL or URL#MODEL; "": there is no judge
	Rubric            string  // one of judge.Rubrics, or a file; "": the one of the reward's name, else the first
	Votes             int     // 0: 1
	PriceIn, PriceOut float64 // USD for a million tokens; 0: not told
}

// given are the settings beside the server that are not at their defaults.
func (o JudgeOptions) given() []setting.Name {
	var names []setting.Name
	for _, s := range []struct {
		name setting.Name
		is   bool
	}{
		{"Judge.Rubric", o.Rubric != ""}, {"Judge.Votes", o.Votes != 0},
		{"Judge.PriceIn", o.PriceIn != 0}, {"Judge.PriceOut", o.PriceOut != 0},
	} {
		if s.is {
			names = append(names, s.name)
		}
	}
	return names
}

// Judge is the model of a reward judge.
type Judge struct {
	*judge.Judge
	client *llm.Client
	o      JudgeOptions
	notice func(string)
}

// JudgeKey names the variables of the environment with the key of a judge's server; the
// first that is set is taken.
var JudgeKey = []string{"JUDGE_API_KEY", "OPENAI_API_KEY"}

// CheckRewardSettings refuses a judge, and options of rewards, that none of the named rewards
// reads: whoever gives them expects an effect.
func CheckRewardSettings(o JudgeOptions, options rewards.Options, names ...string) error {
	reward := text.Redact(strings.Join(names, " or "))
	reads := func(name string) bool { return rewards.Reads(name, "judge") }
	if o.Server != "" && !slices.ContainsFunc(names, reads) {
		return exit.Usagef("%s has no effect on the reward %s; the judge is asked by %s judge", setting.Name("Judge"), reward,
			setting.Name("Reward"))
	}
	if slices.ContainsFunc(names, rewards.External) {
		return nil // whoever makes it refuses all options
	}
	switch option := options.Idle(names...); option {
	case "":
		return nil
	case "profile":
		return exit.Usagef("%s has no effect on the reward %s", setting.Name("Profile"), reward)
	case "math_tolerance":
		return exit.Usagef("%s has no effect on the reward %s", setting.Name("MathTolerance"), reward)
	default:
		return exit.Usagef("%s: %s has no effect on the reward %s", setting.Name("Grader"), option, reward)
	}
}

// OpenJudge opens the judge that the options name; nil: none. parallel is how many grades
// may be asked for at once. The server must answer.
func OpenJudge(ctx context.Context, o JudgeOptions, parallel int, notice func(string)) (*Judge, error) {
	if o.Server == "" {
		if idle := o.given(); len(idle) > 0 {
			return nil, exit.Usagef("%s has no effect without a judge; name its server with %s URL#MODEL", idle[0], setting.Name("Judge"))
		}
		return nil, nil
	}
	if !IsServer(o.Server) {
		return nil, exit.Usagef("%s %s is no address; write http://HOST:PORT/v1 or http://HOST:PORT/v1#MODEL",
			setting.Name("Judge"), text.Name(o.Server, 80))
	}
	for name, price := range map[setting.Name]float64{setting.Name("Judge.PriceIn"): o.PriceIn, setting.Name("Judge.PriceOut"): o.PriceOut} {
		if !(price >= 0) || math.IsInf(price, 0) {
			return nil, exit.Usagef("%s is %g; want a price of at least 0", name, price)
		}
	}
	var rubric judge.Rubric // of each reward its own
	var err error
	if o.Rubric != "" {
		if rubric, err = judge.OpenRubric(o.Rubric); err != nil {
			return nil, exit.Usagef("%s: %w", setting.Name("Judge.Rubric"), err)
		}
	}
	url, model, _ := strings.Cut(o.Server, "#")
	c := llm.Config{BaseURL: url, Model: model, Parallel: parallel, Patience: -1, UserAgent: "agentcli/" + version.String(), Notice: notice}
	for _, name := range JudgeKey {
		if c.APIKey = os.Getenv(name); c.APIKey != "" {
			break
		}
	}
	if s := UnencryptedKey([]string{url}, c.APIKey); s != "" {
		notice(s)
	}
	if c.Model, err = judgeModel(ctx, c); err != nil {
		return nil, fmt.Errorf("%s: %w", setting.Name("Judge"), err)
	}
	client, err := llm.New(c)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	j, err := judge.New(judge.Config{Model: client, Name: c.Model, Rubric: rubric, Votes: o.Votes, Cache: cachedir.Path("judge")})
	if err != nil {
		_ = client.Close()
		return nil, exit.Usagef("%s: %w", setting.Name("Judge.Votes"), err)
	}
	return &Judge{j, client, o, notice}, nil
}

// judgeModel is the model that the server is to be asked for. A server that is not there
// is found out before the first reply is to be graded.
func judgeModel(ctx context.Context, c llm.Config) (string, error) {
	if c.Model == "" {
		return agreedModel(ctx, &c, setting.Name("Judge").String()+" URL#MODEL")
	}
	c.Retries = -1
	probe, err := llm.New(c)
	if err != nil {
		return "", exit.UsageError{Err: err}
	}
	defer probe.Close()
	var server *llm.ServerError
	if _, err = probe.Models(ctx); errors.As(err, &server) && server.Status == 0 || errors.Is(err, traj.ErrGone) {
		return "", err
	}
	return c.Model, ctx.Err() // who has no list of models may have the model all the same
}

// Rewards is what the rewards ask; nil where there is no judge.
func (j *Judge) Rewards() *judge.Judge {
	if j == nil {
		return nil
	}
	return j.Judge
}

// Close lets connections go, and tells what the judge was asked and what that cost.
func (j *Judge) Close() error {
	if j == nil {
		return nil
	}
	if u := j.Usage(); u.Replies > 0 {
		j.notice(j.o.words(u))
	}
	return j.client.Close()
}

// words tells of a judge's work.
func (o JudgeOptions) words(u judge.Usage) string {
	s := fmt.Sprintf("the judge gave %s, %d of them from the cache; %d prompt and %d reply tokens",
		map[bool]string{true: "1 reply", false: fmt.Sprintf("%d replies", u.Replies)}[u.Replies == 1], u.Cached, u.Prompt, u.Out)
	if o.PriceIn > 0 || o.PriceOut > 0 {
		s += fmt.Sprintf(", %.4f USD", (float64(u.Prompt)*o.PriceIn+float64(u.Out)*o.PriceOut)/1e6)
	}
	if u.Pairs > 0 {
		s += fmt.Sprintf("; the order of a pair changed the verdict in %d of %d", u.Flipped, u.Pairs)
	}
	return s
}
