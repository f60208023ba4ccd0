package rows

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"agentcli/datasets"
	"agentcli/internal/malformed"
	"agentcli/traj"
)

// said reads what one side says, and what its messages say of their loss: text is one
// message of that role.
func said(v any, role string) ([]traj.Message, []messageLoss, error) {
	if s, ok := v.(string); ok {
		return []traj.Message{{Role: role, Content: s}}, make([]messageLoss, 1), nil
	}
	return conversationOf(v)
}

// conversationOf reads a list of messages, or its JSON, and what they say of their loss.
func conversationOf(v any) ([]traj.Message, []messageLoss, error) {
	if s, ok := v.(string); ok {
		var list []any
		if json.Unmarshal([]byte(s), &list) == nil { // else ReadMessages says what is wrong
			v = list
		}
	}
	msgs, err := datasets.ReadMessages(v)
	if err != nil {
		return nil, nil, err
	}
	own, err := messageLosses(v)
	return msgs, own, err
}

// numeric reads a number of a row; nil is 0.
func numeric(v any) (float64, error) {
	switch v := v.(type) {
	case nil:
		return 0, nil
	case json.Number:
		return v.Float64()
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	}
	return 0, malformed.Errorf(malformed.Type, "%v is no number", v)
}

// weightsOf reads a number, or a list of one for each assistant turn.
func weightsOf(v any) ([]float64, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var out []float64
	for _, x := range list {
		w, err := numeric(x)
		if err == nil && (w < 0 || x == nil) {
			err = malformed.Errorf(malformed.Range, "%v is below 0 or missing", x)
		}
		if err != nil {
			return nil, &malformed.Error{Field: "weight", Err: err}
		}
		out = append(out, w)
	}
	return out, nil
}

// toolsOf reads tools in the shape of the OpenAI API, or bare functions.
func toolsOf(v any) ([]traj.ToolSpec, error) {
	raw, err := json.Marshal(v)
	if text, ok := v.(string); ok {
		raw = []byte(text)
	}
	var list []struct {
		traj.ToolSpec
		Function *traj.ToolSpec `json:"function"`
	}
	if v == nil || v == "" {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return nil, malformed.Field("tools", malformed.Type, "want a list of functions, as the OpenAI API takes it")
	}
	var out []traj.ToolSpec
	for i, t := range list {
		if t.Function != nil {
			t.ToolSpec = *t.Function
		}
		if t.Name == "" {
			return nil, malformed.Field("tools", malformed.Missing, "tool %d has no name", i)
		}
		out = append(out, t.ToolSpec)
	}
	return out, nil
}

func keys(row map[string]any) string {
	var names []string
	for k := range row {
		names = append(names, k)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
