package media

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkDecode reads the files of AGENTCLI_IMAGES, a folder; bench/images_peer.py make
// makes one.
func BenchmarkDecode(b *testing.B) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("AGENTCLI_IMAGES"), "*"))
	if os.Getenv("AGENTCLI_IMAGES") == "" || len(files) == 0 {
		b.Skip("no files in AGENTCLI_IMAGES")
	}
	for _, path := range files {
		file, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(filepath.Base(path), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m, err := Decode(file, Limits{})
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(m.Pix)))
			}
		})
	}
}
