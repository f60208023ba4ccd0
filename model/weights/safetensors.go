package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"agentcli/internal/malformed"
	"agentcli/internal/text"
	"agentcli/model/arch"
	"agentcli/model/gguf"
)

// maxHeader is the limit of the safetensors library itself.
const maxHeader = 100_000_000

// shard is one mapped safetensors file.
type shard struct {
	path  string
	m     *gguf.Mapping
	body  []byte
	infos map[string]TensorInfo
	spans map[string][2]int64
	names []string // by place in the file
}

func (s *shard) data(name string) []byte {
	sp := s.spans[name]
	return s.body[sp[0]:sp[1]:sp[1]]
}

func openShard(path string) (*shard, error) {
	m, err := gguf.Map(path)
	if err != nil {
		return nil, err
	}
	s, err := parseSafetensors(path, m.Bytes())
	if err != nil {
		m.Close()
		return nil, err
	}
	s.m = m
	return s, nil
}

func parseSafetensors(path string, b []byte) (*shard, error) {
	fail := func(field string, kind malformed.Kind, format string, a ...any) error {
		return malformed.At(path, printable(field), kind, format, a...)
	}
	if len(b) < 8 {
		return nil, fail("header length", malformed.Truncated, "the file has %d bytes; it is cut off", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) || n > maxHeader {
		return nil, fail("header length", malformed.Truncated, "%d bytes, but the file has %d after it; it is cut off or no safetensors file", n,
			len(b)-8)
	}
	s := &shard{path: path, body: b[8+n:], infos: map[string]TensorInfo{}, spans: map[string][2]int64{}}
	var head map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &head); err != nil {
		return nil, fail("header", malformed.Syntax, "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(head)) { // of several faults it is always the same one
		raw := head[name]
		if name == "__metadata__" {
			continue
		}
		var e struct {
			DType   DType    `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets *[]int64 `json:"data_offsets"`
		}
		field := "tensor " + name
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fail(field, malformed.Type, "%v", err)
		}
		size := e.DType.Size()
		if size == 0 {
			return nil, fail(field, malformed.Unsupported, "dtype %q is not known", string(e.DType))
		}
		if e.Offsets == nil || len(*e.Offsets) != 2 {
			return nil, fail(field+": data_offsets", malformed.Type, "not two numbers")
		}
		from, to := (*e.Offsets)[0], (*e.Offsets)[1]
		if from < 0 || to < from || to > int64(len(s.body)) {
			return nil, fail(field+": data_offsets", malformed.Truncated,
				"%d to %d do not lie within the %d bytes of data; the file is cut off or damaged", from, to, len(s.body))
		}
		total := size
		for _, d := range e.Shape {
			if d < 0 || (d > 0 && total > math.MaxInt64/d) {
				return nil, fail(field+": shape", malformed.Range, "%v is absurd", e.Shape)
			}
			total *= d
		}
		if total != to-from {
			return nil, fail(field+": shape", malformed.Mismatch, "%v of %s takes %d bytes, but data_offsets give %d", e.Shape, e.DType, total,
				to-from)
		}
		s.infos[name] = TensorInfo{name, e.DType, e.Shape}
		s.spans[name] = [2]int64{from, to}
		s.names = append(s.names, name)
	}
	sort.Slice(s.names, func(i, j int) bool {
		a, b := s.spans[s.names[i]], s.spans[s.names[j]]
		if a != b {
			return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
		}
		return s.names[i] < s.names[j]
	})
	end, prev := int64(0), ""
	for _, name := range s.names {
		sp := s.spans[name]
		if sp[0] == sp[1] {
			continue
		}
		if sp[0] < end {
			return nil, fail("tensor "+name+": data_offsets", malformed.Mismatch, "%d to %d overlap tensor %s", sp[0], sp[1], printable(prev))
		}
		end, prev = sp[1], name
	}
	return s, nil
}

// printable keeps a hostile name fit for an error.
func printable(s string) string { return text.Name(s, 120) }

// folderTensors are the tensors of a Hugging Face folder, in one file or several.
type folderTensors struct {
	shards []*shard
	in     map[string]*shard // tensor → its file
	stored map[string]string // tensor → its name there, where that is another
	within map[string]int64  // tensor → the byte at which it begins in that one, of several in one
	infos  map[string]TensorInfo
	names  []string // in the files' order
	files  []string
}

func openFolder(dir string) (*Model, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	f := &folderTensors{in: map[string]*shard{}, infos: map[string]TensorInfo{}}
	if err := f.open(dir); err != nil {
		_ = f.close()
		return nil, err
	}
	switch {
	case c.Multimodal != "":
		f.keep(textName)
	case c.Vision != nil:
		f.keep(visionName)
	}
	f.splitExperts(c)
	m := &Model{path: dir, format: FormatSafetensors, config: c, template: folderTemplate(dir), files: f.files, source: f}
	if c.quantised != nil {
		q, err := dequantiseFolder(f, c.quantised)
		if err != nil {
			_ = f.close()
			return nil, err
		}
		m.source = q
	}
	m.names, m.infos = f.names, f.infos
	return m, nil
}

// open maps the files of a folder.
func (f *folderTensors) open(dir string) error {
	index := filepath.Join(dir, "model.safetensors.index.json")
	single := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(index)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(single); err != nil {
			hint := ""
			if g, _ := filepath.Glob(filepath.Join(dir, "*.bin")); len(g) > 0 {
				hint = "; its .bin files are pickles, which are not read: save the model as safetensors"
			}
			return malformed.At(dir, "", malformed.Missing, "neither model.safetensors nor model.safetensors.index.json in this folder%s", hint)
		}
		return f.addShard(single, nil)
	}
	if err != nil {
		return err
	}
	var ix struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &ix); err != nil {
		return fmt.Errorf("%s: %w", index, err)
	}
	if len(ix.WeightMap) == 0 {
		return malformed.At(index, "weight_map", malformed.Missing, "no tensors")
	}
	byFile := map[string]map[string]bool{}
	for name, file := range ix.WeightMap {
		if file == "" || file != filepath.Base(file) || !filepath.IsLocal(file) {
			return malformed.At(index, "weight_map: "+printable(name), malformed.Range, "%q is not the name of a file in this folder", file)
		}
		if byFile[file] == nil {
			byFile[file] = map[string]bool{}
		}
		byFile[file][name] = true
	}
	files := make([]string, 0, len(byFile))
	for name := range byFile {
		files = append(files, name)
	}
	sort.Strings(files)
	for _, name := range files {
		if err := f.addShard(filepath.Join(dir, name), byFile[name]); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return malformed.At(index, "weight_map: "+name, malformed.Missing, "the file is missing; fetch it too")
			}
			return err
		}
	}
	return nil
}

// addShard takes from a file the tensors that the index gives it (nil: all).
func (f *folderTensors) addShard(path string, want map[string]bool) error {
	s, err := openShard(path)
	if err != nil {
		return err
	}
	f.shards = append(f.shards, s)
	f.files = append(f.files, path)
	for name := range want {
		if _, ok := s.infos[name]; !ok {
			return malformed.At(path, "tensor "+printable(name), malformed.Missing, "it is not in this file, but the index says so")
		}
	}
	for _, name := range s.names {
		if want != nil && !want[name] {
			continue
		}
		f.infos[name] = s.infos[name]
		f.in[name] = s
		f.names = append(f.names, name)
	}
	return nil
}

// tensor is the mapped data as stored.
func (f *folderTensors) tensor(i TensorInfo) (Tensor, error) {
	return Tensor{Name: i.Name, DType: i.DType, Shape: i.Shape, Data: f.data(i.Name)}, nil
}

func (f *folderTensors) mapped(name string) [][]byte {
	if f.in[name] == nil {
		return nil
	}
	return [][]byte{f.data(name)}
}

func (f *folderTensors) data(name string) []byte {
	s := f.in[name]
	own := name
	if stored, ok := f.stored[name]; ok {
		name = stored
	}
	data := s.data(name)
	if at, ok := f.within[own]; ok {
		i := f.infos[own]
		return data[at:][:count(i.Shape)*i.DType.Size()]
	}
	return data
}

// splitExperts names the experts of a stack one by one, as other files have them: gate_up_proj
// [experts, 2·size, hidden] and down_proj [experts, hidden, size], as Qwen3.5 is published.
func (f *folderTensors) splitExperts(c Config) {
	for layer, l := range c.Layers {
		e := l.Experts
		if e.Count == 0 || e.Clamped != nil || e.Numbered {
			continue
		}
		h, size := int64(c.HiddenSize), int64(e.Size)
		at := arch.LayerPrefix(layer) + "mlp.experts."
		f.split(at+"gate_up_proj", []int64{int64(e.Count), 2 * size, h}, []int64{size, h}, func(part int) string {
			return []string{e.Expert(part / 2).Gate(), e.Expert(part / 2).Up()}[part%2]
		}, layer)
		f.split(at+"down_proj", []int64{int64(e.Count), h, size}, []int64{h, size}, func(part int) string { return e.Expert(part).Down() }, layer)
	}
}

// split takes a tensor of that shape for several, one behind the other.
func (f *folderTensors) split(whole string, shape, part []int64, name func(part int) string, layer int) {
	i, ok := f.infos[whole]
	if !ok || !slices.Equal(i.Shape, shape) || i.DType.Size() == 0 {
		return
	}
	if f.stored == nil {
		f.stored = map[string]string{}
	}
	if f.within == nil {
		f.within = map[string]int64{}
	}
	stored, in := whole, f.in[whole]
	if s, ok := f.stored[whole]; ok {
		stored = s
	}
	for k := range int(count(shape) / count(part)) {
		own := arch.LayerPrefix(layer) + name(k) + ".weight"
		f.infos[own] = TensorInfo{Name: own, DType: i.DType, Shape: part}
		f.in[own], f.stored[own], f.within[own] = in, stored, int64(k)*count(part)*i.DType.Size()
		f.names = append(f.names, own)
	}
	delete(f.infos, whole)
	delete(f.in, whole)
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == whole })
}

// keep leaves the tensors that rename knows, under the names that it gives them.
func (f *folderTensors) keep(rename func(stored string) (name string, ok bool)) {
	f.stored = map[string]string{}
	names := f.names
	f.names = nil
	infos, in := map[string]TensorInfo{}, map[string]*shard{}
	for _, stored := range names {
		name, ok := rename(stored)
		if !ok {
			continue
		}
		i := f.infos[stored]
		i.Name = name
		f.names, infos[name], in[name], f.stored[name] = append(f.names, name), i, f.in[stored], stored
	}
	f.infos, f.in = infos, in
}

// textName is the name of a multimodal model's tensor in its language model, which
// transformers has written in three ways.
func textName(name string) (string, bool) {
	if rest, ok := strings.CutPrefix(name, "model.language_model."); ok { // since transformers 4.52
		return "model." + rest, true
	}
	if rest, ok := strings.CutPrefix(name, "language_model."); ok {
		if strings.HasPrefix(rest, "model.") || strings.HasPrefix(rest, "lm_head.") {
			return rest, true
		}
		return "model." + rest, true
	}
	return name, strings.HasPrefix(name, "lm_head.")
}

// visionName is the name of a tensor of a model that takes images: the encoder's begin with
// "visual.", those of the language model as in a model of text alone.
func visionName(name string) (string, bool) {
	if strings.HasPrefix(name, "model.visual.") {
		return strings.TrimPrefix(name, "model."), true
	}
	if inner, ok := textName(name); ok {
		return inner, true
	}
	return name, strings.HasPrefix(name, "visual.") || strings.HasPrefix(name, "model.") || strings.HasPrefix(name, "score.")
}

func (f *folderTensors) storedAs() map[string]int {
	n := map[string]int{}
	for _, i := range f.infos {
		n[string(i.DType)]++
	}
	return n
}

func (f *folderTensors) close() error {
	var errs []error
	for _, s := range f.shards {
		errs = append(errs, s.m.Close())
	}
	return errors.Join(errs...)
}

// folderTemplate is the chat template of a folder, "" if none.
func folderTemplate(dir string) string {
	if b, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		return string(b)
	}
	b, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return ""
	}
	var c struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if json.Unmarshal(b, &c) != nil || !bytes.HasPrefix(c.Template, []byte(`"`)) {
		var list struct {
			Template []struct{ Name, Template string } `json:"chat_template"`
		}
		if json.Unmarshal(b, &list) != nil {
			return ""
		}
		for _, t := range list.Template {
			if t.Name == "default" {
				return t.Template
			}
		}
		return ""
	}
	var s string
	if json.Unmarshal(c.Template, &s) != nil {
		return ""
	}
	return s
}
