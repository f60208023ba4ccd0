package models

import (
	"fmt"
	"path/filepath"
	"strings"

	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
)

// Facts is what model info --json prints.
type Facts struct {
	Path         string   `json:"path"`
	Format       string   `json:"format"`
	Architecture string   `json:"architecture"`
	Parameters   int64    `json:"parameters"`
	Layers       int      `json:"layers"`
	Hidden       int      `json:"hidden_size"`
	Intermediate int      `json:"intermediate_size"`
	Heads        int      `json:"heads"`
	KVHeads      int      `json:"kv_heads"`
	HeadDim      int      `json:"head_dim"`
	Vocab        int      `json:"vocab_size"`
	Context      int      `json:"context"`
	RopeTheta    float64  `json:"rope_theta"`
	Tied         bool     `json:"tied_embeddings"`
	DTypes       []string `json:"dtypes"`
	Tokenizer    string   `json:"tokenizer,omitempty"`
	TokHash      string   `json:"tokenizer_hash,omitempty"`
	Chat         string   `json:"chat,omitempty"` // the renderer: a family, or "template"
	Stops        []string `json:"stop_tokens,omitempty"`
	StopIDs      []int32  `json:"stop_token_ids,omitempty"`
	Thinks       bool     `json:"reply_begins_in_thinking,omitempty"`
	Calls        string   `json:"tool_calls,omitempty"`    // their format
	ToolsInText  string   `json:"tools_in_text,omitempty"` // the format in which tools are written into the messages
	EOS          []int32  `json:"eos_token_ids"`
	Files        []string `json:"files"`
	Memory       Memory   `json:"memory"`
	Notes        []string `json:"notes,omitempty"`
}

// Memory is what the model takes, in bytes, by the type to compute in: float32
// and bfloat16.
type Memory struct {
	File     int64            `json:"file_bytes"`
	Weights  map[string]int64 `json:"weights"`
	KVToken  map[string]int64 `json:"kv_per_token"`
	KVWindow map[string]int64 `json:"kv_full_window"`
	States   map[string]int64 `json:"states,omitempty"` // recurrent, of one sequence
}

// ReadFacts reads what a model is. Its weights are looked at where they lie; nothing
// is loaded. chatTemplate, where given, takes the place of its template.
func ReadFacts(path, chatTemplate string) (Facts, error) {
	m, err := weights.Open(path)
	if err != nil {
		return Facts{}, err
	}
	defer m.Close()
	c := m.Config()
	l := c.First()
	i := Facts{Path: path, Format: m.Format(), Architecture: c.Architecture, Parameters: m.Parameters(),
		Layers: len(c.Layers), Hidden: c.HiddenSize,
		Intermediate: l.Width(), Heads: l.Attention.Heads, KVHeads: l.Attention.KVHeads, HeadDim: l.Attention.HeadDim,
		Vocab: c.VocabSize, Context: c.MaxPositions,
		RopeTheta: c.Ropes[0].Theta, Tied: c.Tied, DTypes: m.Storage(), EOS: append([]int32{}, c.EOS...)}
	i.Memory = memoryOf(m)
	for _, f := range m.Files() {
		i.Files = append(i.Files, filepath.Base(f))
	}
	if c.Multimodal != "" {
		i.Notes = append(i.Notes, fmt.Sprintf("a multimodal model (%s): its language model alone is opened", c.Multimodal))
	}
	if a, ok := m.Adapter(); ok {
		i.Notes = append(i.Notes, fmt.Sprintf("LoRA adapter of rank %d, alpha %g, on %s of its base %s",
			a.Rank, a.Alpha, strings.Join(a.Targets, ","), m.BasePath()))
	}
	// A model without a tokenizer or a chat template is still a model.
	tok, err := tokenizer.Open(m.TokenizerPath())
	if err != nil {
		i.Notes = append(i.Notes, err.Error())
		return i, nil
	}
	i.Tokenizer, i.TokHash = tok.Describe(), tok.Hash()
	var r chat.Renderer
	if chatTemplate == "" {
		r, err = chat.Choose(m.ChatTemplate(), "", tok)
	} else if r, err = Renderer(path, tok, chatTemplate); err != nil {
		return i, err
	}
	if err != nil {
		i.Notes = append(i.Notes, err.Error())
		return i, nil
	}
	d := chat.Describe(r)
	i.Chat, i.Stops, i.StopIDs, i.Thinks, i.Calls, i.ToolsInText = d.Renderer, d.Stops, d.StopIDs, d.Thinks, d.Calls, d.ToolsInText
	return i, nil
}

func memoryOf(m *weights.Model) Memory {
	n := weights.NeedsOf(m)
	named := func(by map[weights.DType]int64) map[string]int64 {
		out := map[string]int64{}
		for d, bytes := range by {
			out[d.TorchName()] = bytes
		}
		return out
	}
	out := Memory{File: n.FileBytes, Weights: named(n.WeightBytes), KVToken: named(n.TokenBytes), KVWindow: named(n.WindowBytes)}
	if n.StateBytes[weights.F32] > 0 {
		out.States = named(n.StateBytes)
	}
	return out
}

// Rows are the facts as a table for people.
func (i Facts) Rows() [][]string {
	var rows [][]string
	row := func(name, format string, a ...any) { rows = append(rows, []string{name, fmt.Sprintf(format, a...)}) }
	row("model", "%s", i.Path)
	row("architecture", "%s, %s", i.Architecture, i.Format)
	row("parameters", "%s (%.1f M)", thousands(i.Parameters), float64(i.Parameters)/1e6)
	row("layers", "%d", i.Layers)
	row("hidden, feed-forward", "%d, %d", i.Hidden, i.Intermediate)
	row("heads, KV heads, size", "%d, %d, %d", i.Heads, i.KVHeads, i.HeadDim)
	row("vocabulary", "%s%s", thousands(int64(i.Vocab)), map[bool]string{true: ", tied embeddings"}[i.Tied])
	row("context", "%s (rope theta %v)", thousands(int64(i.Context)), i.RopeTheta)
	row("dtype", "%s", strings.Join(i.DTypes, ", "))
	row("file", "%s", size(i.Memory.File))
	row("memory for weights", "%s", byType(i.Memory.Weights))
	row("memory for a token", "%s", byType(i.Memory.KVToken))
	row("memory for full context", "%s", byType(i.Memory.KVWindow))
	if i.Memory.States != nil {
		row("memory for states", "%s", byType(i.Memory.States))
	}
	row("tokenizer", "%s", dash(i.Tokenizer))
	row("chat format", "%s%s", dash(i.Chat), map[bool]string{true: ", a reply begins in its thinking"}[i.Thinks])
	row("tool calls", "%s%s", dash(i.Calls),
		map[bool]string{true: ", written into the messages: the template ignores tools"}[i.ToolsInText != ""])
	row("stop tokens", "%s", dash(strings.Join(i.Stops, " ")))
	row("ends a reply", "%s", strings.Trim(fmt.Sprint(i.EOS), "[]"))
	row("files", "%s", strings.Join(i.Files, ", "))
	for _, n := range i.Notes {
		row("note", "%s", n)
	}
	return rows
}

// byType is a size in each type to compute in.
func byType(bytes map[string]int64) string {
	return fmt.Sprintf("%s (bfloat16), %s (float32)", size(bytes[weights.BF16.TorchName()]), size(bytes[weights.F32.TorchName()]))
}

// size is a number of bytes in kB, MB or GB.
func size(n int64) string {
	v, unit := float64(n)/1e3, "kB"
	for _, next := range []string{"MB", "GB", "TB"} {
		if v < 1000 {
			break
		}
		v, unit = v/1e3, next
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
