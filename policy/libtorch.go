//go:build libtorch

package policy

import (
	"fmt"
	"strings"

	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/internal/torch"
)

// DeviceNote says which device computes a model where device is AutoDevice and the processor is not meant, and what a GPU
// computes without our kernels; "" where there is nothing to say. Device is as in Config.
func DeviceNote(device string) string {
	auto := device == AutoDevice
	_, dev, err := resolve("", device)
	if err != nil { // Open says it
		return ""
	}
	why := ""
	if auto {
		_, why = torch.AutoDevice()
	}
	var kernels error
	if dev >= 0 {
		kernels = torch.UseGPUKernels(dev)
	}
	return deviceNote(auto, dev, why, torch.CUDAFix(), kernels)
}

func deviceNote(auto bool, dev torch.Device, why, fix string, kernels error) string {
	var notes []string
	switch {
	case auto && dev != torch.CPU:
		notes = append(notes, fmt.Sprintf("the model is computed on %s; %s cpu computes it on the processor", dev, setting.Name("Device")))
	case auto && why != "":
		if fix != "" {
			why += "; " + fix
		}
		notes = append(notes, "the model is computed on the processor, although there is a GPU: "+why)
	}
	if kernels != nil {
		notes = append(notes, fmt.Sprintf("%s computes by libtorch's operations in place of our kernels, which takes longer: %s",
			dev, text.Line(kernels)))
	}
	return strings.Join(notes, "; ")
}

// ContextNote says that a text must be shorter than the model's window, or than Config.MaxContext, because the cache has no
// room for it; "" where it need not be.
func ContextNote(p *Policy) string {
	if p.cfg.MaxContext >= p.window {
		return ""
	}
	return fmt.Sprintf("prompt and reply may have %d tokens together in place of %d, for the cache holds no more: give %s more memory, "+
		"or take %[4]s %[1]d", p.cfg.MaxContext, p.window, setting.Name("KVCache"), setting.Name("MaxContext"))
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
