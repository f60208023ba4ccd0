//go:build libtorch

package main

import (
	"fmt"

	"agentcli/policy"
)

func reportLibtorch() []finding {
	r := policy.Libtorch()
	list := []finding{
		{Name: "libtorch", OK: true, Detail: fmt.Sprintf("%s, %s", r.Version, r.Path)},
		{Name: "cpu", OK: true, Detail: fmt.Sprintf("%s, kernels %s, %d threads, bfloat16 in hardware: %v", r.CPUCapability, r.Kernels, r.Threads, r.BF16)},
	}
	cuda := finding{Name: "cuda", OK: r.CUDADevices > 0, Detail: fmt.Sprintf("%d devices", r.CUDADevices)}
	if r.CUDADevices == 0 {
		cuda.Detail = "no: " + r.WhyNoCUDA
	}
	return append(list, cuda)
}
