package train

import (
	"fmt"

	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/model/weights"
	"agentcli/policy"
)

// NewAdapters reports whether a run on the model in path begins with adapters that
// change nothing yet: the weights under them are then its reference.
func NewAdapters(path string, o Options) bool {
	return o.Open.LoRA.Rank > 0 && !weights.IsAdapter(path)
}

// AdapterText is how a checkpoint remembers what is trained beside or of the weights: the
// adapters' settings, and the part of the encoder of images.
func AdapterText(o Options) string {
	l, vision := o.Open.LoRA, ""
	if o.Open.Vision != policy.VisionFrozen {
		vision = "vision " + string(o.Open.Vision)
	}
	if l.Rank == 0 && l.Alpha == 0 && l.Dropout == 0 && len(l.Targets) == 0 {
		return vision
	}
	return vision + fmt.Sprintf("rank %d, alpha %v, targets %v, dropout %v", l.Rank, l.Alpha, l.Targets, l.Dropout)
}

// CheckLoRA refuses settings of adapters for a run that trains none: path is the
// model that it starts from.
func (o Options) CheckLoRA(path string) error {
	l := o.Open.LoRA
	if l.Rank > 0 || weights.IsAdapter(path) {
		return nil
	}
	for _, x := range []struct {
		which setting.Name
		given bool
	}{
		{setting.Name("LoRA.Alpha"), l.Alpha != 0}, {setting.Name("LoRA.Targets"), len(l.Targets) > 0},
		{setting.Name("LoRA.Dropout"), l.Dropout != 0},
	} {
		if x.given {
			return exit.Usagef("%s has no effect without %s, for %s is no adapter; give the rank too, for example %s 16",
				x.which, setting.Name("LoRA.Rank"), path, setting.Name("LoRA.Rank"))
		}
	}
	return nil
}
