package llm

import (
	"fmt"
	"slices"
	"sync/atomic"

	"agentcli/internal/setting"
	"agentcli/traj"
)

// continuity tells the user once of prompts that do not go on with the tokens so far.
type continuity struct{ told atomic.Bool }

// check says once when the prompt of a later turn does not begin with the prompt and
// the reply of the turn before it, images included, where the server returns ids: every such
// turn begins a new sequence, and the model reads another history than it wrote.
func (c *continuity) check(req *traj.Request, resp *traj.Response, notice func(string)) {
	n := len(req.PrefixIDs)
	k := len(req.PrefixImages)
	if n == 0 || len(resp.PromptIDs) == 0 || len(resp.PromptIDs) >= n && slices.Equal(resp.PromptIDs[:n], req.PrefixIDs) &&
		len(resp.Images) >= k && slices.Equal(resp.Images[:k], req.PrefixImages) {
		return
	}
	var last traj.Message // the reply
	if k := req.PrefixMessages; k > 0 && k <= len(req.Messages) {
		last = req.Messages[k-1]
	}
	if len(last.ToolCalls) > 0 && len(req.Tools) == 0 { // the final turn, in which no tools are offered
		return
	}
	if c.told.Swap(true) {
		return
	}
	why := "the server makes other tokens of the same text"
	switch {
	case req.Continue:
		why = "the chat template writes a reply that goes on otherwise than the model wrote it"
	case last.Reasoning != "":
		why = "the chat template, or the server, leaves out what the model thought in earlier turns"
	case len(last.ToolCalls) > 0:
		why = "the chat template writes tool calls otherwise than the model wrote them"
	}
	notice(fmt.Sprintf("the prompt of a later turn does not begin with the prompt and the reply before it: most likely %s. "+
		"Each such turn begins a new sequence; %s keeps the tokens as they were sampled", why, setting.Name("llm.Tokens")))
}
