package policy

import (
	"math"
	"strconv"
	"strings"

	"agentcli/internal/setting"
)

// CacheSize is how much memory keys and values may take: a number of bytes, or a share of
// what is free when the model is open. The zero value is the default.
type CacheSize struct {
	Bytes int64
	Share float64
}

var cacheUnits = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}, {"b", 1},
}

// ParseCache reads a size (8GB, 512MiB) or a share (0.5) of the named setting; "" is the default.
func ParseCache(name setting.Name, text string) (CacheSize, error) {
	if text == "" {
		return CacheSize{}, nil
	}
	number, unit := strings.ToLower(strings.TrimSpace(text)), 0.0
	for _, u := range cacheUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(v) || v <= 0:
	case unit > 0 && v*unit >= 1 && v*unit < 1<<60:
		return CacheSize{Bytes: int64(v * unit)}, nil
	case unit == 0 && v < 1:
		return CacheSize{Share: v}, nil
	}
	return CacheSize{},
		setting.Errorf("%s %q: want a size with its unit, for example 8GB, or a share of the free memory between 0 and 1, for example 0.5",
			name, text)
}
