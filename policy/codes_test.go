//go:build libtorch

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/torch"
	"agentcli/internal/torch/testdevice"
	"agentcli/model/gguf"
	"agentcli/model/weights"
	"agentcli/traj"
)

// codedModel writes a model whose layers' matrices are random codes: of fp8, int4, GPTQ or AWQ.
func codedModel(t *testing.T, kind string) string {
	t.Helper()
	from := wideModel(t, "qwen3", 0)
	m, err := weights.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	random := rand.New(rand.NewPCG(5, 6))
	var infos []weights.TensorInfo
	data := map[string][]byte{}
	add := func(name string, d weights.DType, byteOf func() byte, shape ...int64) {
		infos = append(infos, weights.TensorInfo{Name: name, DType: d, Shape: shape})
		size := d.Size()
		for _, n := range shape {
			size *= n
		}
		for range size {
			data[name] = append(data[name], byteOf())
		}
	}
	anyByte := func() byte { return byte(random.Uint32()) }
	scales := func(high byte) func() byte { // little endian: of numbers near 2^-8, or 2^-10 with fp8
		i := 0
		return func() byte { i++; return []byte{anyByte() & 0xf0, high}[(i-1)%2] }
	}
	for _, name := range m.Names() {
		i, _ := m.Info(name)
		module, isMatrix := strings.CutSuffix(name, ".weight")
		if isMatrix = isMatrix && len(i.Shape) == 2 && strings.Contains(name, "layers."); !isMatrix {
			x, err := m.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			infos, data[name] = append(infos, i), x.Data
			continue
		}
		out, in := i.Shape[0], i.Shape[1]
		switch kind {
		case "fp8":
			add(name, weights.F8E4M3, func() byte { return anyByte() & 0xbf }, out, in)
			add(module+".weight_scale_inv", weights.BF16, scales(0x3b), (out+127)/128, (in+127)/128)
		case "compressed-tensors":
			add(module+".weight_packed", weights.I32, anyByte, out, in/8)
			add(module+".weight_scale", weights.BF16, scales(0x3b), out, in/32)
			add(module+".weight_shape", weights.I32, anyByte, 2)
			data[module+".weight_shape"] = []byte{byte(out), byte(out >> 8), 0, 0, byte(in), byte(in >> 8), 0, 0}
		case "gptq":
			add(module+".qweight", weights.I32, anyByte, in/8, out)
			add(module+".qzeros", weights.I32, anyByte, in/64, out/8)
			add(module+".scales", weights.F16, scales(0x1c), in/64, out)
		case "awq":
			add(module+".qweight", weights.I32, anyByte, in, out/8)
			add(module+".qzeros", weights.I32, anyByte, in/128, out/8)
			add(module+".scales", weights.F16, scales(0x1c), in/128, out)
		}
	}
	dir := t.TempDir()
	w, err := weights.CreateSafetensors(filepath.Join(dir, "model.safetensors"), infos, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if err := w.Write(i.Name, data[i.Name]); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	var c map[string]any
	if err = errors.Join(err, w.Close(), json.Unmarshal(config, &c)); err != nil {
		t.Fatal(err)
	}
	c["quantization_config"] = map[string]any{"quant_method": kind, "bits": 4, "format": "pack-quantized"}
	if config, err = json.Marshal(c); err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A quantised model, whose matrices are codes until they are in panels, answers as the one that was saved of it does.
func TestAQuantisedModelIsTheOneSavedOfIt(t *testing.T) {
	for _, kind := range []string{"fp8", "compressed-tensors", "gptq", "awq"} {
		coded := codedModel(t, kind)
		m, err := weights.Open(coded)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := tensorsFor(m, torch.BFloat16)("model.layers.1.self_attn.q_proj.weight"); err != nil || x.DType != weights.Coded {
			t.Errorf("%s: a matrix is no longer codes before it is computed: %s %v", kind, x.DType, err)
		}
		plain := t.TempDir()
		err = errors.Join(m.Save(filepath.Join(plain, "model.safetensors"), weights.F32), m.Config().WriteHF(plain, weights.F32), m.Close())
		if err != nil {
			t.Fatal(err)
		}
		tok, err := os.ReadFile("testdata/tiny-qwen3/tokenizer.json")
		for _, dir := range []string{coded, plain} {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "tokenizer.json"), tok, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, dtype := range []string{"bfloat16", "float32"} {
			var ids [2][]int32
			var lps [2][]float32
			for i, dir := range []string{coded, plain} {
				p := open(t, dir, Config{DType: dtype, Threads: 2, CacheBytes: 1 << 22, MaxContext: 128})
				out, err := p.Sample(t.Context(), text(3, 30), traj.Sampling{MaxTokens: 12}, 7)
				if err != nil {
					t.Fatal(err)
				}
				l, err := p.Logprobs(t.Context(), [][]int32{text(4, 50)})
				if err != nil {
					t.Fatal(err)
				}
				ids[i], lps[i] = out.IDs, l[0]
			}
			if !slices.Equal(ids[0], ids[1]) || !slices.Equal(lps[0], lps[1]) {
				t.Errorf("%s in %s: other tokens or log-probs: %v %v", kind, dtype, ids, lps[0][:4])
			}
		}
	}
}

// The weights of a quantised model come to a device as they are stored, and it answers as one whose numbers were computed
// before.
func TestADeviceIsGivenQuantisedWeightsAsTheyAreStored(t *testing.T) {
	if kernelDevice() != torch.TestDevice {
		t.Skip("nobody counts the bytes that a GPU is given")
	}
	onDefault(t, torch.TestDevice, "")
	for name, path := range map[string]string{"fp8": codedModel(t, "fp8"), "GPTQ": codedModel(t, "gptq"), "Q4_K": blocksModel(t, gguf.Q4_K, 144, 0, 2)} {
		var size int64
		m, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Files() {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		n, err := describe(m.Config(), false)
		if err != nil {
			t.Fatal(err)
		}
		given := map[bool]int64{}
		numbers := map[bool][]byte{}
		for _, kernels := range []bool{false, true} {
			testdevice.Kernels(kernels)
			s := torch.NewScope()
			before := testdevice.CopiedBytes()
			of := source{Model: m, tensor: tensorsFor(m, torch.BFloat16)}
			for _, p := range n.params {
				ts, err := of.tensors(p)
				if err != nil {
					t.Fatal(err)
				}
				x, err := of.parameter(s, p, ts, torch.BFloat16, torch.TestDevice)
				if err != nil {
					t.Fatal(err)
				}
				given[kernels] += testdevice.CopiedBytes() - before
				numbers[kernels] = append(numbers[kernels], s.Bytes(s.To(x, torch.BFloat16, torch.CPU))...)
				before = testdevice.CopiedBytes()
			}
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			s.Close()
		}
		testdevice.Kernels(false)
		if !bytes.Equal(numbers[true], numbers[false]) {
			t.Errorf("%s: the device computes other numbers", name)
		}
		t.Logf("%s: %d bytes, of a file of %d; without our kernels %d", name, given[true], size, given[false])
		if given[true] > size+size/10 || given[false] < size+size/2 {
			t.Errorf("%s: the device was given %d bytes of a file of %d; without our kernels %d", name, given[true], size, given[false])
		}
		m.Close()
	}
}

// The base of an adapter stays in codes: for sampling where the adapter does not change a matrix, for training all of it.
func TestTheBaseOfAnAdapterStaysInCodes(t *testing.T) {
	const changed, same = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight"
	m, err := weights.Open(adapterOf(t, codedModel(t, "gptq"), changed))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for use, want := range map[string]map[string]bool{"sampled": {changed: false, same: true}, "trained": {changed: true, same: true}} {
		of := tensorsFor(m, torch.BFloat16)
		if use == "trained" {
			of = unmergedFor(m, torch.BFloat16)
		}
		for name, coded := range want {
			if x, err := of(name); err != nil || (x.DType == weights.Coded) != coded {
				t.Errorf("%s: %s is of type %s (%v)", use, name, x.DType, err)
			}
		}
	}
}
