package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
)

// The three architectures from a GGUF: names, biases, the order of rows, and
// that the folder written from it holds the same.
func TestTinyGGUFs(t *testing.T) {
	var sums map[string]map[string]string
	goldenfile.Load(t, "tiny.json", &sums)
	for arch, want := range sums {
		t.Run(arch, func(t *testing.T) {
			m, err := Open(filepath.Join("testdata", arch+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			dir := t.TempDir()
			if err := m.Save(filepath.Join(dir, "model.safetensors"), F32); err != nil {
				t.Fatal(err)
			}
			if err := m.Config().WriteHF(dir, F32); err != nil {
				t.Fatal(err)
			}
			back, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer back.Close()
			for _, m := range []*Model{m, back} {
				if len(m.Names()) != len(want) {
					t.Errorf("%s: %d tensors, want %d", m.Format(), len(m.Names()), len(want))
				}
				for name, sum := range want {
					x, err := m.Tensor(name)
					if err != nil {
						t.Error(err)
						continue
					}
					h := sha256.Sum256(x.Data)
					if hex.EncodeToString(h[:])[:16] != sum {
						t.Errorf("%s: %s differs", m.Format(), name)
					}
				}
				c := m.Config()
				if c.Architecture != arch || c.Eps != 1e-6 || c.Tied != (arch == "qwen2") ||
					(c.First().Attention.HeadDim == 16) != (arch == "qwen3") ||
					c.First().Attention.QKVBias != (arch != "qwen3") || (c.Ropes[0].Scaling != nil) != (arch == "llama") {
					t.Errorf("%s: %+v", m.Format(), c)
				}
				if s := c.Ropes[0].Scaling; s != nil &&
					(s.Type != "llama3" || s.Factor != 8 || s.LowFreqFactor != 1 || s.HighFreqFactor != 4 || s.Original != 8192) {
					t.Errorf("%s: %+v", m.Format(), *s)
				}
			}
		})
	}
}

func TestDamagedGGUF(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), "d.gguf")
	for i := 0; i < len(b); i += 97 { // cut anywhere
		os.WriteFile(p, b[:i], 0o600)
		if m, err := Open(p); err == nil {
			m.Close()
			t.Fatalf("a file cut to %d of %d bytes was opened", i, len(b))
		} else if strings.Contains(err.Error(), "\n") {
			t.Fatalf("more than one line: %q", err)
		}
	}
	for _, tt := range []struct {
		from, to, field string
		kind            malformed.Kind
	}{
		{"blk.1.attn_q.weight", "blk.7.attn_q.weight", "tensor model.layers.1.self_attn.q_proj.weight", malformed.Missing},
		{"blk.1.attn_q.weight", "blk.1.attn_z.weight", "tensor blk.1.attn_z.weight", malformed.Unsupported},
		{"llama.block_count", "llama.blocc_count", "llama.block_count", malformed.Missing},
	} {
		os.WriteFile(p, []byte(strings.Replace(string(b), tt.from, tt.to, 1)), 0o600)
		if _, err := Open(p); malformed.Facts(err) != (malformed.Error{Path: p, Field: tt.field, Kind: tt.kind}) {
			t.Errorf("%s → %s: %v", tt.from, tt.to, err)
		}
	}
}
