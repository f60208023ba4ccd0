package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/damaged"
	"agentcli/model/arch/archtest"
)

// opening writes the damaged file to path, opens the model and reads its tensors. An error
// names a path below folder; a model that opens can be read.
func opening(t *testing.T, path, model, folder string) damaged.Open {
	return func(name string, b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Error(err)
		}
		m, err := Open(model)
		if err != nil {
			if !strings.Contains(err.Error(), folder) {
				t.Errorf("%s: no path in %v", name, err)
			}
			return err
		}
		defer m.Close()
		if err := readAll(m); err != nil {
			t.Errorf("%s: it opened, then %v", name, err)
		}
		return nil
	}
}

// A damaged file of each family is an error that names it, or opens.
func TestDamagedConvertedFiles(t *testing.T) {
	files := map[string][]byte{}
	for name := range convertedModels(t) {
		files[name] = unzipped(t, name+".gguf.gz")
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if n := damaged.Files(t, 300*len(files), files, opening(t, path, path, path)); n < 100*len(files) {
		t.Errorf("%d errors: the damage shows nothing", n)
	}
}

// A damaged file of each type of blocks is an error that names it, or opens.
func TestDamagedFilesOfEveryKind(t *testing.T) {
	files, path := map[string][]byte{}, filepath.Join(t.TempDir(), "m.gguf")
	for kind := range decoders {
		modelOfKind(t, path, kind)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[kind.String()] = b
	}
	if n := damaged.Files(t, 1000, files, opening(t, path, path, path)); n < 300 || n == 1000 {
		t.Errorf("%d errors: the damage shows nothing", n)
	}
}

// copied is a copy of two folders of policy/testdata: an adapter's, and its base's.
func copied(t *testing.T) (adapter, base string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"lora-llama", "tiny-llama"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("../../policy/testdata", name))); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "lora-llama"), filepath.Join(dir, "tiny-llama")
}

// Damaged files of a folder: an error that names the file, or the model opens.
func TestDamagedFilesOfFolders(t *testing.T) {
	adapter, base := copied(t)
	for _, x := range []struct{ folder, file string }{
		{base, "model.safetensors"}, {base, "config.json"}, {base, "generation_config.json"},
		{adapter, "adapter_model.safetensors"}, {adapter, "adapter_config.json"},
	} {
		t.Run(x.file, func(t *testing.T) {
			path := filepath.Join(x.folder, x.file)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			n := damaged.Files(t, 1000, map[string][]byte{x.file: good}, opening(t, path, x.folder, x.folder))
			if n < 100 || n == 1000 {
				t.Errorf("%d errors: the damage shows nothing", n)
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A damaged configuration of each family is an error that names the file, or a model.
func TestDamagedConfigs(t *testing.T) {
	files, dir := map[string][]byte{}, t.TempDir()
	for _, m := range archtest.Models(t) {
		files[m.Title] = m.Config
	}
	path := filepath.Join(dir, "config.json")
	n := damaged.Files(t, 1000, files, func(name string, b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Error(err)
		}
		c, err := ReadConfig(dir)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%s: no path in %v", name, err)
			}
			return err
		}
		c.Tensors()
		return nil
	})
	if n < 300 || n == 1000 {
		t.Errorf("%d errors: the damage shows nothing", n)
	}
}
