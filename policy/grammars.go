//go:build libtorch

package policy

import (
	"strings"
	"sync"

	"agentcli/grammar"
	"agentcli/grammar/form"
	"agentcli/model/chat"
	"agentcli/traj"
)

// grammars are those of the replies that Sample draws, compiled once each: a run has one,
// with one list of tools. It is safe for concurrent use.
type grammars struct {
	mu    sync.Mutex
	vocab *grammar.Vocabulary // nil before the first grammar
	made  map[grammarKey]*grammar.Grammar
}

// grammarKey is what a grammar is made of; a list of tools is the same if it is the same in memory.
type grammarKey struct {
	text  string
	tools *traj.ToolSpec
	n     int
}

const keptGrammars = 64 // of rows with tools of their own there may be any number

// matcher is a grammar for one reply; nil: it may be anything.
func (gs *grammars) matcher(p *Policy, g *traj.Grammar) (Grammar, error) {
	if g == nil {
		return nil, nil
	}
	key := grammarKey{text: strings.Join(append([]string{g.Kind, string(g.Schema), g.Pattern}, g.Choices...), "\x00"), n: len(g.Tools)}
	if key.n > 0 {
		key.tools = &g.Tools[0]
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	made, ok := gs.made[key]
	if !ok {
		var err error
		if made, err = form.Of(g, chat.Describe(p.renderer)); err != nil {
			return nil, err
		}
		if len(gs.made) >= keptGrammars || gs.made == nil {
			gs.made = map[grammarKey]*grammar.Grammar{}
		}
		gs.made[key] = made
	}
	if made == nil {
		return nil, nil
	}
	if gs.vocab == nil {
		gs.vocab = grammar.OfTokenizer(p.tok, p.model.VocabSize, endIDs(p))
	}
	return made.Matcher(gs.vocab), nil
}
