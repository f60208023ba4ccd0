package main

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

// addPeakMemory puts it among a step's metrics, where it is known.
func addPeakMemory(values map[string]float64) {
	if b := peakMemory(); b > 0 {
		values["perf/max_memory_gb"] = b / 1e9
	}
}
