package files

import (
	"encoding/base64"
	"encoding/json"
	"iter"
	"math"

	"agentcli/datasets"
	"agentcli/internal/malformed"
	"agentcli/traj"
)

// setStepRewards replaces the rewards of a row's steps: the old ones are part of the reward
// that is replaced. now are those of the new score; nil: it has none.
func setStepRewards(steps any, now []*float64) {
	list, _ := steps.([]any)
	for i, s := range list {
		step, ok := s.(map[string]any)
		switch {
		case !ok:
		case i < len(now) && now[i] != nil:
			step["reward"] = *now[i]
		case step["reward"] != nil:
			step["reward"] = nil
		}
	}
}

// stdinPath stands for stdin in the place of a file.
const stdinPath = "-"

// scoreRow is a row of the file, and the attempt that it tells of.
type scoreRow struct {
	number  int
	fields  map[string]any
	attempt *traj.Trajectory // nil: there is no response
	options string           // the JSON of the row's options; "": there are none
	err     error
}

// rowForm is what rows are, and what of them is read.
type rowForm struct {
	areTrajectories bool
	needAnswers     bool
	readMeta        bool
	objectAnswers   bool
}

func scoreRows(rows iter.Seq2[datasets.Row, error], form rowForm) iter.Seq2[scoreRow, error] {
	return func(yield func(scoreRow, error) bool) {
		for r, err := range rows {
			if err != nil {
				yield(scoreRow{}, err)
				return
			}
			row := scoreRow{number: r.Number, fields: r.Fields}
			row.attempt, row.options, row.err = attemptOf(r.Fields, form)
			if !yield(row, nil) {
				return
			}
		}
	}
}

// attemptOf is the attempt that a row tells of, and the row's options; nil where its
// response is null.
func attemptOf(fields map[string]any, form rowForm) (*traj.Trajectory, string, error) {
	t := &traj.Trajectory{Termination: traj.Answered}
	t.Task.ID, _ = fields["task_id"].(string)
	if id, ok := fields["id"].(string); ok && t.Task.ID == "" {
		t.Task.ID = id
	}
	var err error
	if t.Task.Answers, err = datasets.ReadAnswers(fields["answer"], form.objectAnswers); err != nil {
		return nil, "", &malformed.Error{Field: "answer", Err: err}
	}
	if len(t.Task.Answers) == 0 && form.needAnswers {
		return nil, "", malformed.Field("answer", malformed.Missing, "there is none to score against")
	}
	if term, ok := fields["termination"].(string); ok && term != "" {
		t.Termination = traj.Termination(term)
	}
	options, err := rowOptions(fields["options"])
	if err != nil {
		return nil, "", err
	}
	if form.readMeta {
		if t.Task.Meta, err = rowMeta(fields); err != nil {
			return nil, "", err
		}
	}
	if n, ok := numberOf(fields["completion_tokens"]); ok {
		t.CompletionTokens = int(n)
	}
	if t.Steps, err = rowSteps(fields["steps"]); err != nil {
		return nil, "", err
	}
	if t.Termination == traj.RewardFailed {
		t.Termination = endOf(t.Steps)
	}
	switch resp := fields["response"].(type) {
	case string:
		t.Messages = []traj.Message{{Role: traj.RoleAssistant, Content: resp}}
	case nil:
		ms, ok := fields["messages"]
		if _, given := fields["response"]; given && ms == nil {
			return nil, "", nil
		}
		if !ok || ms == nil {
			return nil, "", malformed.Field("response", malformed.Missing, "there is none, and no messages")
		}
		if list, isList := ms.([]any); isList && len(list) == 0 && form.areTrajectories {
			break // it failed before anything was said
		}
		read := datasets.ReadMessages
		if form.areTrajectories || fields["images"] != nil {
			read = func(any) ([]traj.Message, error) { return storedMessages(fields) }
		}
		if t.Messages, err = read(ms); err != nil {
			return nil, "", &malformed.Error{Field: "messages", Err: err}
		}
		t.AddImages(t.Messages)
	default:
		return nil, "", malformed.Field("response", malformed.Type, "it is not text")
	}
	return t, options, nil
}

// endOf is how a trajectory ended that only its reward has failed for, as far as its steps
// tell.
func endOf(steps []traj.Step) traj.Termination {
	if n := len(steps); n > 0 && steps[n-1].FinishReason == traj.FinishLength {
		return traj.TurnLength
	}
	return traj.Answered
}

// rowOptions is the JSON of a row's options: an object, or the text of one; "" where the
// column has the choices of a question.
func rowOptions(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	if areChoices(v) {
		return "", nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", &malformed.Error{Field: "options", Kind: malformed.Unsupported, Err: err}
	}
	return string(b), nil
}

// areChoices reports whether a column options has the choices of a question, as MMLU-Pro's
// rows do (a list), or MedQA's (an object of letters).
func areChoices(v any) bool {
	switch v := v.(type) {
	case []any:
		return true
	case map[string]any:
		for name := range v {
			if len(name) != 1 || name[0] < 'A' || name[0] > 'Z' {
				return false
			}
		}
		return len(v) > 0
	}
	return false
}

// notMeta are columns that say nothing of the task beside what rewards read elsewhere.
var notMeta = map[string]bool{"response": true, "messages": true, "steps": true, "sequences": true, "answer": true,
	"reward": true, "reward_parts": true, "correct": true, "extracted": true, "verdict": true, "extraction_rule": true}

// rowMeta is a row's meta: a column meta, an object or the text of one, else the row's
// other columns, as where a dataset of such rows is played.
func rowMeta(fields map[string]any) (json.RawMessage, error) {
	meta := fields["meta"]
	switch m := meta.(type) {
	case string:
		if !json.Valid([]byte(m)) {
			return nil, malformed.Field("meta", malformed.Syntax, "it is no JSON")
		}
		return json.RawMessage(m), nil
	case nil:
		rest := map[string]any{}
		for name, v := range fields {
			if !notMeta[name] && v != nil && (name != "options" || areChoices(v)) {
				rest[name] = v
			}
		}
		meta = rest
	}
	b, err := json.Marshal(jsonable(meta))
	if err != nil {
		return nil, &malformed.Error{Field: "meta", Kind: malformed.Unsupported, Err: err}
	}
	return b, nil
}

// rowSteps are a row's steps, as far as rewards read them.
func rowSteps(v any) ([]traj.Step, error) {
	list, _ := v.([]any)
	var steps []traj.Step
	for i, s := range list {
		fields, ok := s.(map[string]any)
		if !ok {
			return nil, malformed.Field("steps", malformed.Type, "step %d is no object", i)
		}
		step := traj.Step{Sequence: -1}
		step.FinishReason, _ = fields["finish_reason"].(string)
		if n, ok := numberOf(fields["completion_tokens"]); ok {
			step.CompletionTokens = int(n)
		}
		if n, ok := numberOf(fields["tool_calls"]); ok {
			step.ToolCalls = int(n)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// jsonable makes a row's values fit for JSON: NaN and the infinities become
// null, bytes become base64.
func jsonable(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case []any:
		for i := range v {
			v[i] = jsonable(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = jsonable(v[k])
		}
	}
	return v
}
