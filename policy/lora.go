package policy

import (
	"fmt"
	"slices"
	"strings"

	"agentcli/internal/setting"
	"agentcli/model/weights"
)

// LoRA says that a model is trained by low-rank adapters (Hu et al. 2022): the
// weights W of its layers stay as they are, and W + Alpha/Rank·B·A takes their
// place, of which A [Rank, in] and B [out, Rank] are trained.
type LoRA struct {
	Rank    int      // 0: no adapters, unless the model that is opened has them
	Alpha   float64  // 0: twice the rank
	Targets []string // short names (weights.LoRATargets, ExpertTargets, VisionTargets); none: all of LoRATargets
	Dropout float64  // share of the adapter's inputs that Accumulate sets to 0; with those of experts 0
	Seed    int64    // of A's first values and of the dropout
}

// In ParseTargets experts is both matrices of experts, vision every linear layer of an encoder of images.
const (
	experts = "experts"
	vision  = "vision"
)

// ParseTargets reads --lora-targets, short names with commas: all-linear is every matrix of a layer of the
// text model but those of its experts, experts is both matrices of these, vision is every linear layer of
// the encoder of images.
func ParseTargets(text string) ([]string, error) {
	linear, of, sees := weights.AllLoRATargets(), weights.ExpertTargets(), weights.VisionTargets()
	all, given := slices.Concat(linear, of, sees), []string(nil)
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		if !weights.IsVisionTarget(name) { // vision_proj is a name of its own
			name = strings.TrimSuffix(name, "_proj")
		}
		switch {
		case name == "all-linear":
			given = append(given, linear...)
		case name == experts:
			given = append(given, of...)
		case name == vision:
			given = append(given, sees...)
		case !slices.Contains(all, name):
			return nil, fmt.Errorf("%q is no matrix of a layer; want all-linear, %s, %s, or some of %s", name, experts, vision,
				strings.Join(all, ","))
		default:
			given = append(given, name)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(given, name) }), nil
}

// Validate refuses settings that mean nothing.
func (l LoRA) Validate() error {
	switch {
	case l.Rank < 0 || l.Rank > 1<<14:
		return setting.Errorf("%s %d: want 0 (none) or a rank, for example 16", setting.Name("LoRA.Rank"), l.Rank)
	case !(l.Alpha >= 0):
		return setting.Errorf("%s %v: want a positive number", setting.Name("LoRA.Alpha"), l.Alpha)
	case !(l.Dropout >= 0 && l.Dropout < 1):
		return setting.Errorf("%s %v: want 0 (none) or a share below 1", setting.Name("LoRA.Dropout"), l.Dropout)
	}
	return l.dropsNothing(l.Targets)
}

// dropsNothing refuses a dropout beside pairs on experts: their inputs are an expert's own rows, and PEFT,
// which adds the product to the weights, cannot drop them.
func (l LoRA) dropsNothing(targets []string) error {
	if l.Dropout > 0 && slices.ContainsFunc(targets, weights.IsExpertTarget) {
		return setting.Errorf("%s %v: adapters on experts have none, in PEFT neither; leave it out, or experts out of %s",
			setting.Name("LoRA.Dropout"), l.Dropout, setting.Name("LoRA.Targets"))
	}
	return nil
}

// over is the adapter to train on a model: the one that it has, which the
// settings must not contradict, or a new one.
func (l LoRA) over(m *weights.Model) (c weights.AdapterConfig, err error) {
	if err := l.Validate(); err != nil {
		return c, err
	}
	c, has := m.Adapter()
	if !has {
		c = weights.AdapterConfig{Base: m.BasePath(), Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, Targets: l.Targets}
		if c.Alpha == 0 {
			c.Alpha = 2 * float64(c.Rank)
		}
		c.Targets, err = l.targets(m)
		return c, err
	}
	given, err := l.targets(m)
	if err != nil {
		return c, err
	}
	no := func(name setting.Name, given, has any) error {
		return &weights.MergeFirstError{Path: m.Path(), Err: setting.Errorf(
			"%s: the adapter has %v, not %s %v; leave that out to go on training the adapter, or merge it first", m.Path(), has, name, given)}
	}
	switch {
	case l.Rank != 0 && l.Rank != c.Rank:
		return c, no(setting.Name("LoRA.Rank"), l.Rank, c.Rank)
	case l.Alpha != 0 && l.Alpha != c.Alpha:
		return c, no(setting.Name("LoRA.Alpha"), l.Alpha, c.Alpha)
	case len(l.Targets) != 0 && !slices.Equal(given, c.Targets):
		return c, no(setting.Name("LoRA.Targets"), strings.Join(given, ","), strings.Join(c.Targets, ","))
	}
	if l.Dropout != 0 {
		c.Dropout = l.Dropout
	}
	return c, l.dropsNothing(c.Targets)
}

// targets are the matrices that the settings ask for in a model: those of its layers but of experts where
// none are named, or all are.
func (l LoRA) targets(m *weights.Model) ([]string, error) {
	c := m.Config()
	linear, ofExperts, ofVision := c.LoRATargets(), []string(nil), weights.VisionTargetsOf(c)
	if weights.HasExperts(c) {
		ofExperts = weights.ExpertTargets()
	}
	has := slices.Concat(linear, ofExperts, ofVision)
	var of [3][]string // of layers, of experts, of the encoder
	for _, t := range l.Targets {
		switch {
		case weights.IsExpertTarget(t):
			of[1] = append(of[1], t)
		case weights.IsVisionTarget(t):
			of[2] = append(of[2], t)
		default:
			of[0] = append(of[0], t)
		}
	}
	if len(l.Targets) == 0 || len(of[0]) == len(weights.AllLoRATargets()) {
		of[0] = linear
	}
	if len(of[2]) > 0 && len(ofVision) == 0 {
		return nil, setting.Errorf("%s %s: %s has no encoder of images; leave it out", setting.Name("LoRA.Targets"), vision, m.Path())
	}
	if len(of[2]) == len(weights.VisionTargets()) {
		of[2] = ofVision
	}
	given := slices.Concat(of[:]...)
	for _, t := range given {
		if !slices.Contains(has, t) {
			return nil, setting.Errorf("%s %s: a layer of %s has no such matrix; it has %s", setting.Name("LoRA.Targets"), t, m.Path(),
				strings.Join(has, ","))
		}
	}
	return given, nil
}
