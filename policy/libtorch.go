//go:build libtorch

package policy

import (
	"fmt"

	"agentcli/internal/setting"
	"agentcli/internal/torch"
)

// AutoNote says which device AutoDevice is, "" where nobody would expect another.
func AutoNote() string {
	dev, why := torch.AutoDevice()
	switch {
	case dev != torch.CPU:
		return fmt.Sprintf("the model is computed on %s; %s cpu computes it on the processor", dev, setting.Name("Device"))
	case why != "":
		return "the model is computed on the processor, although there is a GPU: " + why
	}
	return ""
}

// Libtorch looks.
func Libtorch() LibtorchInfo {
	n, why := torch.CUDADevices()
	w := torch.NewWorker(0)
	defer w.Close()
	return LibtorchInfo{Version: torch.Version(), Path: torch.LibraryPath(), CPUCapability: torch.CPUCapability(), Kernels: torch.Kernels(),
		Threads: w.Threads(), BF16: hasBF16(), CUDADevices: n, WhyNoCUDA: why}
}
