package files

import (
	"fmt"
	"io"
	"slices"

	"agentcli/app/console"
	"agentcli/internal/text"
	"agentcli/traj"
)

// generationPrompt is how many tokens in front of a turn are compared with those in front of
// the first one: a chat template ends each prompt with the same ones.
const generationPrompt = 3

// replySteps gives for each message the numbers of the steps that sampled it; nil for a
// message that was not sampled in this trajectory. history reports that the scheduler has
// rewritten the conversation: replies without steps are then those of the rewritten one.
func replySteps(t *traj.Trajectory) (byMessage [][]int, history bool) {
	first := 0
	if t.Infos != nil || t.Weighed() { // a template may begin sequences too, but not with these
		for k := 1; k < len(t.Steps); k++ {
			if t.Steps[k].Sequence != t.Steps[k-1].Sequence {
				first = k
			}
		}
	}
	var replies [][]int
	for k := first; k < len(t.Steps); k++ {
		if k > first && goesOn(t, k) {
			replies[len(replies)-1] = append(replies[len(replies)-1], k)
			continue
		}
		replies = append(replies, []int{k})
	}
	byMessage = make([][]int, len(t.Messages))
	for i := len(t.Messages) - 1; i >= 0 && len(replies) > 0; i-- {
		if t.Messages[i].Role == traj.RoleAssistant {
			byMessage[i], replies = replies[len(replies)-1], replies[:len(replies)-1]
		}
	}
	return byMessage, first > 0
}

// goesOn reports whether step k goes on in the reply of the step before it: no prompt of a
// turn stands in front of its tokens.
func goesOn(t *traj.Trajectory, k int) bool {
	st, before := t.Steps[k], t.Steps[k-1]
	opening := promptEnd(t, t.Steps[0])
	return opening != nil && st.Sequence == before.Sequence && !slices.Equal(promptEnd(t, st), opening)
}

// promptEnd is the last tokens in front of a step's; nil where the file has none.
func promptEnd(t *traj.Trajectory, st traj.Step) []int32 {
	if st.Sequence < 0 || st.Sequence >= len(t.Sequences) || st.Start < generationPrompt || st.Start > len(t.Sequences[st.Sequence].TokenIDs) {
		return nil
	}
	return t.Sequences[st.Sequence].TokenIDs[st.Start-generationPrompt : st.Start]
}

// cutOff gives for each sequence that holds what a scheduler took back the number of those
// tokens, and 0 for the others. No step points to such a sequence, and what was sampled in it
// weighs nothing.
func cutOff(t *traj.Trajectory) []int {
	tokens := make([]int, len(t.Sequences))
	for i := range t.Sequences {
		if s := &t.Sequences[i]; s.Weights != nil && trained(t, traj.Step{Sequence: i, End: len(s.TokenIDs)}) == 0 &&
			!slices.ContainsFunc(t.Steps, func(st traj.Step) bool { return st.Sequence == i }) {
			tokens[i] = s.Sampled()
		}
	}
	return tokens
}

// cutOfStep gives the sequence with what was cut off behind a step, and the number of its
// tokens; 0 tokens: nothing was.
func cutOfStep(t *traj.Trajectory, st traj.Step, cuts []int) (sequence, tokens int) {
	if st.Sequence < 0 || st.Sequence >= len(t.Sequences) {
		return 0, 0
	}
	for i, n := range cuts {
		if n > 0 && i < st.Sequence && slices.Index(t.Sequences[i].LossMask, true) == st.End &&
			st.End <= len(t.Sequences[st.Sequence].TokenIDs) &&
			slices.Equal(t.Sequences[i].TokenIDs[:st.End], t.Sequences[st.Sequence].TokenIDs[:st.End]) {
			return i, n
		}
	}
	return 0, 0
}

// writeInfos shows what a scheduler said of each step, and what it took back.
func writeInfos(b io.Writer, t *traj.Trajectory, p console.Painter) {
	cuts, begun := cutOff(t), false
	line := func(k int, format string, args ...any) {
		if !begun {
			fmt.Fprintln(b)
			begun = true
		}
		fmt.Fprintf(b, "%s  %s\n", p.Dim(fmt.Sprintf("step %d", k)), fmt.Sprintf(format, args...))
	}
	for k, st := range t.Steps {
		if i, n := cutOfStep(t, st, cuts); n > 0 {
			line(k, "%s cut off, in sequence %d", text.Plural(n, "token"), i)
		}
		if k < len(t.Infos) && len(t.Infos[k]) > 0 {
			line(k, "infos %s", text.Harmless(text.OneLine(string(t.Infos[k]))))
		}
	}
}

// told is what schedulers said and took back in a file.
type told struct {
	Infos     int `json:"infos"`          // trajectories with infos
	Cut       int `json:"cut"`            // trajectories with tokens that were cut off
	CutTokens int `json:"cut_off_tokens"` // they are counted, and not trained on
}

func (c *told) add(t *traj.Trajectory) {
	if slices.ContainsFunc(t.Infos, func(i traj.Info) bool { return len(i) > 0 }) {
		c.Infos++
	}
	n := 0
	for _, tokens := range cutOff(t) {
		n += tokens
	}
	if n > 0 {
		c.Cut++
		c.CutTokens += n
	}
}
