//go:build libtorch

package policy

import (
	"runtime"

	"agentcli/internal/torch"
)

// LibtorchInfo is what was found of libtorch and of the devices it can use.
type LibtorchInfo struct {
	Version, Path, CPUCapability, Kernels string
	Threads                               int
	BF16                                  bool // the processor multiplies bfloat16 in hardware
	CUDADevices                           int
	WhyNoCUDA                             string
}

// Libtorch looks.
func Libtorch() LibtorchInfo {
	n, why := torch.CUDADevices()
	return LibtorchInfo{Version: torch.Version(), Path: torch.LibraryPath(), CPUCapability: torch.CPUCapability(), Kernels: torch.Kernels(),
		Threads: runtime.NumCPU(), BF16: hasBF16(), CUDADevices: n, WhyNoCUDA: why}
}
