package resize

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"agentcli/internal/goldenfile"
	"agentcli/internal/splitmix"
	"agentcli/media/raster"
)

// noise, sizes and picture are those of scripts/golden/images_resize.py.
func noise(seed uint64, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(splitmix.Mix(seed+uint64(i+1)*splitmix.Gamma) >> 56)
	}
	return out
}

func sizes(i int) (w, h, toW, toH int) {
	b := noise(1<<32+uint64(i), 13)
	side := func(k, m int) int { return 1 + (256*int(b[k])+int(b[k+1]))%[]int{8, 64, 300, 900}[b[m]%4] }
	w, h, toW, toH = side(1, 0), side(3, 0), side(5, 9), side(7, 10)
	if b[11]%16 == 0 {
		toW = w
	}
	if b[12]%16 == 0 {
		toH = h
	}
	return w, h, toW, toH
}

func picture(i, w, h int) *raster.Image {
	m := &raster.Image{Width: w, Height: h, Pix: noise(uint64(i), 3*w*h)}
	if i%3 == 0 {
		for k, v := range m.Pix {
			m.Pix[k] = 255 * (v >> 7)
		}
	}
	return m
}

// 2,000 pairs of sizes a rule, each byte: noise, and noise of 0 and 255 alone, whose
// overshoot is clipped. With -short a tenth of them.
func TestResizingEqualsTorchAndPillowToTheByte(t *testing.T) {
	var golden map[Rule]struct {
		Version string
		Hashes  []string
	}
	goldenfile.Load(t, "resize.json", &golden)
	if len(golden) != len(Rules()) {
		t.Fatalf("%d rules in the golden file, %d in the package", len(golden), len(Rules()))
	}
	const group = 20
	for rule, want := range golden {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			for g, hash := range want.Hashes {
				if testing.Short() && g%10 != 0 {
					continue
				}
				sum := sha256.New()
				for i := g * group; i < (g+1)*group; i++ {
					w, h, toW, toH := sizes(i)
					m := picture(i, w, h)
					out := rule.Resize(m, toW, toH)
					if out.Width != toW || out.Height != toH || len(out.Pix) != 3*toW*toH {
						t.Fatalf("pair %d has %d × %d pixels and %d bytes, not %d × %d", i, out.Width, out.Height, len(out.Pix), toW, toH)
					}
					sum.Write(out.Pix)
				}
				if got := hex.EncodeToString(sum.Sum(nil)); got != hash {
					t.Errorf("pairs %d to %d differ from %s", g*group, (g+1)*group-1, want.Version)
				}
			}
		})
	}
}

func TestTheRulesDifferWhereTheirPassesDo(t *testing.T) {
	m := picture(1, 40, 200)
	seen := map[string]Rule{}
	for _, name := range Rules() {
		rule, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		hash := rule.Resize(m, 37, 50).Hash()
		if other, same := seen[hash]; same {
			t.Errorf("%s and %s make the same bytes", rule, other)
		}
		seen[hash] = rule
	}
	if _, err := Parse("lanczos"); err == nil {
		t.Error("lanczos is a rule")
	}
}

func BenchmarkResize(b *testing.B) {
	m := picture(1, 1600, 1200)
	for _, name := range Rules() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(m.Pix)))
			for b.Loop() {
				Rule(name).Resize(m, 1120, 840)
			}
		})
	}
}

// Whatever kernel the processor has, the bytes are those of plain Go.
func TestKernelsEqualPlainGo(t *testing.T) {
	if !vectors {
		t.Skip("this processor has no kernel")
	}
	t.Cleanup(func() { vectors = true })
	for i := range 300 {
		w, h, toW, toH := sizes(i)
		m := picture(i, w, h)
		vectors = true
		fast := Torchvision.Resize(m, toW, toH)
		vectors = false
		if plain := Torchvision.Resize(m, toW, toH); plain.Hash() != fast.Hash() {
			t.Fatalf("%d × %d to %d × %d differs", w, h, toW, toH)
		}
	}
}
