package arch

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Vision is the encoder of images of a model (Wang et al. 2024, Bai et al. 2025): patches
// become features of the text model's hidden size, one for each square of Merge × Merge
// patches.
type Vision struct {
	Depth, HiddenSize, Heads, MLPSize int
	Out                               int // features' size
	Channels, Patch, Temporal         int // numbers of a patch: Channels · Temporal · Patch²
	Merge                             int // patches of a feature's side
	Window                            int // side of a window in features; 0: every block sees the whole image
	Full                              []int
	LayerNorm                         bool // with biases; otherwise RMSNorm
	Gated                             bool // down(silu(gate)·up), otherwise down(Act(up))
	Act                               VisionAct
	PatchBias                         bool
	PositionSide                      int   // side of the table of learned positions; 0: none
	DeepStack                         []int // blocks whose features are added behind the first text layers (Meng et al. 2024)

	Nested bool // files have the language model below model.language_model, the encoder below model.visual

	ImageToken                       int32 // the id that stands at an image's places in the text
	VideoToken, StartToken, EndToken int32

	names visionNames
}

// VisionEps is the epsilon of the encoder's norms, which no key changes.
const VisionEps = 1e-6

// VisionTheta is the base of the encoder's rotary embedding.
const VisionTheta = 10000

// VisionAct is the activation of an encoder's MLP.
type VisionAct int

// The activations of an encoder.
const (
	VisionQuickGELU VisionAct = iota
	VisionGELUTanh
	VisionSiLU
)

// visionNames are the names of an encoder's tensors, which differ between the families.
type visionNames struct{ gate, up, down, mergeNorm, merge1, merge2 string }

// PatchSize is how many numbers a patch has.
func (v *Vision) PatchSize() int { return v.Channels * v.Temporal * v.Patch * v.Patch }

// HeadDim is the size of a head.
func (v *Vision) HeadDim() int { return v.HiddenSize / v.Heads }

// MergeSide is Merge; 1 without an encoder.
func (v *Vision) MergeSide() int {
	if v == nil {
		return 1
	}
	return v.Merge
}

// SeesAll reports whether a block's patches see the whole image.
func (v *Vision) SeesAll(block int) bool { return v.Window == 0 || slices.Contains(v.Full, block) }

// TokenIDs are the ids that stand for images and around them, as far as a vocabulary has them.
func (v *Vision) TokenIDs(vocabulary int) []int32 {
	var ids []int32
	for _, id := range []int32{v.StartToken, v.EndToken, v.ImageToken, v.VideoToken} {
		if id >= 0 && int(id) < vocabulary && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Tokens is how many places an image of a grid of patches takes; 0 where the grid does not fit.
func (v *Vision) Tokens(grid [3]int) int {
	if grid[0] != 1 || grid[1] < 1 || grid[2] < 1 || grid[1]%v.Merge != 0 || grid[2]%v.Merge != 0 || grid[1] > 1<<15 || grid[2] > 1<<15 {
		return 0
	}
	return grid[1] / v.Merge * (grid[2] / v.Merge)
}

// The names of an encoder's tensors.
const (
	visualPrefix   = "visual."
	VisionPatch    = visualPrefix + "patch_embed.proj"
	VisionPosition = visualPrefix + "pos_embed.weight"
	VisionMerger   = visualPrefix + "merger."
)

// VisionBlock are the names of a block's tensors, without suffix.
type VisionBlock struct{ Norm1, Norm2, QKV, Proj, Gate, Up, Down string }

// Block gives the names of block i's tensors; Gate is "" where the MLP has none.
func (v *Vision) Block(i int) VisionBlock {
	at := fmt.Sprintf(visualPrefix+"blocks.%d.", i)
	b := VisionBlock{Norm1: at + "norm1", Norm2: at + "norm2", QKV: at + "attn.qkv", Proj: at + "attn.proj",
		Up: at + "mlp." + v.names.up, Down: at + "mlp." + v.names.down}
	if v.Gated {
		b.Gate = at + "mlp." + v.names.gate
	}
	return b
}

// Merger are the names of a merger's tensors, without suffix.
type Merger struct{ Norm, In, Out string }

// Mergers are the encoder's own merger, and behind it those of DeepStack. The latter norm the
// merged patches, the former each patch.
func (v *Vision) Mergers() []Merger {
	out := []Merger{{VisionMerger + v.names.mergeNorm, VisionMerger + v.names.merge1, VisionMerger + v.names.merge2}}
	for k := range v.DeepStack {
		at := fmt.Sprintf(visualPrefix+"deepstack_merger_list.%d.", k)
		out = append(out, Merger{at + v.names.mergeNorm, at + v.names.merge1, at + v.names.merge2})
	}
	return out
}

// Tensors lists what the encoder consists of.
func (v *Vision) Tensors() (out []Tensor) {
	e, f, m := int64(v.HiddenSize), int64(v.MLPSize), int64(v.HiddenSize*v.Merge*v.Merge)
	add := func(name string, shape ...int64) { out = append(out, Tensor{name, shape}) }
	linear := func(name string, rows, columns int64) {
		add(name+weightSuffix, rows, columns)
		add(name+biasSuffix, rows)
	}
	norm := func(name string, n int64) {
		add(name+weightSuffix, n)
		if v.LayerNorm {
			add(name+biasSuffix, n)
		}
	}
	add(VisionPatch+weightSuffix, e, int64(v.Channels), int64(v.Temporal), int64(v.Patch), int64(v.Patch))
	if v.PatchBias {
		add(VisionPatch+biasSuffix, e)
	}
	if v.PositionSide > 0 {
		add(VisionPosition, int64(v.PositionSide*v.PositionSide), e)
	}
	for i := range v.Depth {
		b := v.Block(i)
		norm(b.Norm1, e)
		norm(b.Norm2, e)
		linear(b.QKV, 3*e, e)
		linear(b.Proj, e, e)
		if v.Gated {
			linear(b.Gate, f, e)
		}
		linear(b.Up, f, e)
		linear(b.Down, e, f)
	}
	for i, x := range v.Mergers() {
		if n := e; i == 0 {
			norm(x.Norm, n)
		} else {
			norm(x.Norm, m)
		}
		linear(x.In, m, m)
		linear(x.Out, int64(v.Out), m)
	}
	return out
}

// readText gives the keys of the language model of a model with an encoder: text_config, or
// the top of the file. Old files have both; text_config counts.
func readText(k *Keys) *Keys {
	t := k.Sub("text_config")
	if t == nil {
		return k
	}
	for key := range t.values {
		k.read[key] = true
	}
	for _, key := range []string{"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id"} {
		t.Has(key) // once more in older files; the top counts
	}
	return t
}

// readVision reads vision_config and the ids of images; how tells what differs between the
// families.
func readVision(d *Decoder, k *Keys, how func(p *Keys, v *Vision)) {
	p := k.Sub("vision_config")
	if p == nil {
		k.refuse("vision_config", "it is missing, and with it the encoder of images")
		return
	}
	v := &Vision{Depth: p.Size("depth", 1<<10), Heads: p.Size("num_heads", 1<<10)}
	v.Channels = p.SizeOr("in_channels", 16, p.SizeOr("in_chans", 16, 3))
	v.Patch, v.Merge = p.SizeOr("patch_size", 1<<10, 14), p.SizeOr("spatial_merge_size", 64, 2)
	v.Temporal = p.SizeOr("temporal_patch_size", 64, 2)
	how(p, v)
	if v.Channels != 3 {
		p.refuse("in_channels", "%d; images have 3", v.Channels)
	}
	if v.HiddenSize%v.Heads != 0 || v.HiddenSize/v.Heads%4 != 0 {
		p.mismatch("num_heads", "%d do not give heads of a multiple of 4 of %d dimensions", v.Heads, v.HiddenSize)
	}
	if v.Out != d.HiddenSize {
		p.mismatch("out_hidden_size", "the encoder's features have %d numbers, the text model's hidden_size is %d", v.Out, d.HiddenSize)
	}
	if r := p.Sub("rope_parameters"); r != nil {
		if theta := r.Positive("rope_theta", VisionTheta); theta != VisionTheta {
			r.refuse("rope_theta", "%v; %d is supported", theta, VisionTheta)
		}
		if kind := r.String("rope_type", "axial"); kind != "axial" && kind != "default" {
			r.refuse("rope_type", "%q is not supported; axial is", kind)
		}
	}
	for _, key := range []string{"tokens_per_second", "spatial_patch_size", "fullatt_block_indexes", "window_size"} {
		p.Has(key) // of videos, or of encoders without windows
	}
	id := func(key string, otherwise int) int32 {
		n := k.Whole(key, otherwise)
		if n >= math.MaxInt32 {
			k.fail(key, "%d is no token id", n)
		}
		return int32(n)
	}
	v.ImageToken, v.VideoToken = id("image_token_id", 151655), id("video_token_id", 151656)
	v.StartToken, v.EndToken = id("vision_start_token_id", 151652), id("vision_end_token_id", 151653)
	k.Has("vision_token_id") // vision_pad, which no image uses
	if int(v.ImageToken) >= d.VocabSize {
		k.mismatch("image_token_id", "%d is outside the vocabulary of %d", v.ImageToken, d.VocabSize)
	}
	d.Vision = v
}

// visionAct reads the activation of an encoder's MLP.
func visionAct(p *Keys, otherwise string) VisionAct {
	switch act := p.String("hidden_act", otherwise); act {
	case "quick_gelu":
		return VisionQuickGELU
	case "gelu_pytorch_tanh", "gelu_tanh":
		return VisionGELUTanh
	case "silu":
		return VisionSiLU
	default:
		p.refuse("hidden_act", "%q is not supported; quick_gelu, gelu_pytorch_tanh and silu are", act)
	}
	return VisionSiLU
}

// readMRoPE reads the rotary embedding of texts with images: which of a token's three
// positions turns which pairs.
func readMRoPE(d *Decoder, t *Keys, dim int, theta float64) int {
	p := t.Sub("rope_parameters")
	key := "rope_parameters"
	if p == nil {
		p, key = t.Sub("rope_scaling"), "rope_scaling"
	}
	if p == nil {
		t.refuse(key, "it is missing, and with it mrope_section")
		p = &Keys{path: t.path, read: map[string]bool{}, err: t.err}
	} else if key == "rope_parameters" {
		t.Has("rope_scaling") // an old name for the same
	}
	section, interleaved := p.Ints("mrope_section"), p.Bool("mrope_interleaved", d.Architecture == qwen3vlName)
	if interleaved != (d.Architecture == qwen3vlName) {
		p.refuse("mrope_interleaved", "%v; a %s has the other", interleaved, d.Architecture)
	}
	theta = t.Positive("rope_theta", theta)
	if p.String("rope_type", p.String("type", "default")) == "mrope" { // of older files, which means the default
		p.values["rope_type"] = json.RawMessage(`"default"`)
	}
	if p.String("type", "") == "mrope" {
		p.values["type"] = json.RawMessage(`"default"`)
	}
	i := ropeOf(d, t, p, dim, theta, 1)
	r := &d.Ropes[i]
	if len(section) != 3 || section[0]+section[1]+section[2] != r.Dim/2 || slices.Min(section) < 0 {
		p.mismatch("mrope_section", "%v: three numbers are needed whose sum is %d, the pairs of rotated dimensions", section, r.Dim/2)
		return i
	}
	r.Sections, r.SectionsInterleaved = [3]int(section), interleaved
	return i
}
