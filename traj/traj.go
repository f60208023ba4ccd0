// Package traj holds the nouns that every other package speaks of: tasks,
// messages, steps, token sequences and trajectories. It is in layer 0: it imports
// the standard library only and knows nothing of agents, models or files.
package traj

import (
	"encoding/json"
	"slices"
	"time"
)

// Roles of a message, as the OpenAI chat API names them.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Task is one problem of a dataset.
type Task struct {
	ID       string          `json:"id"`
	Dataset  string          `json:"dataset"`
	Split    string          `json:"split,omitempty"`
	Question string          `json:"question"`          // the problem's own text, without the prompt around it
	Messages []Message       `json:"messages"`          // the whole opening conversation: system, shots, question
	Answers  []string        `json:"answers,omitempty"` // gold answers; any one of them counts
	Env      string          `json:"env,omitempty"`     // "" is the tool environment
	Tools    []string        `json:"tools,omitempty"`   // names of the tools that the dataset wants
	Reward   string          `json:"reward,omitempty"`  // name of the reward
	Meta     json.RawMessage `json:"meta,omitempty"`    // free JSON, carried into the file
}

// ToolCall is one call that a model asked for.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text of an object
}

// CallError is a tool call that could not be read: what the model wrote and
// what is wrong with it, in words meant for the model.
type CallError struct {
	Raw    string `json:"raw"`
	Reason string `json:"reason"`
}

// Message is one turn of a conversation. Where a reply holds tool calls,
// Content is the text beside them, without the calls' own markup. Where it has images, Content
// has an ImageMark for each.
type Message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Reasoning  string     `json:"reasoning,omitempty"`
	Name       string     `json:"name,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	Images     []Image    `json:"images,omitempty"`
}

// ToolSpec describes a tool to a model.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema of the arguments object
}

// Action is what an agent makes of a reply: calls to run, or a final answer.
type Action struct {
	ToolCalls  []ToolCall  // to be run, in this order
	CallErrors []CallError // calls that could not be read; each becomes a tool message
	Final      bool        // the conversation is over
	Answer     string      // the text of the final reply; meaningful if Final
}

// Observation is what an environment gives back. Its tokens are never trained
// on.
type Observation struct {
	Messages []Message // a new turn: tool results or a user message
	Continue string    // or text that continues the model's own reply in the same turn
}

// Finish reasons of one model call.
const (
	FinishStop      = "stop"
	FinishLength    = "length"
	FinishToolCalls = "tool_calls"
)

// Step is one model call and what followed it. Start and End are the span of
// its sampled tokens in TokenIDs of the trajectory's sequence number Sequence;
// Sequence is -1 where the server returned no ids.
type Step struct {
	Sequence         int      `json:"sequence"`
	Start            int      `json:"start"`
	End              int      `json:"end"`
	FinishReason     string   `json:"finish_reason"`
	ToolCalls        int      `json:"tool_calls"`
	ToolErrors       int      `json:"tool_errors"` // calls that failed or could not be read
	Reward           *float64 `json:"reward,omitempty"`
	PromptTokens     int      `json:"prompt_tokens"`
	CompletionTokens int      `json:"completion_tokens"`
	ModelMS          float64  `json:"model_ms"`
	EnvMS            float64  `json:"env_ms"`
	Error            string   `json:"error,omitempty"`
	ToolCached       *int     `json:"tool_cached,omitempty"` // calls that a cache answered; nil: it was asked for none
	// ToolMalformed are the calls among the errors that could not be read, or did not fit
	// any tool; nil: nobody counted.
	ToolMalformed *int `json:"tool_malformed,omitempty"`
	// PolicyVersions are those of the weights that drew the sampled tokens: one for all of
	// them, or one for each where weights were exchanged amid the reply; nil: all are the
	// trajectory's PolicyVersion.
	PolicyVersions []int64 `json:"policy_versions,omitempty"`
}

// Trajectory is one attempt at one task: all that happened, and the exact
// tokens to learn from. Missing numbers are nil, never zero.
type Trajectory struct {
	ID            string     `json:"id"` // Task.ID#Attempt
	Task          Task       `json:"task"`
	GroupID       string     `json:"group_id"` // attempts that are compared with each other
	Attempt       int        `json:"attempt"`
	Seed          int64      `json:"seed"`
	Policy        string     `json:"policy"`
	PolicyVersion int64      `json:"policy_version"` // of the weights; the oldest of the steps'
	Messages      []Message  `json:"messages"`
	Steps         []Step     `json:"steps"`
	Sequences     []Sequence `json:"sequences"`
	Images        []Image    `json:"images,omitempty"` // of messages and sequences, each once, as they came
	// Infos is what a scheduler said of each step, by the step's number; shorter than Steps
	// where it said nothing of the last ones, nil where it said nothing at all.
	Infos       []Info   `json:"infos,omitempty"`
	Extracted   *string  `json:"extracted,omitempty"`
	Reward      *float64 `json:"reward,omitempty"`
	RewardParts []Part   `json:"reward_parts,omitempty"`
	Correct     *bool    `json:"correct,omitempty"`
	// Verdict is right, wrong, undecided or no_answer, of a grader that can fail to decide;
	// ExtractionRule is the rule by which it found Extracted. "": the reward has no such thing.
	Verdict        string `json:"verdict,omitempty"`
	ExtractionRule string `json:"extraction_rule,omitempty"`

	// Branches are further trajectories of the same attempt, until the engine hands them on:
	// each is a row of its own.
	Branches []*Trajectory `json:"branches,omitempty"`

	Termination Termination `json:"termination"`
	Error       string      `json:"error,omitempty"`

	PromptTokens     int       `json:"prompt_tokens"`     // of the first prompt
	CompletionTokens int       `json:"completion_tokens"` // sampled, over all steps
	DurationMS       int64     `json:"duration_ms"`
	StartedAt        time.Time `json:"started_at"`
}

// Part is one named component of a reward.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Turns is the number of model calls that gave a reply.
func (t *Trajectory) Turns() int { return len(t.Steps) }

// FinalReply is the last message if it is the model's, or nil. A reply whose
// tool calls never got an answer is not final: the trajectory was cut off there, and no
// reward should read the calls as if they were an answer.
func (t *Trajectory) FinalReply() *Message {
	if len(t.Messages) == 0 {
		return nil
	}
	last := &t.Messages[len(t.Messages)-1]
	if last.Role != RoleAssistant || len(last.ToolCalls) > 0 {
		return nil
	}
	return last
}

// AddImage puts an image into the trajectory's list, unless it is there, and says its number.
func (t *Trajectory) AddImage(im *Image) int {
	if i := slices.IndexFunc(t.Images, func(have Image) bool { return have.Same(im) }); i >= 0 {
		return i
	}
	t.Images = append(t.Images, *im)
	return len(t.Images) - 1
}

// AddImages puts the images of messages into the trajectory's list, and says their numbers.
func (t *Trajectory) AddImages(messages []Message) (numbers []int) {
	for i := range messages {
		for k := range messages[i].Images {
			numbers = append(numbers, t.AddImage(&messages[i].Images[k]))
		}
	}
	return numbers
}

// Termination says why a trajectory ended.
type Termination string

// The reasons for which a trajectory ends.
const (
	Answered      Termination = "answered"
	EnvDone       Termination = "env_done"
	MaxTurns      Termination = "max_turns"
	MaxTokens     Termination = "max_tokens"      // the trajectory's budget is spent
	TurnLength    Termination = "turn_length"     // one reply hit its own limit
	PromptTooLong Termination = "prompt_too_long" // the next prompt exceeds the prompt limit or the model's window
	EmptyReply    Termination = "empty_reply"
	Timeout       Termination = "timeout"
	ModelFailed   Termination = "model_error"
	EnvFailed     Termination = "env_error"
	RewardFailed  Termination = "reward_error"
	Cancelled     Termination = "cancelled"
)

// Infrastructure reports whether the trajectory ended for a reason that says
// nothing about the policy: it has no reward and must not be scored or trained
// on.
func (t Termination) Infrastructure() bool {
	switch t {
	case ModelFailed, EnvFailed, RewardFailed, Cancelled:
		return true
	}
	return false
}

// Terminations lists every reason, in the order in which reports show them.
var Terminations = []Termination{Answered, EnvDone, MaxTurns, MaxTokens, TurnLength,
	PromptTooLong, EmptyReply, Timeout, ModelFailed, EnvFailed, RewardFailed, Cancelled}
