package wire

import (
	"encoding/json"

	"agentcli/internal/malformed"
	"agentcli/traj"
)

// sampling is what another program may say of sampling.
type sampling struct {
	temperature, topP, minP *float64
	topK, maxTokens         *int
	stop                    []string
}

// Sampling reads an object with some of temperature, top_p, top_k, min_p, max_tokens and
// stop, and gives what puts these over other settings; nil: there is nothing to read.
func Sampling(b json.RawMessage) (func(traj.Sampling) traj.Sampling, error) {
	if len(b) == 0 || string(b) == "null" {
		return nil, nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(b, &object) != nil {
		return nil, malformed.Field("sampling", malformed.Type, "is %s: want an object", Shown(b))
	}
	var w sampling
	err := Fields(object, map[string]any{"temperature": &w.temperature, "top_p": &w.topP, "top_k": &w.topK, "min_p": &w.minP,
		"max_tokens": &w.maxTokens, "stop": &w.stop})
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return nil, &malformed.Error{Field: "sampling", Err: err}
	}
	return w.over, nil
}

func (w *sampling) check() error {
	for _, x := range []struct {
		field string
		wrong bool
		want  string
	}{
		{"temperature", w.temperature != nil && !(*w.temperature >= 0 && *w.temperature <= 100), "a number from 0 to 100"},
		{"top_p", w.topP != nil && !(*w.topP > 0 && *w.topP <= 1), "a number above 0, 1 at most"},
		{"min_p", w.minP != nil && !(*w.minP >= 0 && *w.minP <= 1), "a number from 0 to 1"},
		{"top_k", w.topK != nil && *w.topK < -1, "-1 or more"},
		{"max_tokens", w.maxTokens != nil && *w.maxTokens < 1, "1 or more"},
	} {
		if x.wrong {
			return malformed.Field(x.field, malformed.Range, "want %s", x.want)
		}
	}
	return nil
}

// over puts it over other settings.
func (w *sampling) over(s traj.Sampling) traj.Sampling {
	if w.temperature != nil {
		s.Temperature = w.temperature
	}
	set(&s.TopP, w.topP)
	set(&s.TopK, w.topK)
	set(&s.MinP, w.minP)
	set(&s.MaxTokens, w.maxTokens)
	if w.stop != nil {
		s.Stop = w.stop
	}
	return s
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
