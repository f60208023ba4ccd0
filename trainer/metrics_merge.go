package trainer

import (
	"math"
	"strings"
)

// Join gives the metrics of several steps together: the largest of maxima, the least
// of minima, sums of seconds, and means over all that the steps' means are over
// (Metrics.Over); of a number that belongs to a step, the mean over the steps that
// have it.
func Join(steps []Metrics) map[string]float64 {
	out, n := map[string]float64{}, map[string]float64{}
	for _, m := range steps {
		for key, x := range m.Values {
			if math.IsNaN(x) || key == "training/epoch" {
				continue
			}
			before, some := out[key]
			switch joined := joinBy(key); {
			case joined == nil:
				w := m.weight(key)
				out[key] += w * x
				n[key] += w
			case some:
				out[key] = joined(before, x)
			default:
				out[key] = x
			}
		}
	}
	for key := range n {
		if family, _, _ := strings.Cut(key, "/"); family == "termination" { // absent from a step: nothing ended so
			n[key] = 0
			for _, m := range steps {
				n[key] += m.Over[family]
			}
		}
		if out[key] /= n[key]; n[key] == 0 { // a mean over nothing is no number
			delete(out, key)
		}
	}
	return out
}

// joinBy is how a key's values are joined; nil: by their mean.
func joinBy(key string) func(a, b float64) float64 {
	switch {
	case strings.HasSuffix(key, "/max"), strings.HasSuffix(key, "_max"), key == "actor/early_stop", key == "actor/skipped_step":
		return math.Max
	case strings.HasSuffix(key, "/min"):
		return math.Min
	case strings.HasPrefix(key, "timing_s/"):
		return func(a, b float64) float64 { return a + b }
	}
	return nil
}

// weight is what a step's mean counts beside those of others.
func (m Metrics) weight(key string) float64 {
	if w, ok := m.Over[key]; ok {
		return w
	}
	family, _, _ := strings.Cut(key, "/")
	if w, ok := m.Over[family]; ok {
		return w
	}
	return 1
}
