package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/codes"
	"agentcli/internal/damaged"
	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
)

type quantisedCase struct {
	Config json.RawMessage
	Name   string
	DType  DType
	Shape  []int64
	SHA256 string
	First  []float32
}

// openQuantised reads one file of testdata/quantised.
func openQuantised(path string, config json.RawMessage) (*quantisedTensors, error) {
	q, why := readQuantisation(config)
	if why != "" {
		return nil, malformed.At(path, "quantization_config", malformed.Unsupported, "%s", why)
	}
	f := &folderTensors{in: map[string]*shard{}, infos: map[string]TensorInfo{}}
	if err := f.addShard(path, nil); err != nil {
		return nil, err
	}
	t, err := dequantiseFolder(f, q)
	if err != nil {
		f.close()
	}
	return t, err
}

// quantised.json: what transformers, compressed-tensors and autoawq make of the
// files beside it, GPTQ's by its published packing.
func TestQuantisedEqualsTheReference(t *testing.T) {
	var g map[string]quantisedCase
	goldenfile.Load(t, "quantised/quantised.json", &g)
	for name, c := range g {
		t.Run(name, func(t *testing.T) {
			q, err := openQuantised(filepath.Join("testdata", "quantised", name+".safetensors"), c.Config)
			if err != nil {
				t.Fatal(err)
			}
			defer q.close()
			info, ok := q.infos[c.Name]
			if !ok || info.DType != c.DType || !slices.Equal(info.Shape, c.Shape) {
				t.Fatalf("%s: %+v, want %s %v; there are %v", c.Name, info, c.DType, c.Shape, q.names)
			}
			for _, n := range q.names {
				if n != c.Name && !strings.HasSuffix(n, ".bias") {
					t.Errorf("%s is given as a tensor of the model", n)
				}
			}
			got, err := q.tensor(info)
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(got.Data); hex.EncodeToString(sum[:]) != c.SHA256 {
				f, _ := got.As(F32)
				var first []float32
				for i := range c.First {
					first = append(first, part{TensorInfo: TensorInfo{DType: F32}, data: f.Data[4*i : 4*i+4]}.floats()...)
				}
				t.Errorf("values differ: they begin %v, want %v", first, c.First)
			}
			for _, d := range []DType{F32, BF16} {
				want, err := got.As(d)
				if err != nil {
					t.Fatal(err)
				}
				if x, err := q.tensorFor(info, d); err != nil || x.DType != d || !bytes.Equal(x.Data, want.Data) {
					t.Errorf("wanted in %s it has other numbers than rounded to it: %v", d, err)
				}
			}
		})
	}
}

// Blocks of more numbers than a byte has values, whose borders are not those of the rows that are made together.
func TestBlocksThatShareAScale(t *testing.T) {
	const rows, cols, high = 144, 64, 48
	path := filepath.Join(t.TempDir(), "f.safetensors")
	w, err := CreateSafetensors(path, []TensorInfo{{"m.weight", F8E4M3, []int64{rows, cols}},
		{"m.weight_scale_inv", F32, []int64{rows / high, 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, scales := make([]byte, rows*cols), []float32{.5, 3, .007}
	for i := range data {
		data[i] = byte(i * 7 % 127)
	}
	var stored []byte
	for _, x := range scales {
		stored = le.AppendUint32(stored, math.Float32bits(x))
	}
	if err := errors.Join(w.Write("m.weight", data), w.Write("m.weight_scale_inv", stored), w.Close()); err != nil {
		t.Fatal(err)
	}
	q, err := openQuantised(path, json.RawMessage(`{"quant_method": "fp8"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	got, err := q.tensor(q.infos["m.weight"])
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range data {
		want := codes.E4M3Number(b) * scales[i/cols/high]
		if x := math.Float32frombits(le.Uint32(got.Data[4*i:])); x != want {
			t.Fatalf("number %d is %v, want %v", i, x, want)
		}
	}
}

// A quantised tensor of which a part is missing, cut off or of another shape or
// type is named.
func TestHostileQuantised(t *testing.T) {
	var g map[string]quantisedCase
	goldenfile.Load(t, "quantised/quantised.json", &g)
	for name, c := range g {
		file := filepath.Join("testdata", "quantised", name+".safetensors")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := binary.LittleEndian.Uint64(b)
		var head map[string]map[string]any
		if err := json.Unmarshal(b[8:8+n], &head); err != nil {
			t.Fatal(err)
		}
		for tensor := range head {
			if tensor == "__metadata__" || strings.HasSuffix(tensor, ".bias") {
				continue
			}
			for what, change := range map[string]func(m map[string]map[string]any){
				"renamed": func(m map[string]map[string]any) { m["x"] = m[tensor]; delete(m, tensor) },
				"flat": func(m map[string]map[string]any) {
					n := 1.0
					for _, d := range m[tensor]["shape"].([]any) {
						n *= d.(float64)
					}
					m[tensor]["shape"] = []any{n, 1.0, 1.0, 1.0, 1.0}
				},
				"of another type": func(m map[string]map[string]any) {
					other := map[string]string{"I32": "U32", "I64": "F64", "U8": "BOOL", "I8": "BOOL", "F8_E4M3": "F8_E5M2", "F32": "I32", "F16": "I16",
						"BF16": "I16"}
					m[tensor]["dtype"] = other[m[tensor]["dtype"].(string)]
				},
			} {
				var m map[string]map[string]any
				_ = json.Unmarshal(b[8:8+n], &m)
				change(m)
				h, _ := json.Marshal(m)
				bad := append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...)
				path := filepath.Join(t.TempDir(), "f.safetensors")
				if err := os.WriteFile(path, append(bad, b[8+n:]...), 0o644); err != nil {
					t.Fatal(err)
				}
				q, err := openQuantised(path, c.Config)
				if err == nil {
					// A main part that is not known for one, an optional part: the plain tensor is
					// not there, or it is another.
					_, there := q.recipes[c.Name]
					q.close()
					if there && what != "renamed" {
						t.Errorf("%s: %s %s is taken", name, tensor, what)
					}
					continue
				}
				if f := malformed.Facts(err); f.Path != path || !strings.HasPrefix(f.Field, "tensor ") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %s %s: %v", name, tensor, what, err)
				}
			}
		}
	}
}

func TestUnknownQuantisationIsNamed(t *testing.T) {
	for raw, names := range map[string]string{
		`{"quant_method":"bitsandbytes"}`:                                                           "bitsandbytes",
		`{"quant_method":"awq","version":"gemv","bits":4}`:                                          "gemv",
		`{"quant_method":"gptq","bits":3}`:                                                          "3",
		`{"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"}`:                             "marlin",
		`{"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"}`:                     "nvfp4-pack-quantized",
		`{"quant_method":"compressed-tensors","format":"int-quantized","transform_config":{"a":1}}`: "transform_config",
		`[]`:                 "read",
		`{"quant_method":7}`: "read",
	} {
		q, why := readQuantisation(json.RawMessage(raw))
		if q != nil || !strings.Contains(why, names) || !strings.Contains(why, "GGUF") {
			t.Errorf("%s: %q", raw, why)
		}
	}
}

// quantisedFolder is a tiny Llama of which one projection is stored as int8 with
// scales, and what that projection is.
func quantisedFolder(t *testing.T) (dir string, want []float32) {
	t.Helper()
	m, err := Open(filepath.Join("testdata", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dir = t.TempDir()
	const name = "model.layers.0.mlp.up_proj"
	var infos []TensorInfo
	for _, i := range m.Config().Tensors() {
		if i.Name != name+".weight" {
			infos = append(infos, i)
		}
	}
	i, _ := m.Info(name + ".weight")
	infos = append(infos, TensorInfo{name + ".weight", I8, i.Shape}, TensorInfo{name + ".weight_scale", F32, []int64{i.Shape[0], 1}})
	w, err := CreateSafetensors(filepath.Join(dir, "model.safetensors"), infos, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		data := make([]byte, count(i.Shape)*i.DType.Size())
		switch {
		case i.DType == I8:
			for k := range data {
				data[k] = byte(7 * k)
				want = append(want, float32(int8(data[k]))/8)
			}
		case strings.HasSuffix(i.Name, "_scale"):
			for k := range i.Shape[0] {
				put(data, int(k), 0.125)
			}
		default:
			x, err := m.Tensor(i.Name)
			if err != nil {
				t.Fatal(err)
			}
			data = x.Data
		}
		if err := w.Write(i.Name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Config().WriteHF(dir, F32); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = []byte(strings.Replace(string(b), "{", `{"quantization_config":{"quant_method":"compressed-tensors","format":"int-quantized"},`, 1))
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// A quantised folder opens under plain names, and what is saved from it is an
// ordinary model.
func TestQuantisedFolder(t *testing.T) {
	dir, want := quantisedFolder(t)
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	to := t.TempDir()
	if err := m.Save(filepath.Join(to, "model.safetensors"), F32); err != nil {
		t.Fatal(err)
	}
	if err := m.Config().WriteHF(to, F32); err != nil {
		t.Fatal(err)
	}
	plain, err := Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	const scaled = "I8 with scales ×1"
	if slices.Contains(plain.Storage(), scaled) || !slices.Contains(m.Storage(), scaled) {
		t.Errorf("stored as %v, before %v", plain.Storage(), m.Storage())
	}
	for _, m := range []*Model{m, plain} {
		x, err := m.Tensor("model.layers.0.mlp.up_proj.weight")
		if err != nil {
			t.Fatal(err)
		}
		if got := (part{TensorInfo: TensorInfo{DType: x.DType}, data: x.Data}).floats(); !slices.Equal(got, want) {
			t.Errorf("values begin %v, want %v", got[:4], want[:4])
		}
	}
}

// A damaged file of each format is an error that names it, or works.
func TestMutatedQuantised(t *testing.T) {
	var g map[string]quantisedCase
	goldenfile.Load(t, "quantised/quantised.json", &g)
	files := map[string][]byte{}
	for name := range g {
		b, err := os.ReadFile(filepath.Join("testdata", "quantised", name+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	path := filepath.Join(t.TempDir(), "f.safetensors")
	n := damaged.Files(t, 1000, files, func(name string, b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Error(err)
		}
		q, err := openQuantised(path, g[name].Config)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%s: no path in %v", name, err)
			}
			return err
		}
		for _, n := range q.names {
			if _, err := q.tensor(q.infos[n]); err != nil {
				t.Errorf("%s: it opened, then %v", name, err)
			}
		}
		return q.close()
	})
	if n < 300 || n == 1000 {
		t.Errorf("%d errors: the damage shows nothing", n)
	}
}
