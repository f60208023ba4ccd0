package files

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentcli/app/console"
	"agentcli/app/report"
	"agentcli/app/termimage"
	"agentcli/internal/text"
	"agentcli/model/tokenizer"
	"agentcli/parquet"
	"agentcli/traj"
)

func inspectOne(t *traj.Trajectory, meta parquet.Metadata, o InspectOptions, s console.Streams) error {
	weigh, err := openWeighing(o, policyPath(t.Policy, meta))
	if err != nil {
		return err
	}
	weigh.apply(t)
	weigh.note(s)
	if o.JSON {
		if n := dropBad(t); n > 0 {
			s.Say(fmt.Sprintf("warning: %s: %s no number (NaN or infinite), for which JSON has no word: left out",
				text.Harmless(t.ID), map[bool]string{true: "a reward is", false: fmt.Sprint(n, " rewards are")}[n == 1]))
		}
		return console.WriteJSON(s.Out, t)
	}
	var tok *tokenizer.Tokenizer
	if o.Tokens {
		if tok, err = openTokenizer(o, policyPath(t.Policy, meta)); err != nil {
			return err
		}
	}
	b := bufio.NewWriter(s.Out)
	p := console.Painter(o.Color)
	writeHead(b, t, p)
	writeMessages(b, t, p, o.Draw)
	writeSteps(b, t, p)
	writeInfos(b, t, p)
	if tok != nil {
		writeTokens(b, t, tok, p)
	}
	return b.Flush()
}

// dropBad takes out of a trajectory the rewards that are no numbers, and counts them.
func dropBad(t *traj.Trajectory) (n int) {
	drop := func(r **float64) {
		if *r != nil && !traj.Finite(**r) {
			*r = nil
			n++
		}
	}
	drop(&t.Reward)
	for i := range t.Steps {
		drop(&t.Steps[i].Reward)
	}
	parts := len(t.RewardParts)
	t.RewardParts = slices.DeleteFunc(t.RewardParts, func(p traj.Part) bool { return !traj.Finite(p.Value) })
	return n + parts - len(t.RewardParts)
}

// policyPath is where the file says that its model is, else its rows do.
func policyPath(policy string, meta parquet.Metadata) string {
	var run struct {
		Model struct {
			Name string `json:"name"`
		} `json:"model"`
	}
	if json.Unmarshal(meta.Run, &run) == nil && run.Model.Name != "" {
		return run.Model.Name
	}
	return policy
}

func writeHead(b io.Writer, t *traj.Trajectory, p console.Painter) {
	reward := "none"
	if t.Reward != nil {
		reward = fmt.Sprintf("%.6g", *t.Reward)
		code := "31"
		switch {
		case !traj.Finite(*t.Reward):
			reward += " (no number: not scored)"
		case *t.Reward > 0:
			code = "32"
		}
		reward = p.Paint("1;"+code, reward)
	}
	fmt.Fprintf(b, "%s  reward %s", p.Bold(text.Harmless(text.OneLine(t.ID))), reward)
	for _, part := range t.RewardParts {
		fmt.Fprintf(b, "  %s %.6g", text.Harmless(text.OneLine(part.Name)), part.Value)
	}
	fmt.Fprintf(b, "  ended: %s\n", text.Harmless(string(t.Termination)))
	if t.Error != "" {
		fmt.Fprintf(b, "%s\n", p.Paint("31", "error: "+text.Harmless(t.Error)))
	}
	extracted := "none"
	if t.Extracted != nil {
		extracted = fmt.Sprintf("%q", *t.Extracted)
	}
	fmt.Fprintf(b, "gold %q  found %s  policy %s version %d  seed %d  %d ms\n\n", t.Task.Answers, extracted,
		text.Harmless(text.OneLine(t.Policy)), t.PolicyVersion, t.Seed, t.DurationMS)
}

// writeMessages shows who said what; the replies that the policy sampled in
// this trajectory, and is trained on, are marked with a bar.
func writeMessages(b io.Writer, t *traj.Trajectory, p console.Painter, shows termimage.Protocol) {
	byMessage, history := replySteps(t)
	for i := range t.Messages {
		m := &t.Messages[i]
		bar, note := "  ", ""
		if m.Role == traj.RoleAssistant {
			n := 0
			for _, k := range byMessage[i] {
				n += trained(t, t.Steps[k])
			}
			switch steps := byMessage[i]; {
			case n > 0:
				bar, note = p.Paint("32", "┃ "), p.Dim(fmt.Sprintf("  %s, %d tokens trained on", stepNames(steps), n))
			case len(steps) > 0:
				note = p.Dim(fmt.Sprintf("  %s, no tokens that are trained on", stepNames(steps)))
			case history:
				note = p.Dim("  of the rewritten history")
			default:
				note = p.Dim("  worked example")
			}
		}
		name := text.Name(m.Role, 200)
		if m.Name != "" {
			name += " " + text.Name(m.Name, 200)
		}
		fmt.Fprintf(b, "%s%s%s\n", bar, p.Role(m.Role, name), note)
		body := func(content string, style func(string) string) {
			for _, l := range strings.Split(text.Harmless(content), "\n") {
				fmt.Fprintf(b, "%s  %s\n", bar, style(l))
			}
		}
		plain := func(s string) string { return s }
		if m.Reasoning != "" {
			body(m.Reasoning, p.Dim)
		}
		if m.Content != "" || len(m.ToolCalls) == 0 {
			writeContent(b, t, m, shows, func(s string) { body(s, plain) })
		}
		for _, c := range m.ToolCalls {
			body(fmt.Sprintf("→ %s(%s)", c.Name, c.Arguments), func(s string) string { return p.Paint("36", s) })
		}
	}
}

// stepNames says which steps sampled a reply: more than one where it was gone on with.
func stepNames(steps []int) string {
	if len(steps) == 1 {
		return fmt.Sprintf("step %d", steps[0])
	}
	return fmt.Sprintf("steps %d–%d", steps[0], steps[len(steps)-1])
}

// trained counts the tokens of a step that the loss mask marks and that weigh anything.
func trained(t *traj.Trajectory, st traj.Step) int {
	if st.Sequence < 0 || st.Sequence >= len(t.Sequences) {
		return 0
	}
	s := &t.Sequences[st.Sequence]
	n := 0
	for i := max(st.Start, 0); i < min(st.End, len(s.LossMask)); i++ {
		if s.LossMask[i] && weightOf(s, i) > 0 {
			n++
		}
	}
	return n
}

func writeSteps(b io.Writer, t *traj.Trajectory, p console.Painter) {
	if len(t.Steps) == 0 {
		return
	}
	fmt.Fprintln(b)
	header := []string{"step", "sequence", "span", "trained", "mean logprob", "finish", "calls", "errors", "model ms", "env ms"}
	rewarded := slices.ContainsFunc(t.Steps, func(st traj.Step) bool { return st.Reward != nil })
	if rewarded {
		header = append(header, "reward")
	}
	var rows [][]string
	for k, st := range t.Steps {
		seq, span := "-", "-"
		if st.Sequence >= 0 {
			seq, span = fmt.Sprint(st.Sequence), fmt.Sprintf("%d–%d", st.Start, st.End)
		}
		row := []string{fmt.Sprint(k), seq, span, fmt.Sprint(trained(t, st)), meanLogprob(t, st), text.Name(st.FinishReason, 40),
			fmt.Sprint(st.ToolCalls), fmt.Sprint(st.ToolErrors), fmt.Sprintf("%.0f", st.ModelMS), fmt.Sprintf("%.0f", st.EnvMS)}
		switch {
		case st.Reward != nil:
			row = append(row, fmt.Sprintf("%.6g", *st.Reward))
		case rewarded:
			row = append(row, "-")
		}
		rows = append(rows, row)
	}
	_ = report.Table(b, "", header, rows) // b is a buffer: its Flush gives the error
	if len(t.Sequences) == 0 {
		fmt.Fprintln(b, p.Dim("no token ids: this trajectory cannot be trained on"))
	}
}

func meanLogprob(t *traj.Trajectory, st traj.Step) string {
	if st.Sequence < 0 || st.Sequence >= len(t.Sequences) {
		return "-"
	}
	s, sum, n := &t.Sequences[st.Sequence], 0.0, 0
	for i := max(st.Start, 0); i < min(st.End, len(s.Logprobs)); i++ {
		if s.Logprobs[i].Known() {
			sum += float64(s.Logprobs[i])
			n++
		}
	}
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", sum/float64(n))
}

// writeTokens shows the sequences as the model saw them. Without colours the
// trained stretches stand between ⟦ and ⟧. A weight in the loss that is not 1 stands
// before its stretch: ⟦2× …⟧.
func writeTokens(b io.Writer, t *traj.Trajectory, tok *tokenizer.Tokenizer, p console.Painter) {
	cuts := cutOff(t)
	for k := range t.Sequences {
		s := &t.Sequences[k]
		head := fmt.Sprintf("sequence %d: %d tokens, %d trained on", k, len(s.TokenIDs), trained(t, traj.Step{Sequence: k, End: len(s.TokenIDs)}))
		if cuts[k] > 0 {
			head += fmt.Sprintf(", %d cut off", cuts[k])
		}
		fmt.Fprintf(b, "\n%s\n", p.Bold(head))
		for i := 0; i < len(s.TokenIDs); {
			j := i
			for j < len(s.TokenIDs) && s.LossMask[j] == s.LossMask[i] && (!s.LossMask[i] || weightOf(s, j) == weightOf(s, i)) {
				j++
			}
			shown := text.Harmless(tok.Decode(s.TokenIDs[i:j], false))
			if w := weightOf(s, i); w != 1 && s.LossMask[i] {
				shown = fmt.Sprintf("%g× %s", w, shown)
			}
			switch {
			case !s.LossMask[i]:
				shown = p.Dim(shown)
			case bool(p):
				shown = p.Paint("4;32", shown)
			default:
				shown = "⟦" + shown + "⟧"
			}
			fmt.Fprint(b, shown)
			i = j
		}
		fmt.Fprintln(b)
	}
}
