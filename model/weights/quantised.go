package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/internal/codes"
	"agentcli/internal/malformed"
)

// quantisation is the field quantization_config of config.json, as far as
// weights need it.
type quantisation struct {
	Method     string                   `json:"quant_method"`
	Format     string                   `json:"format"`            // compressed-tensors
	Bits       int                      `json:"bits"`              // GPTQ, AWQ
	Checkpoint string                   `json:"checkpoint_format"` // GPTQ: gptq or gptq_v2
	Version    string                   `json:"version"`           // AWQ: gemm
	PackDType  string                   `json:"pack_dtype"`
	Transform  any                      `json:"transform_config"`
	Sparsity   *struct{ Format string } `json:"sparsity_config"`
}

// wayOut is what to do with weights that cannot be read.
const wayOut = "use the unquantised model, or a GGUF of it"

// readQuantisation is nil where config.json has no such field. What cannot be
// read is named.
func readQuantisation(raw json.RawMessage) (q *quantisation, why string) {
	if isNull(raw) {
		return nil, ""
	}
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Sprintf("it cannot be read (%v); %s", err, wayOut)
	}
	switch q.Method {
	case "fp8", "mxfp4":
	case "gptq":
		if !slices.Contains([]string{"", "gptq", "gptq_v2"}, q.Checkpoint) {
			return nil, fmt.Sprintf("GPTQ's checkpoint_format %q is not supported; gptq and gptq_v2 are: %s", q.Checkpoint, wayOut)
		}
		if !slices.Contains([]int{2, 4, 8}, q.Bits) {
			return nil, fmt.Sprintf("GPTQ with %d bits is not supported; 2, 4 and 8 are: %s", q.Bits, wayOut)
		}
		if q.PackDType != "" && q.PackDType != "int32" {
			return nil, fmt.Sprintf("GPTQ's pack_dtype %q is not supported; int32 is: %s", q.PackDType, wayOut)
		}
	case "awq":
		if v := strings.ToLower(q.Version); v != "" && v != "gemm" || q.Bits != 4 && q.Bits != 0 {
			return nil, fmt.Sprintf("AWQ's version %q with %d bits is not supported; gemm with 4 is: %s", q.Version, q.Bits, wayOut)
		}
	case "compressed-tensors":
		if !slices.Contains([]string{"pack-quantized", "int-quantized", "naive-quantized", "float-quantized"}, q.Format) {
			return nil, fmt.Sprintf("compressed-tensors' format %q is not supported; "+
				"pack-quantized, int-quantized, naive-quantized and float-quantized are: %s",
				q.Format, wayOut)
		}
		if q.Transform != nil || q.Sparsity != nil && q.Sparsity.Format != "dense" && q.Sparsity.Format != "" {
			return nil, fmt.Sprintf("compressed-tensors with transform_config or sparsity_config is not supported: %s", wayOut)
		}
	default:
		return nil, fmt.Sprintf("quant_method %q is not supported; fp8, mxfp4, compressed-tensors, gptq and awq are: %s", q.Method, wayOut)
	}
	return q, ""
}

// quantisedTensors are the tensors of a folder that holds some of them
// quantised. Those are given under their plain names, dequantised anew at each
// call, in the type of their scales.
type quantisedTensors struct {
	*folderTensors
	recipes map[string]recipe
}

// recipe makes one tensor of several stored ones.
type recipe struct {
	info   TensorInfo
	stored string // the format on disk, for people
	main   part
	codes  func() *codes.Matrices // with scales that are read anew; nil: there is no recipe
}

// dequantiseFolder finds the quantised tensors of a folder by their parts.
func dequantiseFolder(f *folderTensors, q *quantisation) (*quantisedTensors, error) {
	t := &quantisedTensors{folderTensors: f, recipes: map[string]recipe{}}
	p := &parts{f: f, used: map[string]bool{}}
	for _, name := range f.names {
		r, plain, err := p.recipe(name, q)
		if err != nil {
			return nil, err
		}
		if r.codes != nil {
			r.info.Name = plain
			t.recipes[plain] = r
		}
	}
	// Scales and zero points are no tensors of the model.
	infos, names := map[string]TensorInfo{}, []string(nil)
	for _, name := range f.names {
		if !p.used[name] {
			infos[name] = f.infos[name]
			names = append(names, name)
		}
	}
	for plain, r := range t.recipes {
		if _, twice := infos[plain]; twice {
			return nil, malformed.At(f.in[plain].path, "tensor "+printable(plain), malformed.Duplicate, "it is there quantised too")
		}
		infos[plain] = r.info
		names = append(names, plain)
	}
	f.infos = infos
	slices.Sort(names)
	f.names = names
	return t, nil
}

// parts finds the tensors that belong together and checks them.
type parts struct {
	f    *folderTensors
	used map[string]bool
}

// part is a stored tensor that belongs to a quantised one.
type part struct {
	TensorInfo
	data []byte
	path string
}

func (p part) fail(kind malformed.Kind, format string, a ...any) error {
	return malformed.At(p.path, "tensor "+printable(p.Name), kind, format, a...)
}

// dims checks type and shape; -1 stands for any size.
func (p part) dims(types []DType, shape ...int64) error {
	if !slices.Contains(types, p.DType) {
		return p.fail(malformed.Type, "its type is %s, not one of %v", p.DType, types)
	}
	ok := len(shape) == len(p.Shape)
	for i := 0; ok && i < len(shape); i++ {
		ok = p.Shape[i] == shape[i] || shape[i] < 0 && p.Shape[i] > 0
	}
	if !ok {
		return p.fail(malformed.Mismatch, "its shape is %v, want %v (-1: any)", p.Shape, shape)
	}
	return nil
}

// get takes a tensor as a part; false where there is none.
func (p *parts) get(name string) (part, bool) {
	i, ok := p.f.infos[name]
	if !ok {
		return part{}, false
	}
	p.used[name] = true
	return part{i, p.f.data(name), p.f.in[name].path}, true
}

// need is get where the part must be there.
func (p *parts) need(of part, name string) (part, error) {
	x, ok := p.get(name)
	if !ok {
		return x, of.fail(malformed.Missing, "it needs %s, which is not there", printable(name))
	}
	return x, nil
}

// recipe says how a tensor is made of this one and of those beside it. codes is
// nil where the tensor is not quantised or no main part.
func (p *parts) recipe(name string, q *quantisation) (r recipe, plain string, err error) {
	module, suffix := name, ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		module, suffix = name[:i], name[i+1:]
	}
	plain = module + ".weight"
	switch {
	case q.Method == "mxfp4" && strings.HasSuffix(name, "_blocks"):
		plain = strings.TrimSuffix(name, "_blocks")
		r, err = p.mxfp4(name, plain+"_scales")
	case q.Method == "gptq" && suffix == "qweight":
		r, err = p.gptq(module, q)
	case q.Method == "awq" && suffix == "qweight":
		r, err = p.awq(module)
	case q.Method == "compressed-tensors" && suffix == "weight_packed":
		r, err = p.packed(module)
	case suffix == "weight" && (p.f.infos[name].DType == F8E4M3 || q.Method == "compressed-tensors" && p.f.infos[name].DType == I8):
		r, err = p.scaled(module)
	}
	return r, plain, err
}

// floatTypes are the types that scales may have.
var floatTypes = []DType{F32, F16, BF16}

// floats reads a part's numbers.
func (p part) floats() []float32 {
	out := make([]float32, len(p.data)/int(p.DType.Size()))
	for i := range out {
		switch p.DType {
		case F32:
			out[i] = math.Float32frombits(le.Uint32(p.data[4*i:]))
		case F16:
			out[i] = f16(p.data[2*i:])
		case BF16:
			out[i] = math.Float32frombits(uint32(le.Uint16(p.data[2*i:])) << 16)
		case I8:
			out[i] = float32(int8(p.data[i]))
		case F8E4M3:
			out[i] = codes.E4M3Number(p.data[i])
		case F8E8M0, U8:
			out[i] = e8m0(p.data[i])
		}
	}
	return out
}

// e8m0 is the number of an exponent of eight bits: 2^(b−127).
func e8m0(b byte) float32 { return math.Float32frombits(max(uint32(b)<<23, 1<<22)) }

// tensor is the mapped data, or what a recipe makes.
func (t *quantisedTensors) tensor(i TensorInfo) (Tensor, error) {
	if r, ok := t.recipes[i.Name]; ok {
		return t.tensorFor(i, r.info.DType)
	}
	return t.folderTensors.tensor(i)
}

// tensorFor is tensor in float32, bfloat16 or the type of the recipe.
func (t *quantisedTensors) tensorFor(i TensorInfo, d DType) (Tensor, error) {
	r, ok := t.recipes[i.Name]
	if !ok {
		return t.folderTensors.tensor(i)
	}
	return Tensor{Name: i.Name, DType: d, Shape: r.info.Shape, Data: numbersIn(r.codes(), d)}, nil
}

// codesOf is nil where a tensor is not quantised.
func (t *quantisedTensors) codesOf(i TensorInfo) *codes.Matrices {
	if r, ok := t.recipes[i.Name]; ok {
		return r.codes()
	}
	return nil
}

// mapped are the codes of a quantised tensor; its scales are far fewer.
func (t *quantisedTensors) mapped(name string) [][]byte {
	if r, ok := t.recipes[name]; ok {
		return [][]byte{r.main.data}
	}
	return t.folderTensors.mapped(name)
}

func (t *quantisedTensors) storedAs() map[string]int {
	n := map[string]int{}
	for name, i := range t.infos {
		if r, ok := t.recipes[name]; ok {
			n[r.stored]++
		} else {
			n[string(i.DType)]++
		}
	}
	return n
}
