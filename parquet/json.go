package parquet

import (
	"encoding/json"
	"time"

	"agentcli/traj"
)

// rowJSON is a row as JSON, with the names of the columns.
type rowJSON struct {
	ID               string           `json:"id"`
	TaskID           string           `json:"task_id"`
	Dataset          string           `json:"dataset"`
	Split            string           `json:"split"`
	GroupID          string           `json:"group_id"`
	Attempt          int              `json:"attempt"`
	Seed             int64            `json:"seed"`
	Policy           string           `json:"policy"`
	PolicyVersion    int64            `json:"policy_version"`
	Question         string           `json:"question"`
	Answer           []string         `json:"answer"`
	Extracted        *string          `json:"extracted"`
	Messages         []traj.Message   `json:"messages"`
	Steps            []traj.Step      `json:"steps"`
	Sequences        []traj.Sequence  `json:"sequences"`
	Reward           *float64         `json:"reward"`
	RewardParts      []traj.Part      `json:"reward_parts"`
	Correct          *bool            `json:"correct"`
	Termination      traj.Termination `json:"termination"`
	Error            *string          `json:"error"`
	PromptTokens     int              `json:"prompt_tokens"`
	CompletionTokens int              `json:"completion_tokens"`
	Turns            int              `json:"turns"`
	DurationMS       int64            `json:"duration_ms"`
	StartedAt        time.Time        `json:"started_at"`
	Meta             json.RawMessage  `json:"meta"`
	Verdict          *string          `json:"verdict"`
	ExtractionRule   *string          `json:"extraction_rule"`
	Env              *string          `json:"env"`
	Infos            []traj.Info      `json:"infos"`
	LossWeights      [][]float64      `json:"loss_weights"`
}

// RowJSON is a trajectory as one JSON object with the columns of a file. What is null
// there is null here; meta is an object.
func RowJSON(t *traj.Trajectory) ([]byte, error) {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	r := rowJSON{ID: t.ID, TaskID: t.Task.ID, Dataset: t.Task.Dataset, Split: t.Task.Split, GroupID: t.GroupID, Attempt: t.Attempt,
		Seed: t.Seed, Policy: t.Policy, PolicyVersion: t.PolicyVersion, Question: t.Task.Question, Answer: notNull(t.Task.Answers),
		Extracted: t.Extracted, Messages: notNull(t.Messages), Steps: notNull(t.Steps), Sequences: make([]traj.Sequence, len(t.Sequences)),
		Reward: t.Reward, RewardParts: notNull(t.RewardParts), Correct: t.Correct, Termination: t.Termination, Error: text(t.Error),
		PromptTokens: t.PromptTokens, CompletionTokens: t.CompletionTokens, Turns: t.Turns(), DurationMS: t.DurationMS,
		StartedAt: t.StartedAt, Meta: t.Task.Meta, Verdict: text(t.Verdict), ExtractionRule: text(t.ExtractionRule),
		Env: text(t.Task.Env), Infos: t.Infos}
	if len(r.Meta) == 0 {
		r.Meta = json.RawMessage("{}")
	}
	for len(r.Infos) > 0 && len(r.Infos) < len(t.Steps) {
		r.Infos = append(r.Infos[:len(r.Infos):len(r.Infos)], nil)
	}
	for i, s := range t.Sequences {
		if t.Weighed() {
			r.LossWeights = append(r.LossWeights, s.Weights)
		}
		s.Weights = nil
		r.Sequences[i] = s
	}
	return json.Marshal(r)
}

// notNull is a list that JSON writes as one.
func notNull[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
