package policy

import (
	"agentcli/internal/malformed"
	"agentcli/media/processor"
	"agentcli/model/arch"
	"agentcli/model/weights"
)

// OpenProcessor opens the image processor in a model's folder, or in that of an adapter's base, with other bounds of the area
// that the model sees where they are above 0. It fails where the processor cuts images in
// another way than the model's encoder takes them, and with fs.ErrNotExist where there is none.
func OpenProcessor(folder string, v *arch.Vision, minPixels, maxPixels int) (*processor.Processor, error) {
	if v == nil {
		return nil, malformed.Field("images", malformed.Unsupported, "the model takes text alone; open one with an encoder of images")
	}
	folder, err := weights.BaseOf(folder)
	if err != nil {
		return nil, err
	}
	p, err := processor.Open(folder)
	if err != nil {
		return nil, err
	}
	c := p.Config()
	for _, x := range []struct {
		key       string
		has, want int
	}{{"patch_size", c.PatchSize, v.Patch}, {"merge_size", c.MergeSize, v.Merge}, {"temporal_patch_size", c.TemporalPatchSize, v.Temporal}} {
		if x.has != x.want {
			return nil, malformed.At(folder, x.key, malformed.Mismatch, "the image processor has %d, the model's encoder %d", x.has, x.want)
		}
	}
	return p.Within(minPixels, maxPixels)
}
