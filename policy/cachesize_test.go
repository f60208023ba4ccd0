package policy

import "testing"

func TestSizesOfTheCacheAreRead(t *testing.T) {
	for text, want := range map[string]CacheSize{
		"": {}, "8GB": {Bytes: 8e9}, "512MiB": {Bytes: 512 << 20}, "1.5 gib": {Bytes: 3 << 29}, "0.5": {Share: .5}, "100b": {Bytes: 100},
		"2g": {Bytes: 2e9},
	} {
		if got, err := ParseCache("KVCache", text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "1", "2", "-1GB", "GB", "x", "1e30TB", "NaN", "inf", "0.0000000001b", "8 GB of it"} {
		if got, err := ParseCache("KVCache", text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
