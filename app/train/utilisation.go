package train

import (
	"fmt"
	"os"
	"strings"
)

// peakMemory is the largest resident size that this process has had, in bytes; 0
// where the system does not say.
func peakMemory() float64 {
	status, err := os.ReadFile("/proc/self/status") // of Linux
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kb float64
	if _, err := fmt.Sscan(after, &kb); err != nil {
		return 0
	}
	return kb * 1024
}

// AddUtilisation puts the model FLOPs utilisation among a step's metrics, where
// --peak-tflops says of how much it is a share: 6 FLOPs a parameter and computed token
// (Chowdhery et al. 2022, PaLM, appendix B, without attention's own). Of adapters alone
// it is not known how much of the backward pass is saved.
func AddUtilisation(values map[string]float64, o Options, m *Models) {
	if speed := values["perf/packed_tokens_per_s"]; speed > 0 && o.PeakTFLOPS > 0 && AdapterText(o) == "" {
		values["perf/mfu"] = 6 * float64(m.Actor.Parameters()) * speed / (o.PeakTFLOPS * 1e12)
	}
}

// AddPeakMemory adds the peak memory of the process, and of an accelerator, to a step's metrics.
func AddPeakMemory(values map[string]float64, o Options) {
	if b := peakMemory(); b > 0 {
		values["perf/max_memory_gb"] = b / 1e9
	}
	if m, err := o.Backend.Memory(o.Open.Device); err == nil && !m.Host {
		values["perf/max_memory_allocated_gb"], values["perf/max_memory_reserved_gb"] = float64(m.Allocated)/1e9, float64(m.Reserved)/1e9
	}
}
