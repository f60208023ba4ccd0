package serve

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"

	"agentcli/policy"
	"agentcli/traj"
)

// texts is a text or a list of texts.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*t = texts{""}
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// drawing are the fields of a request that say how a reply is drawn: OpenAI's, and those that
// vLLM has beside them. Pointers tell what is not there from zero.
type drawing struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	TopK        *int     `json:"top_k"`
	MinP        *float64 `json:"min_p"`
	MaxTokens   *int     `json:"max_tokens"`
	Stop        texts    `json:"stop"`
	StopIDs     []int32  `json:"stop_token_ids"`
	Seed        *int64   `json:"seed"`
	N           *int     `json:"n"`
	IgnoreEnd   bool     `json:"ignore_eos"`
	SkipSpecial *bool    `json:"skip_special_tokens"`
	IncludeStop bool     `json:"include_stop_str_in_output"`
	Priority    int      `json:"priority"`
	Salt        string   `json:"cache_salt"`
	Truncate    *int     `json:"truncate_prompt_tokens"`
	PromptLPs   *int     `json:"prompt_logprobs"`
	ReturnIDs   bool     `json:"return_token_ids"`
	TokensAsIDs bool     `json:"return_tokens_as_token_ids"`
	Routed      *bool    `json:"return_routed_experts"`
	Stream      bool     `json:"stream"`
	StreamOpts  *struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	RequestID string `json:"request_id"`

	// The form of the reply.
	Format     *format         `json:"response_format"`
	Structured *structure      `json:"structured_outputs"`
	GuidedJSON json.RawMessage `json:"guided_json"`
	Guided     string          `json:"guided_regex"`
	GuidedList []string        `json:"guided_choice"`

	// What the engine does not have: refused unless they change nothing.
	Presence   *float64           `json:"presence_penalty"`
	Frequency  *float64           `json:"frequency_penalty"`
	Repetition *float64           `json:"repetition_penalty"`
	MinTokens  *int               `json:"min_tokens"`
	Bias       map[string]float64 `json:"logit_bias"`
	BestOf     *int               `json:"best_of"`
	Suffix     *string            `json:"suffix"`

	adapter *policy.Adapter // that draws the reply; nil: the model itself
}

// format is OpenAI's response_format.
type format struct {
	Type   string `json:"type"`
	Schema *struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

const (
	maxChoices = 128 // of a request
	maxStops   = 64
	maxTop     = 1024 // most probable ids at a position
)

// check holds the fields to what can be done.
func (d *drawing) check() error {
	between := func(name string, v *float64, low, high float64) error {
		if v != nil && (!(*v >= low) || !(*v <= high)) {
			return bad(name, "%s is %v; it must be between %v and %v", name, *v, low, high)
		}
		return nil
	}
	if p := d.TopP; p != nil && !(*p > 0 && *p <= 1) {
		return bad("top_p", "top_p is %v; it must be above 0 and at most 1", *p)
	}
	for _, err := range []error{between("temperature", d.Temperature, 0, 1e4), between("min_p", d.MinP, 0, 1)} {
		if err != nil {
			return err
		}
	}
	whole := func(name string, v *int, low, high int) error {
		if v != nil && (*v < low || *v > high) {
			return bad(name, "%s is %d; it must be between %d and %d", name, *v, low, high)
		}
		return nil
	}
	for _, err := range []error{whole("top_k", d.TopK, -1, math.MaxInt32), whole("max_tokens", d.MaxTokens, 0, math.MaxInt32),
		whole("n", d.N, 1, maxChoices), whole("truncate_prompt_tokens", d.Truncate, -1, math.MaxInt32),
		whole("prompt_logprobs", d.PromptLPs, 0, maxTop)} {
		if err != nil {
			return err
		}
	}
	if len(d.Stop) > maxStops {
		return bad("stop", "there are %d stop strings; at most %d are looked for", len(d.Stop), maxStops)
	}
	return d.lacking()
}

// checkDrawing holds a request to what can be done. A bias against ids that are never drawn changes nothing.
func checkDrawing(s *server, d *drawing) error {
	for _, id := range s.facts.Barred {
		if name := strconv.Itoa(int(id)); d.Bias[name] <= -100 {
			delete(d.Bias, name)
		}
	}
	return d.check()
}

// lacking refuses what the engine does not have.
func (d *drawing) lacking() error {
	for name, v := range map[string]*float64{"presence_penalty": d.Presence, "frequency_penalty": d.Frequency} {
		if v != nil && *v != 0 {
			return bad(name, "%s is not supported; leave it out", name)
		}
	}
	switch {
	case d.Repetition != nil && *d.Repetition != 1:
		return bad("repetition_penalty", "repetition_penalty is not supported; leave it out")
	case d.MinTokens != nil && *d.MinTokens > 0:
		return bad("min_tokens", "min_tokens is not supported; leave it out")
	case d.BestOf != nil && *d.BestOf > 1 && (d.N == nil || *d.BestOf != *d.N):
		return bad("best_of", "best_of is not supported; ask for n")
	case d.Suffix != nil && *d.Suffix != "":
		return bad("suffix", "suffix is not supported; leave it out")
	case len(d.Bias) > 0:
		return bad("logit_bias", "logit_bias is not supported; leave it out")
	}
	return nil
}

// skips says that special tokens are left out of texts.
func (d *drawing) skips() bool { return d.SkipSpecial == nil || *d.SkipSpecial }

// choices is how many replies are asked for.
func (d *drawing) choices() int {
	if d.N == nil {
		return 1
	}
	return *d.N
}

// sampling is how they are drawn.
func (d *drawing) sampling() traj.Sampling {
	s := traj.Sampling{Temperature: d.Temperature, Stop: d.Stop, StopIDs: d.StopIDs}
	if d.TopP != nil {
		s.TopP = *d.TopP
	}
	if d.TopK != nil {
		s.TopK = max(*d.TopK, 0)
	}
	if d.MinP != nil {
		s.MinP = *d.MinP
	}
	if d.MaxTokens != nil {
		s.MaxTokens = *d.MaxTokens
	}
	return s
}

// seed is that of the k-th choice: the request's own, or of the day.
func (d *drawing) seed(k int) int64 {
	if d.Seed != nil {
		return *d.Seed + int64(k)
	}
	var b [8]byte
	_, _ = crand.Read(b[:]) // never fails
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// truncated is the end of a prompt that a request wants.
func (d *drawing) truncated(ids []int32, window int) []int32 {
	if d.Truncate == nil {
		return ids
	}
	n := *d.Truncate
	if n < 0 {
		n = window - 1
	}
	return ids[max(0, len(ids)-n):]
}

// request is one to the engine.
func (d *drawing) request(prompt policy.Sequence, k, top int) *policy.Request {
	r := &policy.Request{Prompt: prompt, Sampling: d.sampling(), Seed: d.seed(k), Priority: d.Priority, Salt: d.Salt,
		IgnoreEnd: d.IgnoreEnd, Top: top, Adapter: d.adapterName()}
	if d.PromptLPs != nil && k == 0 {
		r.PromptLogprobs, r.PromptTop = true, *d.PromptLPs
	}
	return r
}

// adapterName is the adapter that draws the reply, "" for the model itself.
func (d *drawing) adapterName() string {
	if d.adapter == nil {
		return ""
	}
	return d.adapter.Name
}

// isNull reports whether a field is absent or null.
func isNull(b json.RawMessage) bool {
	return len(b) == 0 || bytes.Equal(bytes.TrimSpace(b), []byte("null"))
}
