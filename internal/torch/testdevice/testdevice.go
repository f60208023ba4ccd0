//go:build libtorch

// Package testdevice is a device that is not there, for tests: it finds on any machine
// what would fail on a GPU. Its memory faults when the host touches it. An operation on
// tensors of two devices is an error (a CPU tensor without dimensions excepted). Backward
// runs on a thread of autograd's for the device. What is computed, libtorch computes on
// the CPU, so results equal those of the CPU without our kernels, bit for bit.
//
// libtorch calls it PrivateUse1. The attention kernels that only libtorch's CUDA part
// has (_flash_attention_forward, _efficient_attention_forward and their gradients) are
// here, with the CUDA kernels' demands on their arguments.
package testdevice

/*
#cgo CXXFLAGS: -std=c++17 -O1
#cgo LDFLAGS: -ltorch_cpu -lc10 -lstdc++
#include <stdlib.h>
#include "testdevice.h"
*/
import "C"

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"agentcli/internal/torch"
)

// Name is the name of the device.
const Name = "testdevice"

// Load registers the device, once, before the process's first backward: autograd starts
// its threads then, for the devices that it knows.
func Load() { C.agt_test_device_load() }

// FromEnvironment loads the device and follows AGENTCLI_TEST_DEVICE=testdevice, which
// plays a package's tests on it, and AGENTCLI_TEST_KERNELS=none, which plays them without
// our CPU kernels. AGENTCLI_TEST_DEVICE=cuda plays them on the first GPU, and the device is
// not loaded: libtorch's autograd takes it for the only device there is. It is called
// before a package's tests begin.
func FromEnvironment() {
	switch name := os.Getenv("AGENTCLI_TEST_DEVICE"); name {
	case "":
		Load()
	case Name:
		Load()
		torch.DefaultDevice = torch.TestDevice
	case "cuda":
		if n, why := torch.CUDADevices(); n == 0 {
			panic("AGENTCLI_TEST_DEVICE=cuda: " + why)
		}
		if err := torch.UseGPUKernels(0); err != nil {
			panic(err)
		}
		torch.DefaultDevice = 0
	default:
		panic(fmt.Sprintf("AGENTCLI_TEST_DEVICE=%s: want %s or cuda", name, Name))
	}
	if err := torch.UseKernels(os.Getenv("AGENTCLI_TEST_KERNELS")); err != nil {
		panic(err)
	}
}

// SameBits has a GPU give the same bits whenever it computes the same, which is what a test asks.
func SameBits(t testing.TB) {
	if torch.DefaultDevice >= 0 {
		was := torch.Deterministic(true)
		t.Cleanup(func() { torch.Deterministic(was) })
	}
}

// Kernels says whether the device has our kernels (gpu_kernels.cu), which run block by
// block. Without them, as it begins, libtorch's operations compute everything.
func Kernels(on bool) {
	n := C.int(0)
	if on {
		n = 1
	}
	C.agt_test_device_kernels(n)
}

// Launches is how many of our kernels ran on the device since the process began.
func Launches() int { return int(C.agt_test_device_calls(4)) }

// Memory has the device give at most so many bytes more than it has given; 0 is any number.
// It returns how many bytes more than now were taken at once since the last call.
func Memory(bytes int64) (most int64) { return int64(C.agt_test_device_memory(C.long(bytes))) }

// Fail has the next operation that needs memory of the device fail with this error.
func Fail(text string) {
	p := C.CString(text)
	defer C.free(unsafe.Pointer(p))
	C.agt_test_device_fail(p)
}

// Calls is how often each kind of attention was called on the device since the process
// began.
func Calls() (flash, efficient int) {
	return int(C.agt_test_device_calls(0)), int(C.agt_test_device_calls(1))
}

// Operations is how many operations ran on the device since the process began, those
// that only make or look at memory not counted.
func Operations() int { return int(C.agt_test_device_calls(2)) }

// Copies is how many copies there were between the device and the host.
func Copies() int { return int(C.agt_test_device_calls(3)) }

// CopiedBytes is how many bytes went from the host to the device since the process began.
func CopiedBytes() int64 { return int64(C.agt_test_device_calls(5)) }
