package weights

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

// Tensors that say how the frequencies of a rotary embedding are divided.
const (
	ropeFreqs = "rope_freqs.weight"
	ropeLong  = "rope_factors_long.weight"
	ropeShort = "rope_factors_short.weight"
)

// globalAttention is that of the layers that see all that is before them.
func globalAttention(c Config) arch.Attention {
	for _, l := range c.Layers {
		if a := l.Attention; a.Heads > 0 && a.Window == 0 && a.Rope != arch.NoRope {
			return a
		}
	}
	return c.First().Attention
}

// globalRope is the rotary embedding of those layers.
func globalRope(c Config) arch.Rope { return c.Ropes[max(globalAttention(c).Rope, 0)] }

// plainScaling reports whether a scaled rope follows from its factor, its original length and more
// keys, which is all that a GGUF says of it.
func plainScaling(c Config, r arch.Rope, more map[string]any) bool {
	scaling := map[string]any{"rope_type": r.Scaling.Type, "factor": r.Scaling.Factor}
	maps.Copy(scaling, more)
	if r.Scaling.Original > 0 {
		scaling["original_max_position_embeddings"] = r.Scaling.Original
	}
	raw, err := json.Marshal(map[string]any{"vocab_size": 1, "hidden_size": r.Dim, "head_dim": r.Dim, "num_attention_heads": 1,
		"num_hidden_layers": 1, "intermediate_size": 1, "max_position_embeddings": c.MaxPositions, "rope_theta": r.Theta,
		"rope_scaling": scaling})
	if err != nil {
		return false
	}
	k, err := arch.NewKeys("", raw)
	if err != nil {
		return false
	}
	d, err := arch.Read("llama", k)
	return err == nil && reflect.DeepEqual(d.Ropes[0].Scaling, r.Scaling)
}

// ropeFactors reads the divisors of the frequencies by which llama.cpp stores
// Llama 3's scaling, and finds the scaling that makes them; nil: there is none.
func ropeFactors(f *gguf.File, c Config) (map[string]any, error) {
	t, ok := f.Lookup(ropeFreqs)
	if !ok {
		return nil, nil
	}
	dim, theta := c.First().Attention.HeadDim, globalRope(c).Theta
	got, factor := f32s(f, t), 1.0
	if len(got) != dim/2 {
		return nil, malformed.At(f.Path, "tensor "+ropeFreqs, malformed.Type, "%s of %d bytes, not float32 for half a head of %d",
			t.Type, t.Size, dim)
	}
	for _, v := range got {
		factor = max(factor, v)
	}
	if factor == 1 {
		return nil, nil
	}
	s := arch.Scaling{Type: "llama3", Factor: tidy(factor), LowFreqFactor: 1, HighFreqFactor: 4, Original: 8192}
	plain := arch.Rope{Theta: theta, Dim: dim}.InverseFrequencies(1)
	scaled := arch.Rope{Theta: theta, Dim: dim, Scaling: &s}.InverseFrequencies(1)
	for i := range got {
		want := plain[i] / scaled[i]
		if math.Abs(got[i]-want) > 1e-3*want {
			return nil, malformed.At(f.Path, "tensor "+ropeFreqs, malformed.Unsupported,
				"value %d is %v; Llama 3's scaling by %v would be %v", i, got[i], s.Factor, want)
		}
	}
	return map[string]any{"rope_type": "llama3", "factor": pyFloat(s.Factor), "low_freq_factor": pyFloat(1), "high_freq_factor": pyFloat(4),
		"original_max_position_embeddings": 8192}, nil
}

// llama3Factors are the divisors of the frequencies by which llama.cpp stores
// Llama 3's scaling.
func llama3Factors(c Config) []byte {
	r := globalRope(c)
	out := make([]byte, 4*(r.Dim/2))
	plain := arch.Rope{Theta: r.Theta, Dim: r.Dim}.InverseFrequencies(1)
	for i, scaled := range r.InverseFrequencies(1) {
		put(out, i, float32(plain[i]/scaled))
	}
	return out
}

// f32s are the numbers of a tensor in float32; nil: it has another type.
func f32s(f *gguf.File, t gguf.Tensor) []float64 {
	if t.Type != gguf.F32 || t.Size == 0 {
		return nil
	}
	out := make([]float64, t.Size/4)
	for i := range out {
		out[i] = tidy(float64(math.Float32frombits(le.Uint32(f.Data(t)[4*i:]))))
	}
	return out
}

// readScaling reads how a rotary embedding is scaled, where keys say it.
func (g *ggufKeys) readScaling() {
	at := g.name + ".rope.scaling."
	kind, _ := g.file.Str(at + "type")
	if _, ok := g.file.Lookup(ropeLong); ok {
		kind = "longrope"
	}
	if kind == "" || kind == "none" {
		return
	}
	scaling := map[string]any{"rope_type": kind}
	if n, ok := g.file.Int(at + "original_context_length"); ok {
		scaling["original_max_position_embeddings"] = n
	}
	g.values["rope_scaling"] = scaling
	if kind == "longrope" {
		g.readLongRope(scaling)
		return
	}
	factor, _ := g.file.Float(at + "factor")
	scaling["factor"] = pyFloat(tidy(factor))
	if kind != "yarn" {
		return
	}
	for key, from := range map[string]string{"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow",
		"attention_factor": "yarn_attn_factor", "mscale_all_dim": "yarn_log_multiplier"} {
		if v, ok := g.file.Float(at + from); ok {
			scaling[key] = pyFloat(tidy(v))
		}
	}
	if _, ok := scaling["mscale_all_dim"]; ok {
		scaling["mscale"] = pyFloat(1)
	}
	if v, ok := g.file.Float(at + "attn_factor"); ok && v != 1 {
		scaling["attention_factor"] = pyFloat(tidy(float64(float32(v * (.1*math.Log(max(factor, 1)) + 1)))))
	}
	if v, ok := g.file.Float(at + "yarn_ext_factor"); ok && v != 1 {
		g.refuse(at+"yarn_ext_factor", "%v is not supported; 1 is", v)
	}
}

// readLongRope reads the divisors of LongRoPE.
func (g *ggufKeys) readLongRope(scaling map[string]any) {
	for key, name := range map[string]string{"long_factor": ropeLong, "short_factor": ropeShort} {
		t, ok := g.file.Lookup(name)
		values := f32s(g.file, t)
		if !ok || values == nil {
			g.refuse("tensor "+name, "LongRoPE needs it, in float32")
		}
		scaling[key] = values
	}
	context, _ := g.file.Float(g.name + ".context_length")
	original, ok := g.file.Float(g.name + ".rope.scaling.original_context_length")
	if !ok {
		g.refuse(g.name+".rope.scaling.original_context_length", "LongRoPE needs it")
		return
	}
	g.values["original_max_position_embeddings"] = scaling["original_max_position_embeddings"]
	amplitude := 1.0
	if context > original && original > 1 {
		amplitude = math.Sqrt(1 + math.Log(context/original)/math.Log(original))
	}
	if v, ok := g.file.Float(g.name + ".rope.scaling.attn_factor"); ok && math.Abs(v-amplitude) > 1e-6 {
		scaling["attention_factor"] = pyFloat(tidy(v))
	}
}

// sayScaling is the reverse of readScaling.
func sayScaling(c Config, f ggufFamily, say func(string, any)) error {
	r := globalRope(c)
	s := r.Scaling
	if s == nil {
		return nil
	}
	more := map[string]any{}
	switch s.Type {
	case "llama3": // is a tensor
		return nil
	case "proportional":
		if !f.turned || s.Factor != 1 {
			return fmt.Errorf("rope scaling of type proportional, by %v; only that of Gemma 4 by 1 can be", s.Factor)
		}
		return nil
	case "longrope":
		if f.kind != "phi3" || math.Abs(s.Factor*float64(s.Original)-float64(c.MaxPositions)) > .5 {
			return fmt.Errorf("rope scaling of type longrope whose factor, %v, is not the context over the original one", s.Factor)
		}
		say("rope.scaling.original_context_length", uint32(s.Original))
		say("rope.scaling.attn_factor", float32(s.AttentionFactor))
		return nil
	case "linear":
	case "yarn":
		if f.kind == "gpt-oss" {
			more["truncate"] = false
		}
		if f.kind == "mistral3" {
			all := logMultiplier(s)
			say("rope.scaling.yarn_log_multiplier", float32(all))
			more["mscale"], more["mscale_all_dim"] = 1.0, tidy(float64(float32(all)))
		} else if usual := .1*math.Log(max(s.Factor, 1)) + 1; math.Abs(s.AttentionFactor-usual) > 1e-9 {
			say("rope.scaling.attn_factor", float32(s.AttentionFactor/usual))
			more["attention_factor"] = s.AttentionFactor
		}
	default:
		return fmt.Errorf("rope scaling of type %q; linear, llama3, yarn and longrope can be", s.Type)
	}
	if !plainScaling(c, r, more) {
		return fmt.Errorf("rope scaling of type %s with more than a factor and an original length", s.Type)
	}
	say("rope.scaling.type", s.Type)
	say("rope.scaling.factor", float32(s.Factor))
	if s.Original > 0 {
		say("rope.scaling.original_context_length", uint32(s.Original))
	}
	return nil
}

// logMultiplier is the mscale_all_dim by which an mscale of 1 gives the amplitude.
func logMultiplier(s *arch.Scaling) float64 {
	grows := .1 * math.Log(max(s.Factor, 1))
	if grows == 0 || s.AttentionFactor == 0 {
		return 0
	}
	return math.Round(((grows+1)/s.AttentionFactor-1)/grows*1e9) / 1e9
}

// ropeTensors are the divisors of frequencies that are tensors in a file, by name.
func ropeTensors(c Config) map[string][]byte {
	r := globalRope(c)
	switch s := r.Scaling; {
	case s == nil:
	case s.Type == "llama3":
		return map[string][]byte{ropeFreqs: llama3Factors(c)}
	case s.Type == "proportional":
		out := make([]byte, 4*(r.Dim/2))
		for i := range r.Dim / 2 {
			v := float32(notTurned)
			if i < s.Turned {
				v = 1
			}
			put(out, i, v)
		}
		return map[string][]byte{ropeFreqs: out}
	case s.Type == "longrope":
		return map[string][]byte{ropeLong: f32Bytes(s.Long), ropeShort: f32Bytes(s.Short)}
	}
	return nil
}

func f32Bytes(values []float64) []byte {
	out := make([]byte, 4*len(values))
	for i, v := range values {
		put(out, i, float32(v))
	}
	return out
}

func sayMinistral3(c Config, say func(string, any)) error {
	r := globalRope(c)
	if r.Scaling == nil || r.Scaling.Type != "yarn" || r.QueryBeta != 0 && r.Original != r.Scaling.Original {
		return fmt.Errorf("a rope that is not YaRN's")
	}
	say("attention.temperature_scale", float32(r.QueryBeta))
	return nil
}

func readMinistral3Keys(g *ggufKeys, _ map[string]TensorInfo) {
	g.values["head_dim"] = g.headSize()
	delete(g.values, "attention_bias")
	s, ok := g.values["rope_scaling"].(map[string]any)
	if !ok {
		s = map[string]any{"rope_type": "default"}
	}
	s["rope_theta"] = g.values["rope_theta"]
	if v, there := g.file.Float(g.name + ".attention.temperature_scale"); there && v != 0 && !math.IsNaN(v) {
		s["llama_4_scaling_beta"] = pyFloat(tidy(v))
	}
	delete(g.values, "rope_theta")
	delete(g.values, "rope_scaling")
	g.values["rope_parameters"] = s
}
