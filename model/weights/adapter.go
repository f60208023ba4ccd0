package weights

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/model/arch"
)

// Files of an adapter's folder, as PEFT writes them.
const (
	adapterConfigFile = "adapter_config.json"
	adapterFile       = "adapter_model.safetensors"
	adapterPrefix     = "base_model.model."
	loraA, loraB      = ".lora_A.weight", ".lora_B.weight"
	tokenizerFile     = "tokenizer.json"
	typeCausal        = "CAUSAL_LM"
	typeScore         = "SEQ_CLS"
)

// LoRATargets are the matrices of a layer that a LoRA adapter may change, by
// their short names and those in Hugging Face's layout. A short name that stands for several
// has them side by side.
var LoRATargets = []struct{ Short, Module string }{
	{"q", arch.QProj}, {"k", arch.KProj}, {"v", arch.VProj}, {"qkv", arch.QKVProj}, {"o", arch.OProj},
	{"gate", arch.GateProj}, {"up", arch.UpProj}, {"gate_up", arch.GateUpProj}, {"down", arch.DownProj},
	{"in", arch.ConvIn}, {"in_proj_qkv", arch.DeltaInQKV}, {"in_proj_z", arch.DeltaInZ}, {"in_proj_b", arch.DeltaInB},
	{"in_proj_a", arch.DeltaInA}, {"out", arch.OutProj}, {"out", arch.ConvOut}, {"out", arch.DeltaOut},
	{"w1", arch.NumberedGate}, {"w3", arch.NumberedUp}, {"w2", arch.NumberedDown},
}

// AllLoRATargets are all short names.
func AllLoRATargets() (short []string) {
	for _, t := range LoRATargets {
		short = append(short, t.Short)
	}
	return slices.Compact(short)
}

// LoRATargets are the short names of those that the model has.
func (c Config) LoRATargets() (short []string) {
	has := map[string]bool{}
	for _, t := range c.Tensors() {
		has[t.Name] = true
	}
	layers := []int{0} // and with several kinds of mixers the first layer that attends
	if c.Recurrent() {
		layers = append(layers, slices.IndexFunc(c.Layers, func(l arch.Layer) bool { return l.Attention.Heads > 0 }),
			slices.IndexFunc(c.Layers, func(l arch.Layer) bool { return l.Attention.Heads == 0 }))
	}
	for _, t := range LoRATargets {
		if slices.ContainsFunc(layers, func(i int) bool { return has[arch.LayerPrefix(i)+t.Module+".weight"] }) {
			short = append(short, t.Short)
		}
	}
	return slices.Compact(short)
}

// LoRANames are the tensors of the low-rank pair beside a weight: A [rank, in]
// and B [out, rank].
func LoRANames(weight string) (a, b string) {
	module := strings.TrimSuffix(weight, ".weight")
	return module + loraA, module + loraB
}

// AdapterConfig is what adapter_config.json says of a LoRA adapter (Hu et al.
// 2022): a weight W becomes W + Scale()·B·A.
type AdapterConfig struct {
	Base    string // base_model_name_or_path: a folder, a .gguf, or a name on the hub
	Rank    int
	Alpha   float64
	Dropout float64
	Targets []string // short names, in the order of LoRATargets, behind them of ExpertTargets and of VisionTargets
	RSLoRA  bool     // Scale is alpha/√rank (Kalajdzievski 2023)
	Score   bool     // task type SEQ_CLS: a critic or a reward model, score.weight beside the pairs

	parameters []string // target_parameters of a file that was read
}

// Scale is the factor before B·A.
func (c AdapterConfig) Scale() float64 {
	if c.RSLoRA {
		return c.Alpha / math.Sqrt(float64(c.Rank))
	}
	return c.Alpha / float64(c.Rank)
}

// Adapter is a LoRA adapter's folder.
type Adapter struct {
	AdapterConfig
	dir   string
	shard *shard
}

// FindBase gives the folder of an adapter's base model that is neither a path
// beside the adapter nor one from here: a name on the hub, say. Nil: there are
// paths only. To be set before the first Open.
var FindBase func(name string) (path string, ok bool)

// MergeFirstError says that an adapter must be merged into its base model before it can
// be used as is asked.
type MergeFirstError struct {
	Path string // of the adapter
	Err  error  // what cannot be done before
}

func (e *MergeFirstError) Error() string { return e.Err.Error() }

// Unwrap gives what cannot be done before.
func (e *MergeFirstError) Unwrap() error { return e.Err }

// NoBaseError says that the base model of an adapter is not on this machine.
type NoBaseError struct{ Adapter, Base string } // the folder; the name in its configuration

func (e *NoBaseError) Error() string {
	return fmt.Sprintf("%s: the adapter's base model, %s, is not here; fetch it, or correct base_model_name_or_path in %s",
		e.Adapter, printable(e.Base), adapterConfigFile)
}

// IsAdapter reports whether a folder holds a LoRA adapter and no model.
func IsAdapter(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, adapterConfigFile)); err != nil {
		return false
	}
	whole, _ := filepath.Glob(filepath.Join(dir, "model*.safetensors*"))
	return len(whole) == 0
}

// adaptedTensors are the tensors of a base model with an adapter merged in.
type adaptedTensors struct {
	path    string // of the adapter
	base    *Model
	adapter *Adapter
	experts map[string]slice // what pairs on experts change, by the tensor's name
	// The names of the adapter's tensors in its file, by those that they have here.
	stored map[string]string
}

// openAdapter opens the base and the adapter as one model whose tensors are the
// merged ones.
func openAdapter(dir string) (*Model, error) {
	a, err := readAdapter(dir)
	if err != nil {
		return nil, err
	}
	m, err := a.over(dir)
	if err != nil {
		a.shard.m.Close()
		return nil, err
	}
	return m, nil
}

func readAdapter(dir string) (*Adapter, error) {
	c, err := readAdapterConfig(filepath.Join(dir, adapterConfigFile))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, adapterFile)
	s, err := openShard(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: there is no %s in this folder; PEFT's older adapter_model.bin is a pickle and is not read", dir, adapterFile)
		}
		return nil, err
	}
	return &Adapter{AdapterConfig: c, dir: dir, shard: s}, nil
}

// readAdapterConfig refuses what would make the adapter mean something else than
// W + Scale·B·A.
func readAdapterConfig(path string) (AdapterConfig, error) {
	var c AdapterConfig
	b, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	f := struct {
		Type     string         `json:"peft_type"`
		Task     string         `json:"task_type"`
		Base     string         `json:"base_model_name_or_path"`
		Rank     int            `json:"r"`
		Alpha    *float64       `json:"lora_alpha"`
		Dropout  float64        `json:"lora_dropout"`
		RSLoRA   bool           `json:"use_rslora"`
		DoRA     bool           `json:"use_dora"`
		LoRABias bool           `json:"lora_bias"`
		Bias     string         `json:"bias"`
		FanIn    bool           `json:"fan_in_fan_out"`
		Ranks    map[string]any `json:"rank_pattern"`
		Alphas   map[string]any `json:"alpha_pattern"`
		Params   []string       `json:"target_parameters"`
	}{}
	if err := json.Unmarshal(b, &f); err != nil {
		return c, malformed.At(path, "", malformed.Syntax, "%w", err)
	}
	no := func(field, what string) error {
		return malformed.At(path, field, malformed.Unsupported,
			"%s is not supported; merge the adapter with PEFT (merge_and_unload) and take that model", what)
	}
	switch {
	case f.Type != "LORA":
		return c, no("peft_type", fmt.Sprintf("%q", printable(f.Type)))
	case f.DoRA:
		return c, no("use_dora", "it")
	case f.LoRABias || f.Bias != "" && f.Bias != "none":
		return c, no("bias", "a bias that is trained")
	case f.FanIn:
		return c, no("fan_in_fan_out", "it")
	case len(f.Ranks) > 0 || len(f.Alphas) > 0:
		return c, no("rank_pattern or alpha_pattern", "it")
	case f.Rank < 1 || f.Rank > 1<<16:
		return c, malformed.At(path, "r", malformed.Range, "%d is not a rank", f.Rank)
	case f.Alpha == nil || math.IsNaN(*f.Alpha) || math.IsInf(*f.Alpha, 0):
		return c, malformed.At(path, "lora_alpha", malformed.Missing, "missing or no number")
	case !(f.Dropout >= 0 && f.Dropout < 1):
		return c, malformed.At(path, "lora_dropout", malformed.Range, "%v is not in [0, 1)", f.Dropout)
	case f.Base == "":
		return c, malformed.At(path, "base_model_name_or_path", malformed.Missing, "it is missing: which model is the adapter of?")
	}
	return AdapterConfig{Base: f.Base, Rank: f.Rank, Alpha: *f.Alpha, Dropout: f.Dropout, RSLoRA: f.RSLoRA, Score: f.Task == typeScore,
		parameters: f.Params}, nil
}

// base is the path of the adapter's base model.
func (a *Adapter) base() (string, error) {
	for _, p := range []string{a.Base, filepath.Join(a.dir, a.Base)} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	if FindBase != nil {
		if p, ok := FindBase(a.Base); ok {
			return p, nil
		}
	}
	return "", &NoBaseError{Adapter: a.dir, Base: a.Base}
}

// BaseOf is the path of the model that the adapter in a folder is of, path itself where it is no adapter.
func BaseOf(path string) (string, error) {
	if !IsAdapter(path) {
		return path, nil
	}
	c, err := readAdapterConfig(filepath.Join(path, adapterConfigFile))
	if err != nil {
		return "", err
	}
	return (&Adapter{AdapterConfig: c, dir: path}).base()
}

// over lays the adapter over its base.
func (a *Adapter) over(dir string) (*Model, error) {
	path, err := a.base()
	if err != nil {
		return nil, err
	}
	if IsAdapter(path) {
		return nil, &MergeFirstError{Path: path, Err: fmt.Errorf("%s: its base model, %s, is an adapter itself; merge that one first", dir, path)}
	}
	base, err := Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: its base model: %w", dir, err)
	}
	m := &Model{path: dir, format: base.format, config: base.config, template: base.template,
		infos: map[string]TensorInfo{},
		files: append(slices.Clone(base.files), a.shard.path)}
	m.adapted = &adaptedTensors{path: dir, base: base, adapter: a, stored: map[string]string{}}
	m.source = m.adapted
	if t := folderTemplate(dir); t != "" {
		m.template = t
	}
	m.config.Score = base.config.Score || a.Score
	for name, i := range base.infos {
		if m.config.Score && name == lmHead {
			continue
		}
		m.infos[name] = i
	}
	found, err := m.adapted.takePairs(m)
	if err != nil {
		base.Close()
		return nil, err
	}
	a.setTargets(found)
	for _, t := range m.config.Tensors() {
		if _, ok := m.infos[t.Name]; ok {
			m.names = append(m.names, t.Name)
		}
	}
	return m, nil
}

// setTargets makes the configuration name the targets that were found.
func (a *Adapter) setTargets(found map[string]bool) {
	for _, t := range slices.Concat(AllLoRATargets(), ExpertTargets(), VisionTargets()) {
		if found[t] {
			a.Targets = append(a.Targets, t)
		}
	}
}

// takePairs checks the adapter's tensors, has those of the model that they change in float32, and gives
// the targets that are there.
func (x *adaptedTensors) takePairs(m *Model) (found map[string]bool, err error) {
	a, base := x.adapter, x.base.config
	fail := func(tensor string, kind malformed.Kind, format string, args ...any) (map[string]bool, error) {
		return nil, malformed.At(a.shard.path, "tensor "+printable(tensor), kind, format, args...)
	}
	changed, known, ofExperts, err := x.findExperts(base)
	if err != nil {
		return nil, err
	}
	x.experts = changed
	for name := range changed {
		i := m.infos[name]
		i.DType = F32
		m.infos[name] = i
	}
	if err := x.readNames(base); err != nil {
		return nil, err
	}
	ofVision := map[string]string{}
	for _, v := range VisionModules(base, VisionTargets()) {
		ofVision[v.Module] = v.Target
	}
	found = map[string]bool{}
	for _, name := range a.shard.names {
		if known[name] {
			continue
		}
		i := a.shard.infos[name]
		own := plainName(base, strings.TrimPrefix(name, adapterPrefix))
		if own == scoreHead && a.Score {
			i.Name = own
			m.infos[own] = i
			continue
		}
		module, isA := strings.CutSuffix(own, loraA)
		if !isA {
			var isB bool
			if module, isB = strings.CutSuffix(own, loraB); !isB {
				return fail(name, malformed.Unsupported, "it is neither the A nor the B of a LoRA pair")
			}
		}
		w, ok := x.base.infos[module+".weight"]
		short := cmp.Or(shortTarget(module), ofVision[module])
		if !ok || short == "" {
			return fail(name, malformed.Mismatch, "it changes a tensor that the base model does not have, or not as a matrix of a layer")
		}
		want := []int64{w.Shape[0], int64(a.Rank)}
		if isA {
			want = []int64{int64(a.Rank), w.Shape[1]}
		}
		if !slices.Equal(i.Shape, want) {
			return fail(name, malformed.Mismatch, "shape is %v, but rank %d beside %v needs %v", i.Shape, a.Rank, w.Shape, want)
		}
		if isA {
			if _, ok := x.stored[module+loraB]; !ok {
				return fail(name, malformed.Missing, "it has no B beside it")
			}
			found[short] = true
			w.DType = F32
			m.infos[w.Name] = w
		} else if _, ok := x.stored[module+loraA]; !ok {
			return fail(name, malformed.Missing, "it has no A beside it")
		}
	}
	for _, t := range ofExperts {
		found[t] = true
	}
	return found, nil
}

// readNames finds the names of the adapter's tensors in its file.
func (x *adaptedTensors) readNames(base Config) error {
	s := x.adapter.shard
	for _, name := range s.names {
		own, ok := strings.CutPrefix(name, adapterPrefix)
		if !ok {
			return malformed.At(s.path, "tensor "+printable(name), malformed.Unsupported, "PEFT's names begin with %s", adapterPrefix)
		}
		own = plainName(base, own)
		if twice, ok := x.stored[own]; ok {
			return malformed.At(s.path, "tensor "+printable(name), malformed.Mismatch, "it is there as %s, too", printable(twice))
		}
		x.stored[own] = name
	}
	return nil
}

// shortTarget names the target that a module of a layer is, "" for others.
func shortTarget(module string) string {
	for _, t := range LoRATargets {
		if strings.HasPrefix(module, "model.layers.") && strings.HasSuffix(module, "."+t.Module) {
			return t.Short
		}
	}
	return ""
}

// Adapter is the adapter's configuration where the model is a base with a LoRA
// adapter over it; ok is false for other models.
func (m *Model) Adapter() (c AdapterConfig, ok bool) {
	if m.adapted == nil {
		return c, false
	}
	return m.adapted.adapter.AdapterConfig, true
}

// BasePath is where the model without its adapter was found: Path itself where
// there is none.
func (m *Model) BasePath() string {
	if m.adapted == nil {
		return m.path
	}
	return m.adapted.base.path
}

// TokenizerPath is the model or the folder that has the tokenizer: an adapter's
// own folder, or its base.
func (m *Model) TokenizerPath() string {
	if m.adapted != nil {
		if _, err := os.Stat(filepath.Join(m.path, tokenizerFile)); err != nil {
			return m.adapted.base.path
		}
	}
	return m.path
}

// Low is one tensor of the adapter, by the name without PEFT's prefix.
func (m *Model) Low(name string) (Tensor, bool) {
	if m.adapted == nil {
		return Tensor{}, false
	}
	return m.adapted.low(name)
}

// Base is the model without its adapter, and m itself where there is none. It is closed with m.
func (m *Model) Base() *Model {
	if m.adapted == nil {
		return m
	}
	return m.adapted.base
}

// low is one tensor of the adapter, by the name without PEFT's prefix.
func (x *adaptedTensors) low(name string) (Tensor, bool) {
	s := x.adapter.shard
	stored, ok := x.stored[name]
	if !ok {
		return Tensor{}, false
	}
	i := s.infos[stored]
	return Tensor{Name: name, DType: i.DType, Shape: i.Shape, Data: s.data(stored)}, true
}

// unmerged is a tensor of the base, or a head that was trained whole.
func (x *adaptedTensors) unmerged(name string) (Tensor, error) {
	if t, ok := x.low(name); ok {
		return t, nil
	}
	return x.base.Tensor(name)
}

// changes reports whether a tensor is another than the base's.
func (x *adaptedTensors) changes(name string) bool {
	if _, ok := x.experts[name]; ok {
		return true
	}
	a, _ := LoRANames(name)
	return x.stored[a] != "" || x.stored[name] != ""
}

func (x *adaptedTensors) mapped(name string) [][]byte { return x.base.source.mapped(name) }

// tensor is W + Scale·B·A in float32 where the adapter changes W.
func (x *adaptedTensors) tensor(i TensorInfo) (Tensor, error) {
	name := i.Name
	w, err := x.unmerged(name)
	if err != nil {
		return w, err
	}
	if s, ok := x.experts[name]; ok {
		return x.merged(w, s)
	}
	an, bn := LoRANames(name)
	a, ok := x.low(an)
	if !ok {
		return w, nil
	}
	b, _ := x.low(bn)
	for _, t := range []*Tensor{&w, &a, &b} {
		if *t, err = t.As(F32); err != nil {
			return w, fmt.Errorf("%s: %w", x.path, err)
		}
	}
	get := func(b []byte, i int) float32 { return math.Float32frombits(le.Uint32(b[4*i:])) }
	rank, in := int(a.Shape[0]), int(a.Shape[1])
	av := make([]float32, rank*in)
	for i := range av {
		av[i] = get(a.Data, i)
	}
	out := Tensor{Name: name, DType: F32, Shape: w.Shape, Data: make([]byte, len(w.Data))}
	scale := x.adapter.Scale()
	parallel(int(w.Shape[0]), 16, func(from, to int) {
		row := make([]float32, in)
		for o := from; o < to; o++ {
			clear(row)
			for r := range rank {
				f := float32(scale * float64(get(b.Data, o*rank+r)))
				for i, v := range av[r*in : (r+1)*in] {
					row[i] += f * v
				}
			}
			for i, d := range row {
				put(out.Data, o*in+i, get(w.Data, o*in+i)+d)
			}
		}
	})
	return out, nil
}

// storedAs counts the base's tensors.
func (x *adaptedTensors) storedAs() map[string]int { return x.base.source.storedAs() }

func (x *adaptedTensors) close() error {
	return errors.Join(x.base.Close(), x.adapter.shard.m.Close())
}

// AdapterWriter writes an adapter's tensors, as Writer does.
type AdapterWriter struct{ *Writer }

// CreateAdapter starts the adapter_model.safetensors of a folder, for tensors
// named without PEFT's prefix.
func CreateAdapter(dir string, infos []TensorInfo) (AdapterWriter, error) {
	named := slices.Clone(infos)
	for i := range named {
		named[i].Name = adapterPrefix + named[i].Name
	}
	w, err := CreateSafetensors(filepath.Join(dir, adapterFile), named, nil)
	return AdapterWriter{w}, err
}

// Write writes one tensor, named without PEFT's prefix.
func (w AdapterWriter) Write(name string, data []byte) error {
	return w.Writer.Write(adapterPrefix+name, data)
}

// WritePEFT writes adapter_config.json of an adapter of a model: with it the folder is an adapter.
func (c AdapterConfig) WritePEFT(dir string, model Config) error {
	names, parameters := c.peftTargets(model)
	if names == nil {
		names = []string{} // null is PEFT's own choice
	}
	var modules any = names
	if model.Vision != nil {
		modules = c.modulePattern(model)
	}
	m := map[string]any{
		"peft_type": "LORA", "task_type": typeCausal, "base_model_name_or_path": c.Base, "r": c.Rank,
		"lora_alpha": c.Alpha, "lora_dropout": c.Dropout,
		"target_modules": modules, "use_rslora": c.RSLoRA, "bias": "none", "fan_in_fan_out": false, "inference_mode": true,
		"init_lora_weights": true, "modules_to_save": nil, "rank_pattern": map[string]any{}, "alpha_pattern": map[string]any{}, "use_dora": false,
	}
	if len(parameters) > 0 {
		m["target_parameters"] = parameters
	}
	if c.Alpha == math.Trunc(c.Alpha) {
		m["lora_alpha"] = int64(c.Alpha)
	}
	if c.Score {
		m["task_type"], m["modules_to_save"] = typeScore, []string{"score"}
	}
	return writeJSON(filepath.Join(dir, adapterConfigFile), m)
}
