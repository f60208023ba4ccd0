package llm

import (
	"testing"

	"agentcli/agent"
	"agentcli/llm/llmtest"
	"agentcli/model/chat"
	"agentcli/traj"

	"github.com/google/go-cmp/cmp"
)

// Search-R1's way: the reply stops at </search>, what was found is put behind it,
// and the model goes on with its own message.
func TestAReplyIsContinuedInMessages(t *testing.T) {
	found := "\n\n<information>Doc 1(Title: Paris) é</information>\n\n"
	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.New(t, llmtest.Sequence(
				llmtest.Reply{Content: "<think>where?</think><search>capital", Stop: "</search>", PromptIDs: []int32{1}, IDs: []int32{2, 3}},
				llmtest.Reply{Content: "<search>again", Stop: "</search>", PromptIDs: []int32{1, 2, 3, 4}, IDs: []int32{5}},
				llmtest.Reply{Content: "<answer>Paris</answer>", PromptIDs: []int32{1, 2, 3, 4, 5, 6}, IDs: []int32{7}}))
			p, err := chat.ParserFor("search", nil)
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, s.BaseURL(), func(c *Config) {
				c.Parse, c.Stream = func(s string, _ []traj.ToolSpec) (traj.Message, []traj.CallError) { return p.Parse(s) }, stream
			})
			a := agent.New(nil)
			a.Observe(traj.Observation{Messages: []traj.Message{{Role: traj.RoleUser, Content: "capital of France?"}}})
			var x traj.Trajectory
			for turn := range 3 {
				req := a.Request()
				req.Sampling.Stop = []string{"</search>"}
				resp, err := r.Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, _, err := x.Record(resp.PromptIDs, nil, resp.SampledIDs, resp.Logprobs); err != nil {
					t.Fatal(err)
				}
				if act := a.Update(resp); act.Final != (turn == 2) {
					t.Fatalf("turn %d: %+v", turn, act)
				}
				if turn < 2 {
					a.Observe(traj.Observation{Continue: found})
				}
			}
			whole := "<think>where?</think><search>capital</search>" + found
			for i, want := range []string{"capital of France?", whole, whole + "<search>again</search>" + found} {
				q := s.Requests()[i]
				if q.Last() != want || len(q.Messages) != min(i+1, 2) {
					t.Errorf("request %d ends with %q, want %q", i, q.Last(), want)
				}
				if cont, open := string(q.Fields["continue_final_message"]), string(q.Fields["add_generation_prompt"]); i > 0 &&
					(cont != "true" || open != "false") || i == 0 && cont+open != "" {
					t.Errorf("request %d: continue_final_message %s, add_generation_prompt %s", i, cont, open)
				}
			}
			want := []traj.Sequence{{TokenIDs: []int32{1, 2, 3, 4, 5, 6, 7}, LossMask: []bool{false, true, true, false, true, false, true}}}
			for range want[0].TokenIDs {
				want[0].Logprobs = append(want[0].Logprobs, traj.NoLogprob())
			}
			if diff := cmp.Diff(want, x.Sequences, nanEqual); diff != "" {
				t.Error(diff)
			}
		})
	}
}
