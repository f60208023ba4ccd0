//go:build libtorch

package policy

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/torch"
	"agentcli/model/gguf"
	"agentcli/model/tokenizer"
	"agentcli/model/weights"
)

// storedModel is a model's folder as a GGUF of a kind.
func storedModel(t *testing.T, folder string, kind gguf.TensorType) string {
	t.Helper()
	m, err := weights.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(t.TempDir(), "model.gguf")
	tok, err := tokenizer.Open(m.TokenizerPath())
	if err != nil {
		t.Fatal(err)
	}
	kv, err := tokenizer.ToGGUF(tok, m.Config().VocabSize)
	if err == nil {
		err = weights.SaveGGUF(m, path, kind, kv)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// needStored skips a test where no products with weights of a GGUF are for this processor.
func needStored(t *testing.T, p *Policy) {
	t.Helper()
	if !torch.QuantKernels() {
		t.Skip("this processor has no products with weights of 4 and 8 bits")
	}
	if p.sched.decoder == nil || !p.net.layers[0].qkv.stored.Defined() || !p.net.head.stored.Defined() {
		t.Fatal("the weights are not as they are stored")
	}
}

// Weights as the file has them: log-probs are as near to those of the same numbers in float32 as with weights in
// bfloat16, and those that Logprobs computes from them.
func TestStoredWeightsAreTheFiles(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		for _, of := range []struct {
			name, folder string
			kind         gguf.TensorType
			most         float64 // where bfloat16 itself is .029 from float32, more than .02
		}{{"qwen3", wideModel(t, "qwen3", 0), gguf.Q8_0, .02}, {"qwen3", wideModel(t, "qwen3", 0), gguf.Q4_K, .02},
			{"recurrent", widened(t, "qwen3_5"), gguf.Q8_0, .03}, {"GELU", widened(t, "gemma3"), gguf.Q8_0, .02}} {
			storedIsNearFloat32(t, fmt.Sprintf("%s %v", of.name, of.kind), storedModel(t, of.folder, of.kind), 20, of.most)
		}
	})
}

// storedIsNearFloat32 compares log-probs of replies that weights as stored draw: on average a token is at most so far from float32.
func storedIsNearFloat32(t *testing.T, name, path string, replies int, most float64) {
	t.Helper()
	stored := open(t, path, Config{DType: "bfloat16", Device: "cpu", AsStored: true})
	needStored(t, stored)
	dense, exact := open(t, path, Config{DType: "bfloat16", Device: "cpu"}), open(t, path, Config{DType: "float32", Device: "cpu"})
	var off, offDense, offOwn, n float64
	for k := range replies {
		out := drawLong(t, stored, k)[0]
		ids := append(longPrompt(k), out.IDs...)
		var lps [3][]float32
		for i, p := range []*Policy{exact, dense, stored} {
			all, err := p.Logprobs(t.Context(), [][]int32{ids})
			if err != nil {
				t.Fatal(err)
			}
			lps[i] = all[0][len(all[0])-len(out.IDs):]
		}
		for i, lp := range out.Logprobs {
			off += math.Abs(float64(lp) - float64(lps[0][i]))
			offDense += math.Abs(float64(lps[1][i] - lps[0][i]))
			offOwn += math.Abs(float64(lp) - float64(lps[2][i]))
			n++
		}
	}
	t.Logf("%s: from float32 %.4f a token, bfloat16 %.4f, Logprobs of the same weights %.4f", name, off/n, offDense/n, offOwn/n)
	if off > 1.2*offDense || off/n > most || offOwn/n > most {
		t.Errorf("%s: %.4f a token from float32 where bfloat16 is %.4f, from Logprobs %.4f", name, off/n, offDense/n, offOwn/n)
	}
}

// withRandomBlocks is a file whose matrices have random blocks of a type, of so many numbers and bytes. scales are
// float16 numbers at their places in a block.
func withRandomBlocks(t *testing.T, path string, kind gguf.TensorType, values, size int, scales map[int]uint16) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var kv []gguf.KeyValue
	for _, key := range f.Keys() {
		v, _ := f.Get(key)
		kv = append(kv, gguf.KeyValue{Key: key, V: v.V})
	}
	tensors := slices.Clone(f.Tensors)
	for i := range tensors {
		if len(tensors[i].Dims) == 2 {
			tensors[i].Type = kind
		}
	}
	to := filepath.Join(t.TempDir(), "blocks.gguf")
	w, err := gguf.Create(to, kv, tensors)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(uint64(kind), 1))
	for i, x := range tensors {
		data := f.Data(f.Tensors[i])
		if x.Type == kind {
			data = randomBlocks(random, int(x.Dims[0]*x.Dims[1])/values, size, func(block []byte) {
				for place, s := range scales {
					binary.LittleEndian.PutUint16(block[place:], s)
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
	return to
}

// Types that are not written, with random numbers of about ±.05.
func TestStoredWeightsOfEveryTypeAreTheFiles(t *testing.T) {
	base := storedModel(t, wideModel(t, "qwen3", 0), gguf.Q8_0)
	for _, of := range []struct {
		kind         gguf.TensorType
		values, size int
		scales       map[int]uint16
	}{
		{gguf.Q4_0, 32, 18, map[int]uint16{0: 0x1e25}}, {gguf.Q4_1, 32, 20, map[int]uint16{0: 0x1e25, 2: 0xabf0}},
		{gguf.Q5_0, 32, 22, map[int]uint16{0: 0x1c19}}, {gguf.Q5_1, 32, 24, map[int]uint16{0: 0x1c19, 2: 0xabf0}},
		{gguf.Q2_K, 256, 84, map[int]uint16{80: 0x1c19, 82: 0x1e25}}, {gguf.Q3_K, 256, 110, map[int]uint16{108: 0x1419}},
		{gguf.Q5_K, 256, 176, map[int]uint16{0: 0x029f, 2: 0x053e}}, {gguf.Q6_K, 256, 210, map[int]uint16{208: 0x0020}},
		{gguf.IQ4_NL, 32, 18, map[int]uint16{0: 0x10ea}}, {gguf.IQ4_XS, 256, 136, map[int]uint16{0: 0x029f}},
	} {
		storedIsNearFloat32(t, of.kind.String(), withRandomBlocks(t, base, of.kind, of.values, of.size, of.scales), 3, .05)
	}
}

// What is drawn does not depend on who is computed beside it, to the bit, nor on drafts.
func TestStoredWeightsGiveTheSameBitsWhoeverIsBeside(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		path := storedModel(t, wideModel(t, "qwen3", 0), gguf.Q4_K)
		p := open(t, path, Config{DType: "bfloat16", Device: "cpu", MaxBatch: 16, AsStored: true})
		needStored(t, p)
		all := []int{0, 1, 2, 3, 4, 5, 6}
		together := drawLong(t, p, all...)
		one := open(t, path, Config{DType: "bfloat16", Device: "cpu", MaxBatch: 16, AsStored: true, NoDrafts: true, Threads: 1})
		for _, k := range all {
			alone := drawLong(t, one, k)[0]
			if !slices.Equal(alone.IDs, together[k].IDs) || !slices.Equal(alone.Logprobs, together[k].Logprobs) {
				t.Errorf("reply %d: alone %v %v, among others %v %v", k, alone.IDs, alone.Logprobs, together[k].IDs, together[k].Logprobs)
			}
		}
	})
}

// Of an adapter's model the matrices that it changes are made bfloat16, and the others are as they are stored.
func TestStoredWeightsBesideThoseThatAnAdapterChanges(t *testing.T) {
	base := storedModel(t, wideModel(t, "qwen3", 0), gguf.Q8_0)
	dir := adapterOf(t, base, "model.layers.0.mlp.down_proj.weight")
	p, plain := open(t, dir, Config{DType: "bfloat16", Device: "cpu", AsStored: true}), open(t, base, Config{DType: "bfloat16", Device: "cpu"})
	needStored(t, p)
	if l := p.net.layers; l[0].down.stored.Defined() || !l[1].down.stored.Defined() || !l[0].o.stored.Defined() {
		t.Error("the matrix that the adapter changes is as it is stored, or another is not")
	}
	out := drawLong(t, p, 1)[0]
	ids := append(longPrompt(1), out.IDs...)
	difference := func(p *Policy) (off float64) {
		all, err := p.Logprobs(t.Context(), [][]int32{ids})
		if err != nil {
			t.Fatal(err)
		}
		for i, lp := range all[0][len(all[0])-len(out.IDs):] {
			off += math.Abs(float64(lp)-float64(out.Logprobs[i])) / float64(len(out.IDs))
		}
		return off
	}
	if own, without := difference(p), difference(plain); own > .03 || without < 10*own {
		t.Errorf("from Logprobs of the same weights %.4f a token, without the adapter %.4f", own, without)
	}
}
