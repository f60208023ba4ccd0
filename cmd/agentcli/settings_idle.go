package main

import (
	"slices"
	"strings"

	"agentcli/internal/exit"
	"agentcli/internal/text"
	"agentcli/rewards"

	"github.com/urfave/cli/v2"
)

// idleBecause says why a setting has no effect beside the others; "": it has one.
func (o *options) idleBecause(s row, c *cli.Context) string {
	if s.always {
		return ""
	}
	if s.idle != nil {
		return s.idle(c)
	}
	for _, x := range o.config().Applicability() {
		if !x.Acts && slices.Contains(strings.Fields(x.Flags), s.name) {
			return x.Why
		}
	}
	return ""
}

// unread says why an option of a reward, or all for "", have no effect in training; "": they
// have one, or the reward is the dataset's.
func (o *options) unread(option string) func(*cli.Context) string {
	return func(c *cli.Context) string {
		switch reward := o.loop.Train.Reward; {
		case reward == "" && commandOf(c) == forTrain:
			return "without --reward: the rewards are those in the file"
		case reward != "" && option != "" && !rewards.Reads(reward, option):
			return "on --reward " + text.Redact(reward)
		}
		return ""
	}
}

// givenFlags are the flags that the command line, before any file was applied, asks
// something by: one that switches off what is off by default asks for nothing.
func givenFlags(c *cli.Context) map[string]bool {
	given := map[string]bool{}
	for _, s := range newOptions().rows(commandOf(c)) {
		v, ok := s.given(c)
		given[s.name] = ok && !(isOff(v) && isOff(s.initial()))
	}
	return given
}

func isOff(v any) bool {
	switch v {
	case 0, int64(0), 0., "", false:
		return true
	}
	return false
}

// refuseIdle refuses a setting of training that is given and has no effect: whoever gives
// it expects one. A name of a file or a model is refused wherever it comes from. Of the
// others a file of settings has all, as --print-config writes it.
func (o *options) refuseIdle(c *cli.Context, given map[string]bool) error {
	for _, s := range o.rows(commandOf(c)) {
		named := s.kind&(path|address) != 0 && len(s.fields()) > 0
		if (s.fixed|s.free)&commandOf(c)&trainLoop == 0 || !named && !given[s.name] {
			continue
		}
		value := ""
		if named {
			if value, _ = held(s.fields()[0]).(string); value == "" {
				continue
			}
		}
		if why := o.idleBecause(s, c); why != "" {
			return exit.Usagef("--%s has no effect %s", strings.TrimSpace(s.name+" "+value), why)
		}
	}
	return nil
}
