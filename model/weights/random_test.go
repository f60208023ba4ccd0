package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
)

func writeRandom(t *testing.T, config string, seed int64, d DType) (file string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "model.safetensors")
	return file, WriteRandom(file, c, seed, d)
}

// TestRandomWeightsFollowTransformersRules holds every tensor of every family to what from_config
// gives it: a constant, or draws of the same deviation with the same rows of zeros.
func TestRandomWeightsFollowTransformersRules(t *testing.T) {
	var models []struct {
		Title   string
		Config  json.RawMessage
		Tensors map[string]json.RawMessage
	}
	goldenfile.Load(t, "random_init.json.gz", &models)
	if len(models) < 30 {
		t.Fatalf("%d models", len(models))
	}
	for _, m := range models {
		file, err := writeRandom(t, string(m.Config), 5, F32)
		if err != nil {
			t.Fatal(m.Title, err)
		}
		got, err := Open(filepath.Dir(file))
		if err != nil {
			t.Fatal(m.Title, err)
		}
		compared := 0
		for _, name := range got.Names() {
			stored := got.Config().StoredName(name)
			want, ok := m.Tensors[stored]
			if !ok {
				t.Errorf("%s: transformers has no %s", m.Title, stored)
				continue
			}
			tensor, err := got.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			holdRandom(t, m.Title+": "+name, tensor, want)
			compared++
		}
		if compared != len(m.Tensors) {
			t.Errorf("%s: %d tensors of %d", m.Title, compared, len(m.Tensors))
		}
		got.Close()
	}
}

func holdRandom(t *testing.T, name string, tensor Tensor, want json.RawMessage) {
	t.Helper()
	n := len(tensor.Data) / 4
	at := func(i int) float64 { return float64(math.Float32frombits(le.Uint32(tensor.Data[4*i:]))) }
	var constant float64
	if json.Unmarshal(want, &constant) == nil {
		for i := range n {
			if at(i) != constant {
				t.Errorf("%s: %v, transformers has %v", name, at(i), constant)
				return
			}
		}
		return
	}
	var drawn [2]json.RawMessage
	var deviation float64
	var zero []int
	if json.Unmarshal(want, &drawn) != nil || json.Unmarshal(drawn[0], &deviation) != nil || json.Unmarshal(drawn[1], &zero) != nil {
		t.Fatal(name, string(want))
	}
	sum, squares := 0.0, 0.0
	var got []int
	row := n / int(tensor.Shape[0])
	for i := range n {
		sum, squares = sum+at(i), squares+at(i)*at(i)
	}
	for i := range n / row {
		if bytes.Count(tensor.Data[4*i*row:4*(i+1)*row], []byte{0}) == 4*row {
			got = append(got, i)
		}
	}
	mean := sum / float64(n)
	own := math.Sqrt(squares/float64(n) - mean*mean)
	margin := 5 * deviation / math.Sqrt(float64(n)) // five standard errors of two samples
	if !slices.Equal(got, zero) || math.Abs(own-deviation) > margin || strings.Contains(name, "weight") && math.Abs(mean) > margin {
		t.Errorf("%s: mean %.4f, deviation %.4f, zero rows %v; transformers has deviation %.4f, zero rows %v", name, mean, own, got,
			deviation, zero)
	}
}

const smallLlama = `{"model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
	"num_attention_heads": 4, "max_position_embeddings": 256, "pad_token_id": 3, "initializer_range": 0.08}`

// TestRandomWeightsAreTheSameBytesEverywhere has a hash that no machine and no version of Go may
// change: runs are repeated by their seed.
func TestRandomWeightsAreTheSameBytesEverywhere(t *testing.T) {
	hash := func(seed int64, d DType) string {
		file, err := writeRandom(t, smallLlama, seed, d)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:8])
	}
	if got := hash(1, F32); got != "892176bc3edc2129" {
		t.Errorf("seed 1: %s", got)
	}
	if got := hash(2, BF16); got != "9158b9d7cf8266b1" {
		t.Errorf("seed 2, bfloat16: %s", got)
	}
}

func TestTheLogarithmOfRandomWeights(t *testing.T) {
	for _, x := range []float64{1e-300, 1e-16, .1, .5, .70710678, .9999999, 1, 1.5, 15.99} {
		if got, want := logarithm(x), math.Log(x); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Errorf("of %v: %v, want %v", x, got, want)
		}
	}
}

func TestRandomWeightsAreRefusedWhereTheyCannotBeMade(t *testing.T) {
	for config, field := range map[string]string{
		strings.Replace(smallLlama, "0.08", "-1", 1):                                                                     "initializer_range",
		strings.Replace(smallLlama, "0.08", `"wide"`, 1):                                                                 "initializer_range",
		strings.Replace(smallLlama, `{"model_type"`, `{"quantization_config": {"quant_method": "fp8"}, "model_type"`, 1): "quantization_config",
	} {
		file, err := writeRandom(t, config, 1, F32)
		if got := malformed.Facts(err); got.Field != field {
			t.Errorf("%v, want a fault of %s", err, field)
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file was left behind: %v", err)
		}
	}
}
