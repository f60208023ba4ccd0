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
				out, err := p.Sample(t.Context(), idsOf(3, 30), traj.Sampling{MaxTokens: 12}, 7)
				if err != nil {
					t.Fatal(err)
				}
				l, err := p.Logprobs(t.Context(), [][]int32{idsOf(4, 50)})
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

// The weights of a quantised model come to a device as they are stored, but for scales and zeros, which come in float32. Its numbers
// are those that the CPU computes.
func TestADeviceIsGivenQuantisedWeightsAsTheyAreStored(t *testing.T) {
	if kernelDevice() != torch.TestDevice {
		t.Skip("nobody counts the bytes that a GPU is given")
	}
	onDefault(t, torch.TestDevice, "")
	for name, x := range map[string]struct {
		path string
		most float64 // bytes, of the file's
	}{
		"fp8": {codedModel(t, "fp8"), 1.1}, "GPTQ": {codedModel(t, "gptq"), 1.1}, "AWQ": {codedModel(t, "awq"), 1.1},
		"int4": {codedModel(t, "compressed-tensors"), 1.25}, "Q4_K": {blocksModel(t, gguf.Q4_K, 144, 0, 2), 1},
		"MXFP4": {blocksModel(t, gguf.MXFP4, 17), 1},
	} {
		m, err := weights.Open(x.path)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, f := range m.Files() {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		given, numbers := loadedOnTestDevice(t, m, true)
		without, computed := loadedOnTestDevice(t, m, false)
		if !bytes.Equal(numbers, computed) {
			t.Errorf("%s: the device computes other numbers", name)
		}
		if share := float64(given) / float64(size); share > x.most || float64(without) < 1.5*float64(size) {
			t.Errorf("%s: the device was given %.2f times the bytes of the file; without our kernels %d of %d bytes", name, share, without, size)
		}
		m.Close()
	}
}

// loadedOnTestDevice loads a model's parameters in bfloat16. It gives how many bytes came to the device, and the numbers.
func loadedOnTestDevice(t *testing.T, m *weights.Model, kernels bool) (given int64, numbers []byte) {
	t.Helper()
	testdevice.Kernels(kernels)
	defer testdevice.Kernels(false)
	n, err := describe(m.Config(), false)
	if err != nil {
		t.Fatal(err)
	}
	s := torch.NewScope()
	defer s.Close()
	of := source{Model: m, tensor: tensorsFor(m, torch.BFloat16)}
	for _, p := range n.params {
		ts, err := of.tensors(p)
		if err != nil {
			t.Fatal(err)
		}
		before := testdevice.CopiedBytes()
		x, err := of.parameter(s, p, ts, torch.BFloat16, torch.TestDevice)
		if err != nil {
			t.Fatal(err)
		}
		given += testdevice.CopiedBytes() - before
		numbers = append(numbers, s.Bytes(s.To(x, torch.BFloat16, torch.CPU))...)
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return given, numbers
}

// Experts of Gemma 4 that a GGUF has in blocks have the numbers of the file, on every device.
func TestExpertsInBlocksHaveTheNumbersOfTheFile(t *testing.T) {
	const title = "gemma4 with experts and keys that are values"
	i := slices.IndexFunc(families(t), func(g familyGolden) bool { return g.Title == title })
	if i < 0 {
		t.Fatalf("there is no %s", title)
	}
	g := families(t)[i]
	g.Config = bytes.Replace(g.Config, []byte(`"moe_intermediate_size": 12`), []byte(`"moe_intermediate_size": 32`), 1) // a block
	folder, err := weights.Open(g.write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := weights.SaveGGUF(folder, path, gguf.Q8_0, nil); err != nil {
		t.Fatal(err)
	}
	m, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	for _, name := range []string{"model.layers.0.experts.gate_up_proj", "model.layers.0.experts.down_proj"} {
		x, err := tensorsFor(m, torch.Float32)(name)
		if err != nil || x.DType != "Q8_0" {
			t.Fatalf("%s is of type %s (%v)", name, x.DType, err)
		}
		want, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, dev := range []torch.Device{torch.CPU, kernelDevice()} {
			s := torch.NewScope()
			got, err := source{Model: m}.on(s, x.Shape, torch.Float32, dev, x)
			if err != nil || !bytes.Equal(s.Bytes(s.To(got, torch.Float32, torch.CPU)), want.Data) || s.Err() != nil {
				t.Errorf("%s has other numbers on %v (%v, %v)", name, dev, err, s.Err())
			}
			s.Close()
		}
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
