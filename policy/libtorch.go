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
		if fix := torch.CUDAFix(); fix != "" {
			why += "; " + fix
		}
		return "the model is computed on the processor, although there is a GPU: " + why
	}
	return ""
}

// MemoryOf reads the free and the used memory of a device; device is as in Config.
func MemoryOf(device string) (m Memory, err error) {
	_, dev, err := resolve("", device)
	if err != nil {
		return m, err
	}
	m.Host = dev == torch.CPU
	if m.Free, err = torch.FreeMemory(dev); err != nil {
		return m, err
	}
	m.Allocated, m.Reserved, err = torch.PeakMemory(dev)
	return m, err
}

// Libtorch looks.
func Libtorch() LibtorchInfo {
	n, why := torch.CUDADevices()
	w := torch.NewWorker(0)
	defer w.Close()
	info := LibtorchInfo{Version: torch.Version(), Path: torch.LibraryPath(), CPUCapability: torch.CPUCapability(), Kernels: torch.Kernels(),
		Threads: w.Threads(), BF16: hasBF16(), CUDADevices: n, WhyNoCUDA: why, CUDAFix: torch.CUDAFix(),
		HasDriver: torch.HasDriver(), CUDAPath: torch.CUDAPath()}
	if n > 0 {
		c, err := torch.NVRTCOf(torch.NVRTCFile())
		info.NVRTC, info.NVRTCErr = fmt.Sprintf("%d.%d, %s", c.Major, c.Minor, c.Path), err
	}
	for d := range n {
		g, err := torch.GPUOf(torch.Device(d))
		info.GPUs = append(info.GPUs, GPUInfo{Name: g.Name, Memory: g.Memory, Capability: fmt.Sprintf("%d.%d", g.Major, g.Minor),
			Driver: fmt.Sprintf("%d.%d", g.Driver/1000, g.Driver%1000/10), CUDA: fmt.Sprintf("%d.%d", g.Runtime/1000, g.Runtime%1000/10),
			CUDNN: fmt.Sprintf("%d.%d.%d", g.CUDNN/10000, g.CUDNN%10000/100, g.CUDNN%100), Kernels: torch.UseGPUKernels(torch.Device(d)), Err: err})
	}
	return info
}
