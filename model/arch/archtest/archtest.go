// Package archtest has a few models of each family of model/arch, with what transformers
// says of them (scripts/golden/families.py). For tests.
package archtest

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"testing"

	"agentcli/internal/splitmix"
)

//go:embed *.json.gz
var families embed.FS

//go:embed bfloat16.json
var rounded []byte

// Rounded are texts, and how far transformers' log-probs of a model in bfloat16 are from those in
// float32: the mean and the median distance over the texts' tokens, by Model.Title.
type Rounded struct {
	IDs    [][]int32
	Models []struct {
		Title        string
		Mean, Median float64
	}
}

// InBFloat16 gives them.
func InBFloat16(t testing.TB) (r Rounded) {
	t.Helper()
	if err := json.Unmarshal(rounded, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Logprobs are the log-probs of a text's tokens from the second on, computed in DType.
type Logprobs struct {
	DType    string    `json:"dtype"`
	IDs      []int32   `json:"ids"`
	Logprobs []float64 `json:"logprobs"`
}

// Gradient is one tensor's of the mean log-prob of the second text, in float64: its norm,
// and its values at some places.
type Gradient struct {
	Norm   float64
	At     []int
	Values []float64
}

// Model is a random model of a family. Its tensors are drawn from their names.
type Model struct {
	Title    string
	Config   json.RawMessage // config.json
	Logprobs []Logprobs
	Prompt   []int32
	Greedy   []int32 // the 32 most likely tokens after it, one by one
	Gradient map[string]Gradient
}

// Models gives them all.
func Models(t testing.TB) (out []Model) {
	t.Helper()
	files, err := families.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var some []Model
		data, err := families.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			err = json.NewDecoder(z).Decode(&some)
		}
		if err != nil {
			t.Fatal(f.Name(), err)
		}
		out = append(out, some...)
	}
	return out
}

// Draw gives a tensor the float32 values that the script gave it.
func Draw(name string, shape []int64) []byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	state, n := h.Sum64(), int64(1)
	for _, d := range shape {
		n *= d
	}
	scale := .8
	if len(shape) > 1 {
		scale = .6
	}
	out := make([]byte, 0, 4*n)
	for range n {
		z := splitmix.Next(state)
		state += splitmix.Gamma
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32((float64(z>>40)/(1<<24)-.5)*scale)))
	}
	return out
}
