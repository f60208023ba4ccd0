package rows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"agentcli/traj"
)

// RunSource is the part of a file's agentcli.run that training looks at; every
// field may be missing, for a file written by somebody else.
type RunSource struct {
	Model struct {
		Name          string          `json:"name"`
		Kind          string          `json:"kind"` // local or server
		TokenizerHash string          `json:"tokenizer_hash"`
		TemplateHash  string          `json:"template_hash"`
		ImageRule     json.RawMessage `json:"image_rule"` // processor.Rule; nil: the file does not say
	} `json:"model"`
	Dataset struct {
		Name  string `json:"name"`
		Split string `json:"split"`
		Parts []struct {
			Name  string `json:"name"`
			Split string `json:"split"`
		} `json:"parts"` // of several datasets in one
	} `json:"dataset"`
	Sampling traj.Sampling `json:"sampling"`
	Limits   struct {
		Turns    int `json:"max_turns"`
		Response int `json:"max_response_tokens"` // of everything behind the first prompt
	} `json:"limits"`
	Logprobs string `json:"logprobs"` // what they are of
}

// MostTokens is how many tokens could be sampled in a trajectory; 0: the file does not say.
func (r RunSource) MostTokens() int {
	n := r.Sampling.MaxTokens * r.Limits.Turns
	if limit := r.Limits.Response; limit > 0 && (n == 0 || limit < n) {
		return limit
	}
	return n
}

// Filtered says in words where the rows were sampled from no distribution that can
// be computed from the model's logits and a temperature, or "" where they were.
func (r RunSource) Filtered() string {
	var how []string
	if r.Model.Kind == "server" && (r.Sampling.Temperature == nil || r.Sampling.TopP == 0) {
		how = append(how, "the server's own defaults")
	}
	if p := r.Sampling.TopP; p > 0 && p < 1 {
		how = append(how, fmt.Sprintf("top_p %g", p))
	}
	if r.Sampling.TopK > 0 {
		how = append(how, fmt.Sprintf("top_k %d", r.Sampling.TopK))
	}
	if r.Sampling.MinP > 0 {
		how = append(how, fmt.Sprintf("min_p %g", r.Sampling.MinP))
	}
	if g := r.Sampling.Grammar; g != nil {
		how = append(how, "a grammar ("+g.Kind+")")
	}
	return strings.Join(how, ", ")
}

// Temperature is that of the file's rows; 1 where it says none.
func (r RunSource) Temperature() float64 {
	if t := r.Sampling.Temperature; t != nil {
		return *t
	}
	return 1
}

// Tempered reports whether the file's log-probs are those of logits/T.
func (r RunSource) Tempered() bool {
	kind := strings.TrimPrefix(r.Logprobs, "server: ")
	return kind == traj.LogprobsAfterTemp || kind == traj.LogprobsAfterCuts
}

// Recorded says what the file's log-probs are of.
func (r RunSource) Recorded() string {
	kind := cmp.Or(strings.TrimPrefix(r.Logprobs, "server: "), "of what the file does not say")
	if kind == traj.LogprobsOfModel {
		kind = "of the model at temperature 1"
	}
	return kind
}
