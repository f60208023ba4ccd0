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
	Messages         []messageJSON    `json:"messages"`
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
	RoutedExperts    []*traj.Experts  `json:"routed_experts,omitempty"`
	Images           []imageJSON      `json:"images,omitempty"`
}

// messageJSON is a message whose images are in the column images.
type messageJSON struct {
	traj.Message
	Content string    `json:"content"`
	Images  *struct{} `json:"images,omitempty"` // never written
	Refs    []refJSON `json:"image_refs,omitempty"`
}

type refJSON struct {
	Image int `json:"image"`
	At    int `json:"at"`
}

type imageJSON struct {
	Hash   string  `json:"hash"`
	Path   *string `json:"path"`
	Bytes  []byte  `json:"bytes"`
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Source *string `json:"source"`
	Box    []int   `json:"box"`
}

// RowJSON is a trajectory as one JSON object with the columns of a file. What is null
// there is null here; meta is an object. The files of images are in the column images alone.
// It fails where a file could not be written: with traj.ErrImagePlaces, for example.
func RowJSON(t *traj.Trajectory) ([]byte, error) {
	if err := checkImages(t); err != nil {
		return nil, err
	}
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	r := rowJSON{ID: t.ID, TaskID: t.Task.ID, Dataset: t.Task.Dataset, Split: t.Task.Split, GroupID: t.GroupID, Attempt: t.Attempt,
		Seed: t.Seed, Policy: t.Policy, PolicyVersion: t.PolicyVersion, Question: t.Task.Question, Answer: notNull(t.Task.Answers),
		Extracted: t.Extracted, Messages: make([]messageJSON, len(t.Messages)), Steps: notNull(t.Steps),
		Sequences: make([]traj.Sequence, len(t.Sequences)),
		Reward:    t.Reward, RewardParts: notNull(t.RewardParts), Correct: t.Correct, Termination: t.Termination, Error: text(t.Error),
		PromptTokens: t.PromptTokens, CompletionTokens: t.CompletionTokens, Turns: t.Turns(), DurationMS: t.DurationMS,
		StartedAt: t.StartedAt, Meta: t.Task.Meta, Verdict: text(t.Verdict), ExtractionRule: text(t.ExtractionRule),
		Env: text(t.Task.Env), Infos: t.Infos}
	if len(r.Meta) == 0 {
		r.Meta = json.RawMessage("{}")
	}
	for len(r.Infos) > 0 && len(r.Infos) < len(t.Steps) {
		r.Infos = append(r.Infos[:len(r.Infos):len(r.Infos)], nil)
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		content, at := markImages(m)
		r.Messages[i] = messageJSON{Message: *m, Content: content}
		for k := range m.Images {
			r.Messages[i].Refs = append(r.Messages[i].Refs, refJSON{number(t, &m.Images[k]), at[k]})
		}
	}
	for _, im := range t.Images {
		x := imageJSON{Hash: im.Hash, Path: text(im.Path), Bytes: im.Bytes, Width: im.Width, Height: im.Height}
		if im.Crop != nil {
			x.Source, x.Box = &im.Crop.Source, im.Crop.Box[:]
		}
		r.Images = append(r.Images, x)
	}
	for i, s := range t.Sequences {
		if t.Weighed() {
			r.LossWeights = append(r.LossWeights, s.Weights)
		}
		if t.HasExperts() {
			r.RoutedExperts = append(r.RoutedExperts, s.Experts)
		}
		s.Weights, s.Experts = nil, nil
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
