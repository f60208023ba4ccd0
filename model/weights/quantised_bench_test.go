package weights

import (
	"path/filepath"
	"testing"

	"agentcli/internal/goldenfile"
)

// In bfloat16: bytes of the stored weight read a second, on all cores, for a
// matrix of 2,048 × 2,048.
func BenchmarkQuantised(b *testing.B) {
	var g map[string]quantisedCase
	goldenfile.Load(b, "quantised/quantised.json", &g)
	const n = 2048
	for name, kinds := range map[string][]TensorInfo{
		"fp8":  {{"m.weight", F8E4M3, []int64{n, n}}, {"m.weight_scale_inv", F32, []int64{n / 128, n / 128}}},
		"int4": {{"m.weight_packed", I32, []int64{n, n / 8}}, {"m.weight_shape", I64, []int64{2}}, {"m.weight_scale", BF16, []int64{n, n / 128}}},
		"awq":  {{"m.qweight", I32, []int64{n, n / 8}}, {"m.qzeros", I32, []int64{n / 128, n / 8}}, {"m.scales", F16, []int64{n / 128, n}}},
		"gptq": {{"m.qweight", I32, []int64{n / 8, n}}, {"m.qzeros", I32, []int64{n / 128, n / 8}}, {"m.scales", F16, []int64{n / 128, n}}},
	} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "f.safetensors")
			w, err := CreateSafetensors(path, kinds, nil)
			if err != nil {
				b.Fatal(err)
			}
			for _, i := range kinds {
				data := make([]byte, count(i.Shape)*i.DType.Size())
				if i.DType == I64 {
					le.PutUint64(data, n)
					le.PutUint64(data[8:], n)
				}
				if err := w.Write(i.Name, data); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			q, err := openQuantised(path, g[name].Config)
			if err != nil {
				b.Fatal(err)
			}
			defer q.close()
			b.SetBytes(count(kinds[0].Shape) * kinds[0].DType.Size())
			for b.Loop() {
				if _, err := q.tensorFor(q.infos["m.weight"], BF16); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
