package rollout

import (
	"slices"

	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/model/chat"
	"agentcli/traj"
)

// continueReply settles what Options.ContinueReply asks for: results in the model's own
// reply, in the words of Search-R1.
func (o *Options) continueReply(tools *toolset) (traj.Form, error) {
	if !o.ContinueReply {
		return nil, nil
	}
	switch o.Model.Parser {
	case "", chat.ParserAuto, chat.ParserHermes, chat.ParserSearch:
		o.Model.Parser = chat.ParserSearch
	default:
		return nil, exit.Usagef("%s puts <information> behind <search>, and %s %s looks for other calls; leave one of them out",
			setting.Name("ContinueReply"), setting.Name("Parser"), o.Model.Parser)
	}
	if len(tools.config.Tools) == 0 {
		what := setting.Name("ContinueReply").String()
		if o.Env == searchEnv {
			what = "the environment " + searchEnv
		}
		return nil, exit.Usagef("%s needs a tool that searches: %s search, %s exec:CMD, or %s", what, setting.Name("Tools"),
			setting.Name("Tool"), setting.Name("MCP"))
	}
	tools.config.InReply = chat.SearchInReply
	if !slices.Contains(o.Sampling.Stop, chat.SearchStop) {
		o.Sampling.Stop = append(slices.Clone(o.Sampling.Stop), chat.SearchStop)
	}
	return chat.ParserFor(chat.ParserSearch, tools.config.Specs())
}
