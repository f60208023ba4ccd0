//go:build libtorch

package policy

import (
	"bytes"
	"fmt"
	"math"
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
)

// blocksModel writes a Llama of two layers whose matrices are random blocks of a type; scales are where the float16
// numbers of a block are. They are finite.
func blocksModel(t *testing.T, kind gguf.TensorType, size int, scales ...int) string {
	t.Helper()
	var tensors []gguf.Tensor
	add := func(name string, kind gguf.TensorType, dims ...uint64) {
		tensors = append(tensors, gguf.Tensor{Name: name, Type: kind, Dims: dims})
	}
	add("token_embd.weight", kind, 256, 20)
	add("output_norm.weight", gguf.F32, 256)
	for _, layer := range []string{"blk.0.", "blk.1."} {
		for name, rows := range map[string]uint64{"attn_q": 256, "attn_k": 128, "attn_v": 128, "attn_output": 256, "ffn_gate": 256,
			"ffn_up": 256, "ffn_down": 256} {
			add(layer+name+".weight", kind, 256, rows)
		}
		add(layer+"attn_norm.weight", gguf.F32, 256)
		add(layer+"ffn_norm.weight", gguf.F32, 256)
	}
	n := func(key string, v uint32) gguf.KeyValue { return gguf.KeyValue{Key: "llama." + key, V: v} }
	path := filepath.Join(t.TempDir(), "m.gguf")
	w, err := gguf.Create(path, []gguf.KeyValue{{Key: "general.architecture", V: "llama"}, n("context_length", 128),
		n("embedding_length", 256), n("block_count", 2), n("feed_forward_length", 256), n("attention.head_count", 4),
		n("attention.head_count_kv", 2)}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(uint64(kind), 1))
	values := map[bool]int{true: 256, false: 32}[kind >= gguf.Q2_K && kind != gguf.IQ4_NL && kind != gguf.MXFP4]
	if kind == gguf.NVFP4 {
		values = 64
	}
	for _, x := range tensors {
		data := make([]byte, x.Dims[0]*4)
		if x.Type == kind {
			data = randomBlocks(random, int(x.Dims[0]*x.Dims[1])/values, size, func(block []byte) {
				for _, s := range scales {
					block[s+1] &= 0xbb
				}
			})
		}
		if err := w.Write(x.Name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// randomBlocks are so many blocks, of whose bytes set may change some.
func randomBlocks(random *rand.Rand, n, size int, set func(block []byte)) []byte {
	data := make([]byte, n*size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	for block := range slices.Chunk(data, size) {
		set(block)
	}
	return data
}

// Matrices that stay in blocks until they are in libtorch's memory have the numbers that are computed in Go, to the bit,
// also where rows are in another order; and so have those that go straight into panels.
func TestBlocksHaveTheNumbersOfTheFile(t *testing.T) {
	eachKernels(t, blocksHaveTheNumbersOfTheFile)
	t.Run("base", func(t *testing.T) {
		was := os.Getenv("AGENTCLI_TEST_KERNELS")
		if err := torch.UseKernels("base"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = torch.UseKernels(was) })
		blocksHaveTheNumbersOfTheFile(t)
	})
}

func blocksHaveTheNumbersOfTheFile(t *testing.T) {
	t.Helper()
	testdevice.Kernels(true)
	defer testdevice.Kernels(false)
	for _, c := range []struct {
		kind   gguf.TensorType
		bytes  int
		scales []int
	}{{gguf.Q4_0, 18, []int{0}}, {gguf.Q4_1, 20, []int{0, 2}}, {gguf.Q8_0, 34, []int{0}}, {gguf.Q4_K, 144, []int{0, 2}},
		{gguf.Q5_K, 176, []int{0, 2}}, {gguf.Q6_K, 210, []int{208}}, {gguf.Q5_0, 22, []int{0}}, {gguf.Q5_1, 24, []int{0, 2}},
		{gguf.Q2_K, 84, []int{80, 82}}, {gguf.Q3_K, 110, []int{108}}, {gguf.IQ4_NL, 18, []int{0}}, {gguf.IQ4_XS, 136, []int{0}},
		{gguf.IQ1_S, 50, []int{0}}, {gguf.IQ1_M, 56, []int{54}}, {gguf.IQ2_XXS, 66, []int{0}}, {gguf.IQ2_XS, 74, []int{0}},
		{gguf.IQ2_S, 82, []int{0}}, {gguf.IQ3_XXS, 98, []int{0}}, {gguf.IQ3_S, 110, []int{0}}, {gguf.TQ1_0, 54, []int{52}},
		{gguf.TQ2_0, 66, []int{64}}, {gguf.MXFP4, 17, nil}, {gguf.NVFP4, 36, nil}} {
		m, err := weights.Open(blocksModel(t, c.kind, c.bytes, c.scales...))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range m.Names() {
			if i, _ := m.Info(name); len(i.Shape) != 2 {
				continue
			}
			x, ok := weights.InBlocks(m, name)
			b, known := torch.BlocksOf(string(x.DType))
			if !ok || !known {
				t.Fatalf("%s: %s is not in blocks: %s", c.kind, name, x.DType)
			}
			for d, of := range map[weights.DType]torch.DType{weights.F32: torch.Float32, weights.BF16: torch.BFloat16} {
				s := torch.NewScope()
				want, err := m.TensorFor(name, d)
				if err != nil {
					t.Fatal(err)
				}
				half := len(x.Data) / 2
				numbers := func(x torch.Tensor) []float32 { return s.Float32s(s.To(x, torch.Float32, torch.CPU)) }
				got := s.FromBlocks([][]byte{x.Data[:half], x.Data[half:]}, b, of, torch.CPU, x.Shape...)
				if !slices.Equal(numbers(got), numbers(s.FromBytes(want.Data, of, x.Shape...))) {
					t.Errorf("%s: %s is another in %s", c.kind, name, d)
				}
				launched, dev := testdevice.Launches(), kernelDevice()
				onDevice := s.FromBlocks([][]byte{x.Data[:half], x.Data[half:]}, b, of, dev, x.Shape...)
				if !slices.Equal(numbers(onDevice), numbers(got)) || dev == torch.TestDevice && testdevice.Launches() == launched {
					t.Errorf("%s: %s is another in %s on a device, or it was not computed there", c.kind, name, d)
				}
				if like := s.PackLinear(got); s.Err() == nil && s.InPanels(like, got) {
					_, plain := s.PackParts(like, [][]byte{want.Data}, of)
					_, packed := s.PackBlocks(like, [][]byte{x.Data[:half], x.Data[half:]}, b)
					if !bytes.Equal(s.Bytes(plain), s.Bytes(packed)) {
						t.Errorf("%s: %s has other panels in %s", c.kind, name, d)
					}
				}
				if s.Err() != nil {
					t.Fatalf("%s: %s: %v", c.kind, name, s.Err())
				}
				s.Close()
			}
		}
		m.Close()
	}
}

// adapterOf writes an adapter of rank 2 over a model, whose pair on one weight is of equal numbers; their product is .5.
func adapterOf(t *testing.T, base, weight string) string {
	t.Helper()
	m, err := weights.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	shape, dir := mustInfo(t, m, weight).Shape, t.TempDir()
	a, b := weights.LoRANames(weight)
	pair := []weights.TensorInfo{{Name: a, DType: weights.F32, Shape: []int64{2, shape[1]}},
		{Name: b, DType: weights.F32, Shape: []int64{shape[0], 2}}}
	w, err := weights.CreateAdapter(dir, pair)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range pair {
		half := []byte{0, 0, 0, 0x3f}
		if err := w.Write(x.Name, bytes.Repeat(half, int(x.Shape[0]*x.Shape[1]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	module := strings.Split(weight, ".")[4]
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": [%q], "base_model_name_or_path": %q}`,
		module, base)
	if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustInfo(t *testing.T, m *weights.Model, name string) weights.TensorInfo {
	t.Helper()
	i, ok := m.Info(name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	return i
}

// The base of an adapter stays in blocks: for sampling where the adapter does not change a matrix, for training all of it.
func TestTheBaseOfAnAdapterStaysInBlocks(t *testing.T) {
	const changed, same = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight"
	dir := adapterOf(t, blocksModel(t, gguf.Q8_0, 34, 0), changed)
	m, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	blocks := func(tensor func(string) (weights.Tensor, error), name string) bool {
		x, err := tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		_, ok := torch.BlocksOf(string(x.DType))
		return ok
	}
	sampled, trained := tensorsFor(m, torch.BFloat16), unmergedFor(m, torch.BFloat16)
	if blocks(sampled, changed) || !blocks(sampled, same) || !blocks(trained, changed) || !blocks(trained, same) {
		t.Error("a matrix that has the file's numbers is not in blocks, or one that the adapter changes is")
	}
	merged, err := m.TensorFor(changed, weights.BF16)
	if err != nil {
		t.Fatal(err)
	}
	before, err := m.Base().Tensor(changed)
	if err != nil {
		t.Fatal(err)
	}
	got, want := float64sOf(t, merged), float64sOf(t, before)
	for i := range want {
		if math.Abs(got[i]-want[i]-.5) > 1e-5*math.Abs(want[i])+1e-5 {
			t.Fatalf("number %d is %v, the base's is %v", i, got[i], want[i])
		}
	}
}
