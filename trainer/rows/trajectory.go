package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"agentcli/internal/malformed"
	"agentcli/lossscale"
	"agentcli/trainer/episode"
	"agentcli/traj"
)

// parseRow checks one row. reason is why it takes no part, err a row that
// contradicts itself.
func parseRow(t *traj.Trajectory, id string, o *Options) (e *episode.Episode, reason string, err error) {
	if t.Termination.Infrastructure() {
		return nil, "ended by " + string(t.Termination), nil
	}
	score := 0.0
	if t.Reward != nil {
		score = *t.Reward
	} else if o.Reward {
		return nil, "without a reward", nil
	}
	unscored := t.Reward == nil
	if math.IsNaN(score) || math.IsInf(score, 0) {
		if o.Reward {
			return nil, "", malformed.Field("reward", malformed.Range, "%v is no number; score the file again", *t.Reward)
		}
		score, unscored = 0, true
	}
	e = &episode.Episode{ID: id, Group: t.GroupID, Task: t.Task.ID, Score: score, Unscored: unscored,
		PolicyVersion: t.PolicyVersion, VersionsAhead: versionsAhead(t),
		Body: &episode.Body{Role: roleOf(t), Parts: t.RewardParts, Termination: t.Termination,
			Turns: len(t.Steps), LastRound: -1}}
	if o.Demonstrations != nil {
		if e.Question = t.Task.Question; e.Question == "" {
			return nil, "", malformed.Errorf(malformed.Missing, "it has no question, so there is no place for a demonstration")
		}
		if e.Demonstration, err = o.Demonstrations(t); err != nil {
			return nil, "", err
		}
	}
	kept := make([]int, len(t.Sequences)) // where a sequence stands in the episode
	for i := range t.Sequences {
		kept[i] = -1
		s := &t.Sequences[i]
		if err := s.Validate(); err != nil {
			return nil, "", malformed.Field(fmt.Sprintf("sequence %d", i), malformed.Mismatch, "%w", err)
		}
		if len(s.LossMask) > 0 && s.LossMask[0] {
			return nil, "", malformed.Field(fmt.Sprintf("sequence %d", i), malformed.Range,
				"its first token is marked as sampled, but nothing stands before it")
		}
		if n := s.Sampled(); n > 0 {
			e.Sampled += n
			kept[i] = len(e.Sequences)
			e.Sequences = append(e.Sequences, *s)
		}
	}
	if e.Sampled == 0 && len(t.Sequences) > 0 {
		return nil, "without a sampled token", nil
	}
	if e.Sampled == 0 && t.Termination == traj.PromptTooLong {
		return nil, "ended by " + string(t.Termination) + " before a token was sampled", nil
	}
	if e.Sampled == 0 {
		return nil, "without token ids (their server returned none; use vLLM or SGLang, or a local policy)", nil
	}
	e.Prompt = slices.Index(e.Sequences[0].LossMask, true)
	if len(t.Steps) == 0 { // of another program
		_, e.LastRound = lossscale.LastReply(e.Sequences)
	}
	for i, s := range t.Steps {
		e.ToolCalls += s.ToolCalls
		e.ToolErrors += s.ToolErrors
		switch {
		case s.ToolMalformed == nil:
			e.Malformed = -1
		case e.Malformed >= 0:
			e.Malformed += *s.ToolMalformed
		}
		if s.Sequence < 0 || s.Sequence >= len(kept) || kept[s.Sequence] < 0 || s.Start < 0 ||
			s.End > len(t.Sequences[s.Sequence].TokenIDs) || s.Start >= s.End {
			if s.Reward != nil && *s.Reward != 0 {
				return nil, "", malformed.Field(fmt.Sprintf("step %d", i), malformed.Missing, "it has a reward, but no tokens that it is for")
			}
			continue
		}
		if kept[s.Sequence] == len(e.Sequences)-1 {
			e.LastRound = s.Start
		}
		if r := s.Reward; r != nil {
			if math.IsNaN(*r) || math.IsInf(*r, 0) {
				return nil, "", malformed.Field(fmt.Sprintf("step %d: reward", i), malformed.Range, "%v is no number; score the file again", *r)
			}
			e.StepRewards = append(e.StepRewards, episode.StepReward{Sequence: kept[s.Sequence], Token: s.End - 1, Reward: *r})
		}
	}
	return e, "", nil
}

// versionsAhead is how much newer than the row's version the weights are that drew its tokens.
func versionsAhead(t *traj.Trajectory) (ahead episode.Ahead) {
	sum, tokens := 0., 0
	for i := range t.Steps {
		s := &t.Steps[i]
		n := s.End - s.Start
		tokens += n
		for _, v := range s.PolicyVersions {
			d := v - t.PolicyVersion
			ahead.Most = max(ahead.Most, d)
			sum += float64(d) * float64(n) / float64(len(s.PolicyVersions))
		}
	}
	if tokens > 0 {
		ahead.Mean = sum / float64(tokens)
	}
	return ahead
}

// roleOf is what rae compares a row with: its dataset and, where its meta has one, the
// key "role" (SPIRAL keeps a baseline for each game and role).
func roleOf(t *traj.Trajectory) string {
	var meta struct {
		Role string `json:"role"`
	}
	if bytes.Contains(t.Task.Meta, []byte("role")) && json.Unmarshal(t.Task.Meta, &meta) == nil && meta.Role != "" {
		return t.Task.Dataset + "/" + meta.Role
	}
	return t.Task.Dataset
}
