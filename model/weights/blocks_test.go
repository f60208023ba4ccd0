package weights

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/model/gguf"
)

// Experts that are one tensor stay in the blocks of a file, as matrices do: Go computes numbers many times slower.
func TestExpertsOfOneTensorStayInBlocks(t *testing.T) {
	c := convertedModels(t)["gemma4_moe"]
	for _, wider := range []string{`"hidden_size": 16`, `"moe_intermediate_size": 16`} { // than a block
		c.Config = bytes.Replace(c.Config, []byte(wider), []byte(strings.Replace(wider, "16", "64", 1)), 1)
	}
	m := c.folder(t)
	defer m.Close()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := SaveGGUF(m, path, gguf.Q8_0, nil); err != nil {
		t.Fatal(err)
	}
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, name := range []string{"gate_up_proj", "down_proj"} {
		name = "model.layers.1.experts." + name
		x, ok := InBlocks(file, name)
		plain, err := file.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if !ok || x.DType != "Q8_0" || len(x.Data) != int(count(x.Shape))/32*34 || len(x.Shape) != 3 ||
			!bytes.Equal(dequantise(gguf.Q8_0, x.Data), plain.Data) {
			t.Errorf("%s is %s %v in %d bytes", name, x.DType, x.Shape, len(x.Data))
		}
	}
}

func TestABlockOfQ4_0HasALeastValueUpToAnEighthOfTheLargestFloat16(t *testing.T) {
	for bits := range 1 << 15 {
		data := append(make([]byte, 18), byte(bits), byte(bits>>8|bits&1<<7)) // of both signs
		data = append(data, make([]byte, 16)...)
		least := 8 * math.Abs(float64(halves[bits]))
		want := least <= 65504 // false of a number that is none, too
		if got := LeastValuesFit(Tensor{DType: DType(gguf.Q4_0.String()), Data: data}); got != want {
			t.Fatalf("scale %v: %v", halves[bits], got)
		}
		if !LeastValuesFit(Tensor{DType: DType(gguf.Q8_0.String()), Data: data}) {
			t.Fatal("Q8_0 has no least values that could be too large")
		}
	}
}
