package parquet

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"agentcli/traj"
)

// BenchmarkImages writes eight attempts each at 64 images of 1 MiB: the file's size in shares of
// the images', and the memory that the writer holds between two images, in images.
func BenchmarkImages(b *testing.B) {
	const images, attempts, size = 64, 8, 1 << 20
	path := filepath.Join(b.TempDir(), "t.parquet")
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		w, err := CreateFile(path, Metadata{}, withImages)
		if err != nil {
			b.Fatal(err)
		}
		before, most := heap(), 0.0
		for i := range images {
			im := imageOf(noise(uint64(i), size), "x.png")
			for k := range attempts {
				row := &traj.Trajectory{ID: fmt.Sprintf("%d#%d", i, k), Termination: traj.Answered, Images: []traj.Image{im},
					Messages: []traj.Message{{Role: traj.RoleUser, Content: traj.ImageMark + "?", Images: []traj.Image{im}}}}
				if err := w.Write(row); err != nil {
					b.Fatal(err)
				}
			}
			most = max(most, heap()-before)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(st.Size())/(images*size), "file/images")
		b.ReportMetric((most-DefaultRowGroupBytes)/size, "images-beyond-the-row-group")
	}
}
