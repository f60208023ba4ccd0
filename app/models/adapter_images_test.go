package models

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"agentcli/app/images"
	"agentcli/model/weights"
)

// An adapter's folder has no settings of images: its base's are taken.
func TestAnAdapterSeesImagesAsItsBaseDoes(t *testing.T) {
	base, dir := filepath.Join(t.TempDir(), "base"), t.TempDir()
	if err := Init("../../examples/look/config.json", 1, base); err != nil {
		t.Fatal(err)
	}
	of := func(base string) {
		t.Helper()
		raw, err := json.Marshal(map[string]any{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": base})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "adapter_config.json"), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	of(base)
	v, err := Vision(dir)
	if err != nil || v == nil {
		t.Errorf("the encoder: %v", err)
	}
	p, err := ImageProcessor(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := ImageProcessor(base, 0, 0); err != nil || p.Config() != want.Config() {
		t.Errorf("images are shown as %+v, the base shows them as %+v; %v", p.Config(), want.Config(), err)
	}
	if _, err := images.Open(dir, images.Options{}); err != nil {
		t.Errorf("the preprocessor: %v", err)
	}
	of("nowhere")
	for what, err := range map[string]error{
		"the encoder":      errorOf(Vision(dir)),
		"the processor":    errorOf(ImageProcessor(dir, 0, 0)),
		"the preprocessor": errorOf(images.Open(dir, images.Options{})),
	} {
		if gone := (*weights.NoBaseError)(nil); !errors.As(err, &gone) {
			t.Errorf("%s of an adapter whose base is not here: %v", what, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }
