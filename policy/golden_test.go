//go:build libtorch

package policy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/model/weights"
)

// peftAdapter is an adapter that PEFT saved, without its values: draw gives those of a tensor by its name,
// in float32, and stored the name in the file.
type peftAdapter struct {
	config  map[string]any // adapter_config.json
	tensors map[string][]int64
	draw    func(name string, shape []int64) []byte
	stored  func(name string) string
}

// write makes the adapter's folder over a base.
func (a peftAdapter) write(t *testing.T, base string) string {
	t.Helper()
	dir, config := t.TempDir(), maps.Clone(a.config)
	config["base_model_name_or_path"] = base
	raw, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "adapter_config.json"), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(a.tensors))
	infos := make([]weights.TensorInfo, len(names))
	for i, name := range names {
		infos[i] = weights.TensorInfo{Name: a.stored(name), DType: weights.F32, Shape: a.tensors[name]}
	}
	w, err := weights.CreateSafetensors(filepath.Join(dir, "adapter_model.safetensors"), infos, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if err := w.Write(infos[i].Name, a.draw(name, a.tensors[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}
