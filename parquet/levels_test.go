package parquet

import "testing"

func TestLevelsThatEndTooEarlyAreSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		data []byte
		most int16
		n    int
		want int
	}{
		"a run":                   {[]byte{5 << 1, 1}, 1, 5, 5},
		"a run longer than asked": {[]byte{200, 1, 1}, 1, 7, 7},
		"a run without value":     {[]byte{5 << 1}, 1, 5, 0},
		"groups of eight":         {[]byte{1<<1 | 1, 0, 0}, 2, 8, 8},
		"a group cut off":         {[]byte{1<<1 | 1, 0}, 2, 8, 4},
		"two runs, one missing":   {[]byte{3 << 1, 1}, 1, 5, 3},
		"a run of none":           {[]byte{0, 1, 5 << 1, 1}, 1, 5, 0},
		"a run beyond measure":    {[]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}, 1, 5, 0},
		"an endless number":       {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1, 5, 0},
		"nothing":                 {nil, 1, 1, 0},
		"nothing wanted":          {nil, 1, 0, 0},
	} {
		if got := levels(tc.data, tc.most, tc.n); got != tc.want {
			t.Errorf("%s: %d levels, want %d", name, got, tc.want)
		}
	}
}
