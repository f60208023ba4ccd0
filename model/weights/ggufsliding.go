package weights

import (
	"fmt"

	"agentcli/model/gguf"
)

var olmoNames = map[string]string{"post_attention_norm": "post_attention_layernorm",
	"post_ffw_norm": "post_feedforward_layernorm", "ffn_norm": "", "attn_norm": ""}

// hasWindow reports whether a file of OLMo is of OLMo 3, whose layers have sliding windows.
func hasWindow(f *gguf.File) bool {
	w, _ := f.Int("olmo2.attention.sliding_window")
	return w > 0
}

// layers is how many layers the model has; 0: no key says a number of them that is possible.
func (g *ggufKeys) layers() int {
	n, _ := g.values["num_hidden_layers"].(int64)
	if n < 0 || n > 1<<12 {
		return 0
	}
	return int(n)
}

// slidingLayers reads which layers have a window; without the key, every says it, and where it is
// nil the key must be there.
func (g *ggufKeys) slidingLayers(every func(layer int) bool) []bool {
	key := g.name + ".attention.sliding_window_pattern"
	pattern := g.ints("attention.sliding_window_pattern")
	if n, ok := g.file.Int(key); ok && n > 0 {
		every = func(layer int) bool { return int64(layer)%n < n-1 }
	}
	if pattern != nil && len(pattern) < g.layers() || pattern == nil && every == nil {
		g.refuse(key, "%d entries for %d layers", len(pattern), g.layers())
	}
	out, types := make([]bool, g.layers()), make([]string, g.layers())
	for i := range out {
		if i < len(pattern) {
			out[i] = pattern[i] == 1
		} else if every != nil {
			out[i] = every(i)
		}
		if types[i] = "full_attention"; out[i] {
			types[i] = "sliding_attention"
		}
	}
	g.values["layer_types"] = types
	delete(g.values, "use_sliding_window")
	delete(g.values, "max_window_layers")
	return out
}

// kinds are the layers' types, as slidingLayers found them.
func (g *ggufKeys) kinds() []string {
	types, _ := g.values["layer_types"].([]string)
	return types
}

func sayOLMo3(c Config, say func(string, any)) error {
	sliding, window := make([]bool, len(c.Layers)), 0
	for i, l := range c.Layers {
		a := l.Attention
		if sliding[i] = a.Window > 0; !sliding[i] {
			continue
		}
		window = a.Window
		r := c.Ropes[a.Rope]
		if r.Scaling != nil {
			return fmt.Errorf("layer %d: its rope is scaled", i)
		}
		say("rope.freq_base_swa", float32(r.Theta))
	}
	switch a := c.First().Attention; {
	case window == 0:
		return fmt.Errorf("no layer has a sliding window")
	case c.Tied:
		return fmt.Errorf("llama.cpp wants an output matrix of its own (tie_word_embeddings)")
	case a.Heads*a.HeadDim != c.HiddenSize || a.QKVBias:
		return fmt.Errorf("attention with biases, or heads of another size than the hidden size over the heads")
	}
	say("attention.sliding_window", uint32(window))
	say("attention.sliding_window_pattern", sliding)
	return nil
}

func readOLMo3Keys(g *ggufKeys, _ map[string]TensorInfo) {
	g.slidingLayers(func(layer int) bool { return (layer+1)%4 != 0 })
	full := map[string]any{"rope_type": "default"}
	if s, ok := g.values["rope_scaling"].(map[string]any); ok {
		full = s
	}
	full["rope_theta"] = g.values["rope_theta"]
	local := map[string]any{"rope_type": "default", "rope_theta": g.values["rope_theta"]}
	if v, ok := g.file.Float(g.name + ".rope.freq_base_swa"); ok {
		local["rope_theta"] = pyFloat(tidy(v))
	}
	delete(g.values, "rope_theta")
	delete(g.values, "rope_scaling")
	g.values["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": local}
}
