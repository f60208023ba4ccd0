package weights

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/splitmix"
	"agentcli/model/arch"
)

// defaultRange is the initializer_range of a configuration without one, as in transformers.
const defaultRange = .02

// WriteRandom writes the file of a model with random weights: what transformers' from_config
// gives one (PreTrainedModel._init_weights and those of the families). Matrices, embeddings and
// convolutions are drawn from a normal distribution with mean 0 and deviation
// initializer_range, which the encoder of images may have its own of; the embedding of the
// padding token and biases are 0, norms pass on what they norm. The same seed gives the same
// bytes on any machine.
func WriteRandom(path string, c Config, seed int64, d DType) error {
	if c.quantised != nil {
		return malformed.At("config.json", "quantization_config", malformed.Unsupported, "weights are drawn as numbers; leave it out")
	}
	if c.Multimodal != "" {
		return malformed.At("config.json", "model_type", malformed.Unsupported,
			"%s: its language model alone is supported; give the configuration of that", c.Multimodal)
	}
	ranges, err := rangesOf(c.Raw)
	if err != nil {
		return err
	}
	var names []string
	var infos []TensorInfo
	for _, t := range c.Tensors() {
		if c.Tied && t.Name == lmHead {
			continue
		}
		names = append(names, t.Name)
		t.Name, t.DType = c.StoredName(t.Name), d
		infos = append(infos, t)
	}
	w, err := CreateSafetensors(path, infos, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	for k, i := range infos {
		t := Tensor{Name: i.Name, DType: F32, Shape: i.Shape, Data: make([]byte, 4*count(i.Shape))}
		draw(c, t, names[k], ranges, seed)
		if t, err = t.As(d); err != nil {
			return err
		}
		if err := w.Write(i.Name, t.Data); err != nil {
			return err
		}
	}
	return w.Close()
}

// ranges are the deviations of a model's parts.
type ranges struct{ text, vision float64 }

func rangesOf(config []byte) (ranges, error) {
	type part struct {
		Range *float64 `json:"initializer_range"`
	}
	var f struct {
		part
		Text   part `json:"text_config"`
		Vision part `json:"vision_config"`
	}
	if err := json.Unmarshal(config, &f); err != nil {
		return ranges{}, malformed.At("config.json", "initializer_range", malformed.Type, "want a number: %w", err)
	}
	first := func(all ...*float64) float64 {
		for _, v := range all {
			if v != nil {
				return *v
			}
		}
		return defaultRange
	}
	r := ranges{first(f.Text.Range, f.Range), first(f.Vision.Range)}
	if !(r.text >= 0) || !(r.vision >= 0) || math.IsInf(r.text+r.vision, 0) {
		return r, malformed.At("config.json", "initializer_range", malformed.Range, "%v and %v; want numbers from 0", r.text, r.vision)
	}
	return r, nil
}

// draw fills a tensor of the name that the architecture has for it.
func draw(c Config, t Tensor, name string, by ranges, seed int64) {
	h := fnv.New64a()
	h.Write([]byte(name))
	from := splitmix.Mix(h.Sum64() ^ splitmix.Next(uint64(seed)))
	vision := strings.HasPrefix(name, "visual.")
	deviation := by.text
	if vision {
		deviation = by.vision
	}
	normal := func(state uint64) (float64, float64) {
		a, b := normals(state)
		return deviation * a, deviation * b
	}
	constant := func(v float64) { fill(t.Data, from, func(uint64) (float64, float64) { return v, v }) }
	switch last := name[strings.LastIndex(name, ".")+1:]; {
	case last == "A_log": // of numbers between 0 and 16
		fill(t.Data, from, func(state uint64) (float64, float64) {
			return logarithm(16 * unit(splitmix.Next(state))), logarithm(16 * unit(splitmix.Next(state+splitmix.Gamma)))
		})
	case strings.HasSuffix(last, "bias") && last != "dt_bias" && !strings.HasSuffix(name, arch.ClampedRouter+".bias"):
		constant(0)
	case len(t.Shape) > 1, last == "sinks", last == "bias":
		fill(t.Data, from, normal)
	case vision, c.NormOffset == 0, !strings.Contains(name, "norm"), strings.HasSuffix(name, arch.DeltaNorm+".weight"):
		constant(1)
	default: // norms that multiply by their weight and an offset
		constant(1 - c.NormOffset)
	}
	if (name == arch.Embed || name == arch.PerLayerEmbed) && c.Pad >= 0 && int64(c.Pad) < t.Shape[0] {
		clear(t.Data[4*int64(c.Pad)*t.Shape[1]:][:4*t.Shape[1]])
	}
}

// fill draws pairs of float32: each follows from the seed and its place alone.
func fill(data []byte, seed uint64, pair func(state uint64) (float64, float64)) {
	n := len(data) / 4
	const least = 1 << 16
	parallel((n+1)/2, least, func(from, to int) {
		for k := from; k < to; k++ {
			a, b := pair(splitmix.Mix(seed ^ splitmix.Mix(uint64(k)+1)))
			put(data, 2*k, float32(a))
			if 2*k+1 < n {
				put(data, 2*k+1, float32(b))
			}
		}
	})
}

// unit is a number in (0, 1) with 53 bits.
func unit(x uint64) float64 { return (float64(x>>11) + .5) / (1 << 53) }

// normals are two draws from the standard normal distribution by the polar method (Marsaglia &
// Bray 1964).
func normals(state uint64) (float64, float64) {
	for {
		state += splitmix.Gamma
		u := 2*unit(splitmix.Mix(state)) - 1
		state += splitmix.Gamma
		v := 2*unit(splitmix.Mix(state)) - 1
		s := float64(u*u) + float64(v*v)
		if s > 0 && s < 1 {
			scale := math.Sqrt(float64(-2*logarithm(s)) / s)
			return u * scale, v * scale
		}
	}
}

// logarithm is that of a positive number by 2·artanh((m−1)/(m+1)), in operations that every
// machine rounds alike: math.Log differs between them, and a compiler may fuse products with
// sums that are not converted.
func logarithm(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	t := (m - 1) / (m + 1)
	square := float64(t * t)
	sum := 0.0
	for k := 29; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(float64(e)*math.Ln2) + float64(2*float64(t*sum))
}
