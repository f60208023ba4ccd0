package qwen

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/malformed"
	"agentcli/internal/splitmix"
	"agentcli/media/raster"
)

// golden is what scripts/golden/images_qwen.py writes.
type golden struct {
	Configs  []json.RawMessage
	Pictures []struct {
		Seed          uint64
		Config        int
		Width, Height int
		Grid          Grid
		Shape         [2]int
		First         [4]float64
		SHA256        string `json:"sha256"`
	}
	Sizes      [][5]int
	SizeHashes []string `json:"size_hashes"`
}

func load(t *testing.T) (g golden) {
	goldenfile.Load(t, "processor.json", &g)
	if len(g.Pictures) < 40 || len(g.Sizes) < 3000 {
		t.Fatalf("%d pictures and %d sizes", len(g.Pictures), len(g.Sizes))
	}
	return g
}

func noise(seed uint64, w, h int) *raster.Image {
	m := raster.New(w, h)
	for i := range m.Pix {
		m.Pix[i] = byte(splitmix.Mix(seed+uint64(i+1)*splitmix.Gamma) >> 56)
	}
	return m
}

// folder has a model's settings.
func folder(t *testing.T, name, settings string) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPatchesEqualTheProcessorsToTheBit(t *testing.T) {
	g := load(t)
	for _, p := range g.Pictures {
		c, err := ReadConfig(folder(t, "preprocessor_config.json", string(g.Configs[p.Config])))
		if err != nil {
			t.Fatal(err)
		}
		seen, err := c.Resize(noise(p.Seed, p.Width, p.Height))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Patches(seen)
		if err != nil {
			t.Fatal(err)
		}
		if got.Grid != p.Grid || len(got.Values) != p.Shape[0]*p.Shape[1] || got.Tokens != p.Shape[0]/(c.MergeSize*c.MergeSize) {
			t.Errorf("picture %d: grid %v, %d values, %d tokens; want %v and %v", p.Seed, got.Grid, len(got.Values), got.Tokens, p.Grid, p.Shape)
		}
		for i, want := range p.First {
			if d := math.Abs(float64(got.Values[i]) - want); d > 1e-6 {
				t.Errorf("picture %d: value %d is %v, want %v", p.Seed, i, got.Values[i], want)
			}
		}
		if got.Hash() != p.SHA256 {
			t.Errorf("picture %d (%d × %d, settings %d): the values differ", p.Seed, p.Width, p.Height, p.Config)
		}
	}
}

func TestSizesEqualSmartResize(t *testing.T) {
	g := load(t)
	for at := 0; at < len(g.Sizes); at += 100 {
		var all [][7]int
		for _, s := range g.Sizes[at : at+100] {
			c := Config{PatchSize: s[2], MergeSize: 1, MinPixels: s[3], MaxPixels: s[4]}
			h, w, err := c.Size(s[0], s[1])
			if err != nil {
				h, w = 0, 0
			}
			all = append(all, [7]int{s[0], s[1], s[2], s[3], s[4], h, w})
		}
		b, _ := json.Marshal(all)
		sum := sha256.Sum256(b)
		if got := hex.EncodeToString(sum[:]); got != g.SizeHashes[at/100] {
			t.Errorf("sizes %d to %d differ", at, at+99)
		}
	}
}

func TestBothStylesOfSettingsAreRead(t *testing.T) {
	const inner = `{"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16,
		"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
	old, err := ReadConfig(folder(t, "preprocessor_config.json", inner))
	if err != nil {
		t.Fatal(err)
	}
	nested, err := ReadConfig(folder(t, "processor_config.json", `{"image_processor": `+inner+`}`))
	if err != nil || nested != old {
		t.Errorf("nested: %+v, %v; want %+v", nested, err, old)
	}
	if old.PatchSize != 16 || old.MinPixels != 65536 || old.MaxPixels != 16777216 || old.Mean[1] != 0.5 {
		t.Errorf("%+v is not what the file says", old)
	}
	// min_pixels is the older key, and wins as in transformers.
	c, err := ReadConfig(folder(t, "preprocessor_config.json", `{"size": {"shortest_edge": 1, "longest_edge": 9999}, "min_pixels": 3000}`))
	if err != nil || c.MinPixels != 3000 || c.MaxPixels != 9999 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestSettingsThatWouldMakeOtherPixelsAreRefused(t *testing.T) {
	for text, field := range map[string]string{
		`{"image_processor_type": "LlavaImageProcessor"}`: "image_processor_type",
		`{"resample": 2}`:                                   "resample",
		`{"do_normalize": false}`:                           "do_normalize",
		`{"image_mean": [0.5]}`:                             "image_mean",
		`{"patch_size": 0}`:                                 "patch_size",
		`{"patch_size": 4000, "merge_size": 4000}`:          "merge_size",
		`{"temporal_patch_size": -1}`:                       "temporal_patch_size",
		`{"min_pixels": 5000, "max_pixels": 4000}`:          "max_pixels",
		`{"rescale_factor": 0}`:                             "rescale_factor",
		`{"image_std": [0, 1, 1]}`:                          "image_std and image_mean",
		`{"patch_size": `:                                   "",
		`{"size": {"shortest_edge": "a"}, "patch_size": 1}`: "",
	} {
		_, err := ReadConfig(folder(t, "preprocessor_config.json", text))
		if f := malformed.Facts(err); err == nil || f.Field != field || f.Path == "" {
			t.Errorf("%s: %v; want an error of the field %q with its file", text, err, field)
		}
	}
	if _, err := ReadConfig(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder without settings: %v", err)
	}
}

func TestSizesThatNoModelSeesAreRefused(t *testing.T) {
	c := DefaultConfig()
	for _, s := range [][2]int{{1, 201}, {65535, 1}, {0, 5}, {5, -1}} {
		if _, _, err := c.Size(s[0], s[1]); !errors.Is(err, malformed.Range) {
			t.Errorf("%v: %v, want %v", s, err, malformed.Range)
		}
	}
	if _, err := c.Patches(raster.New(30, 28)); !errors.Is(err, malformed.Range) {
		t.Errorf("30 × 28 was cut into patches: %v", err)
	}
}

func BenchmarkPatches(b *testing.B) {
	c := DefaultConfig()
	m := noise(1, 1120, 840)
	b.SetBytes(int64(len(m.Pix)))
	for b.Loop() {
		if _, err := c.Patches(m); err != nil {
			b.Fatal(err)
		}
	}
}
