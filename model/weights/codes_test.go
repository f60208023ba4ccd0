package weights

import (
	"path/filepath"
	"slices"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/model/gguf"
)

// Codes of gpt-oss's experts in a GGUF have the numbers that its blocks have, and other tensors are no codes.
func TestCodesOfAGGUFHaveTheNumbersOfItsBlocks(t *testing.T) {
	paths := map[string]int{} // matrices in codes
	for name, n := range map[string]int{"gpt_oss_mxfp4": 6, "gpt_oss": 0} {
		paths[convertedModels(t)[name].file(t, name)] = n
	}
	for kind, n := range map[gguf.TensorType]int{gguf.MXFP4: 0, gguf.NVFP4: 0, gguf.Q4_0: 0} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		modelOfKind(t, path, kind)
		paths[path] = n
	}
	for path, want := range paths {
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, name := range m.Names() {
			x, ok := InCodes(m, name)
			if !ok {
				continue
			}
			found++
			plain, err := m.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			got := part{TensorInfo: TensorInfo{DType: F32}, data: numbersIn(x.Codes, F32)}.floats() // a zero below zero is zero
			if x.DType != Coded || !slices.Equal(got, part{TensorInfo: TensorInfo{DType: F32}, data: plain.Data}.floats()) {
				t.Errorf("%s: %s has other numbers in codes", m.Path(), name)
			}
			part, read := m.source.(*ggufTensors).names[name], len(m.source.mapped(name))
			if twice := part.clamped != nil && part.clamped.up != ""; twice != (read == 2) || read == 0 {
				t.Errorf("%s is read from %d places", name, read)
			}
		}
		if found != want {
			t.Errorf("%s: %d matrices in codes, want %d", m.Path(), found, want)
		}
		m.Close()
	}
}

// A block whose scale is beyond float32 is no codes, since its doubled numbers with half of the scale are finite.
func TestAScaleBeyondFloat32IsNoCode(t *testing.T) {
	block := make([]byte, 17)
	for scale, want := range map[byte]bool{254: true, 255: false} {
		block[0] = scale
		if got := floatCodes(gguf.MXFP4, 1, 1, 32, block) != nil; got != want {
			t.Errorf("a scale of 2^%d is taken: %v", int(scale)-127, got)
		}
	}
}

// A model's plain tensors, and what no model has, are no codes.
func TestPlainTensorsAreNoCodes(t *testing.T) {
	m, err := Open(filepath.Join("testdata", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, name := range append(m.Names(), "nothing") {
		if _, ok := InCodes(m, name); ok {
			t.Errorf("%s is in codes", name)
		}
	}
	var g map[string]quantisedCase
	goldenfile.Load(t, "quantised/quantised.json", &g)
	for name, c := range g {
		q, err := openQuantised(filepath.Join("testdata", "quantised", name+".safetensors"), c.Config)
		if err != nil {
			t.Fatal(err)
		}
		if q.codesOf(q.infos[c.Name]) == nil || len(q.mapped(c.Name)) != 1 {
			t.Errorf("%s: %s is not in codes", name, c.Name)
		}
		q.close()
	}
}
