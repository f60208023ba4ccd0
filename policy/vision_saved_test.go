//go:build libtorch

package policy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentcli/model/weights"
)

func TestAConvertedModelWithAnEncoderIsStoredAsItWas(t *testing.T) {
	for _, g := range visionModels(t) {
		dir := g.write(t, g.Config)
		processor := []byte(`{"image_processor_type": "Qwen2VLImageProcessor"}`)
		if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), processor, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := weights.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		out := t.TempDir()
		if err := errors.Join(m.Save(filepath.Join(out, "model.safetensors"), weights.F32), m.Config().WriteHF(out, weights.F32)); err != nil {
			t.Fatal(err)
		}
		want, got := tensorNames(t, dir), tensorNames(t, out)
		if !slices.Equal(got, want) {
			t.Errorf("%s: tensors %q…, want %q…", g.Title, got[:2], want[:2])
		}
		if kept, err := os.ReadFile(filepath.Join(out, "preprocessor_config.json")); err != nil || !bytes.Equal(kept, processor) {
			t.Errorf("%s: how images are prepared is lost: %v", g.Title, err)
		}
	}
}

// tensorNames are the keys of a safetensors file's header, sorted.
func tensorNames(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+binary.LittleEndian.Uint64(b)], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	return slices.Sorted(maps.Keys(header))
}
