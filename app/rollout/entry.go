package rollout

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentcli/datasets"
	"agentcli/datasets/registry"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/rewards"
)

// ownOptions are the options of the dataset's reward, where that reward is the run's.
func ownOptions(o Options, d *datasets.Dataset) map[string]any {
	if o.Reward != "" && o.Reward != d.Reward {
		return nil
	}
	return d.Options
}

// graderOptions are the dataset's options of its reward, and over them those that the user
// gave.
func graderOptions(o Options, d *datasets.Dataset) (rewards.Options, error) {
	own := ownOptions(o, d)
	if len(own) == 0 {
		return o.Grader, nil
	}
	all, err := rewards.OptionsOf(own)
	if err != nil {
		return all, exit.UsageError{Err: fmt.Errorf("dataset %s: %w", d.Name, err)}
	}
	return all.With([]byte(o.Grader.Text()))
}

// CheckEntry gives what is wrong with the names in an entry: its reward, the reward's
// options, its environment and its tools. Each error has the key as its field.
func CheckEntry(e registry.Entry) (faults []error) {
	if err := checkReward(e); err != nil {
		faults = append(faults, err)
	}
	if !slices.Contains(append(Environments(), ""), e.Env) {
		faults = append(faults, malformed.Field("env", malformed.Unsupported, "there is no environment %q; the environments are %s", e.Env,
			strings.Join(Environments(), ", ")))
	}
	for _, tool := range e.Tools {
		if !slices.Contains(BuiltinTools(), tool) {
			faults = append(faults, malformed.Field("tools", malformed.Unsupported, "there is no tool %q; the tools are %s", tool,
				strings.Join(BuiltinTools(), ", ")))
		}
	}
	return faults
}

// checkReward refuses a reward that cannot be made with its options.
func checkReward(e registry.Entry) error {
	if e.Reward != "" && !rewards.Known(e.Reward) {
		_, err := rewards.New(e.Reward, rewards.Options{})
		return &malformed.Error{Field: "reward", Kind: malformed.Unsupported, Err: err}
	}
	o, err := rewards.OptionsOf(e.Options)
	if err != nil || e.Reward == "" {
		return err
	}
	r, err := rewards.New(e.Reward, o)
	if c, ok := r.(io.Closer); ok {
		_ = c.Close()
	}
	switch {
	case err == nil, errors.Is(err, rewards.ErrNoJudge): // which a run names
		return nil
	case len(e.Options) > 0:
		return &malformed.Error{Field: "options", Kind: malformed.Range, Err: err}
	}
	return &malformed.Error{Field: "reward", Kind: malformed.Unsupported, Err: err}
}
