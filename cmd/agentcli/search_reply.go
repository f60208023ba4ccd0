package main

import (
	"slices"

	"agentcli/internal/exit"
	"agentcli/model/chat"
)

// continueReply makes the run what --continue-reply asks for: results in the model's
// own reply, in the words of Search-R1.
func (x *session) continueReply() error {
	if !x.o.ContinueReply {
		return nil
	}
	switch x.o.Model.Parser {
	case "", chat.ParserAuto, chat.ParserHermes, chat.ParserSearch:
		x.o.Model.Parser = chat.ParserSearch
	default:
		return exit.Usagef("--continue-reply puts <information> behind <search>, and --parser %s looks for other calls; leave one of them out", x.o.Model.Parser)
	}
	if len(x.tools.Tools) == 0 {
		return exit.Usagef("--continue-reply needs a tool that searches: --tool exec:CMD, or --mcp")
	}
	x.o.Model.InReply, x.tools.InReply = true, chat.SearchInReply
	if !slices.Contains(x.o.Sampling.Stop, chat.SearchStop) {
		x.o.Sampling.Stop = append(slices.Clone(x.o.Sampling.Stop), chat.SearchStop)
	}
	return nil
}
