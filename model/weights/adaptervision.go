package weights

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Short names of the matrices of an encoder of images that a LoRA adapter may change: every linear layer
// of its blocks, and both of its merger and of the mergers of DeepStack. The convolution that makes
// patches has none.
const (
	VisionQKV       = "vision_qkv"
	VisionProj      = "vision_proj"
	VisionGate      = "vision_gate"
	VisionUp        = "vision_up"
	VisionDown      = "vision_down"
	VisionMergerIn  = "vision_merger_in"
	VisionMergerOut = "vision_merger_out"
)

// VisionTargets are their short names.
func VisionTargets() []string {
	return []string{VisionQKV, VisionProj, VisionGate, VisionUp, VisionDown, VisionMergerIn, VisionMergerOut}
}

// IsVisionTarget reports whether a short name is of an encoder of images.
func IsVisionTarget(short string) bool { return slices.Contains(VisionTargets(), short) }

// VisionModule is one linear layer of an encoder of images.
type VisionModule struct {
	Target string
	Module string // its name, without suffix
	At     int    // its block, or its merger: 0 is the encoder's own, behind it those of DeepStack
}

// VisionModules are the linear layers of a model's encoder, block by block, that are among the targets.
func VisionModules(c Config, targets []string) (out []VisionModule) {
	if c.Vision == nil {
		return nil
	}
	add := func(at int, target, module string) {
		if module != "" && slices.Contains(targets, target) {
			out = append(out, VisionModule{target, module, at})
		}
	}
	for i := range c.Vision.Depth {
		b := c.Vision.Block(i)
		add(i, VisionQKV, b.QKV)
		add(i, VisionProj, b.Proj)
		add(i, VisionGate, b.Gate)
		add(i, VisionUp, b.Up)
		add(i, VisionDown, b.Down)
	}
	for i, m := range c.Vision.Mergers() {
		add(i, VisionMergerIn, m.In)
		add(i, VisionMergerOut, m.Out)
	}
	return out
}

// VisionTargetsOf are the short names of those that a model has.
func VisionTargetsOf(c Config) (short []string) {
	modules := VisionModules(c, VisionTargets())
	return slices.DeleteFunc(VisionTargets(), func(t string) bool {
		return !slices.ContainsFunc(modules, func(m VisionModule) bool { return m.Target == t })
	})
}

// PEFTName is a tensor's or a module's name in the classes of transformers 5, which PEFT takes over.
func PEFTName(c Config, name string) string {
	if c.Vision == nil {
		return name
	}
	return nestedName(name)
}

// plainName is the name, without PEFT's prefix, that an adapter's tensor has here: of models with an
// encoder PEFT has written what the classes of each time were called.
func plainName(c Config, name string) string {
	if c.Vision != nil {
		if plain, ok := visionName(name); ok {
			return plain
		}
	}
	return name
}

// modulePattern is target_modules for a model with an encoder: PEFT holds the whole name of a module to
// it. Names would be ambiguous there, for gate_proj is in both MLPs of a Qwen2.5-VL.
func (c AdapterConfig) modulePattern(m Config) string {
	var text, vision []string
	for _, t := range LoRATargets {
		if slices.Contains(c.Targets, t.Short) && hasModule(m, t.Module) {
			text = append(text, regexp.QuoteMeta(t.Module))
		}
	}
	for _, v := range VisionModules(m, c.Targets) {
		vision = append(vision, regexp.QuoteMeta(PEFTName(m, v.Module)))
	}
	number := regexp.MustCompile(`\.\d+\\\.`)
	for i := range vision { // of all blocks, and of all mergers of DeepStack
		if at := number.FindStringIndex(vision[i]); at != nil {
			vision[i] = vision[i][:at[0]] + `.\d+\.` + vision[i][at[1]:]
		}
	}
	var all []string
	if len(text) > 0 {
		all = append(all, fmt.Sprintf(`%s\d+\.(%s)`, regexp.QuoteMeta(PEFTName(m, "model.layers.")), strings.Join(text, "|")))
	}
	slices.Sort(vision)
	return strings.Join(append(all, slices.Compact(vision)...), "|")
}
