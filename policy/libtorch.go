//go:build libtorch

package policy

import (
	"runtime"

	"agentcli/internal/torch"
)

// Libtorch looks.
func Libtorch() LibtorchInfo {
	n, why := torch.CUDADevices()
	return LibtorchInfo{Version: torch.Version(), Path: torch.LibraryPath(), CPUCapability: torch.CPUCapability(), Kernels: torch.Kernels(),
		Threads: runtime.NumCPU(), BF16: hasBF16(), CUDADevices: n, WhyNoCUDA: why}
}
