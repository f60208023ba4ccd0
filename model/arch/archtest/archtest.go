// Package archtest has a few models of each family of model/arch, with what transformers
// says of them (scripts/golden/families.py). For tests.
package archtest

import (
	"bytes"
	"compress/gzip"
	_ "embed" // families.json.gz, recurrent.json.gz
	"encoding/json"
	"testing"
)

//go:embed families.json.gz
var families []byte

//go:embed recurrent.json.gz
var recurrent []byte

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
	for _, file := range [][]byte{families, recurrent} {
		var models []Model
		z, err := gzip.NewReader(bytes.NewReader(file))
		if err == nil {
			err = json.NewDecoder(z).Decode(&models)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, models...)
	}
	return out
}
