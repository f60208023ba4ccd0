//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"agentcli/internal/torch/cudapart"
)

// cudaPath is where CUDADevices has found it.
var cudaPath string

// cudaFix is what a user can do where CUDADevices has found none.
var cudaFix string

// CUDADevices is the number of CUDA devices; why says why there are none. The first call
// loads libtorch's CUDA part. It must come before the process's first backward: autograd
// starts its threads then, for the devices that it knows.
var CUDADevices = sync.OnceValues(func() (n int, why string) {
	path, refused := cudapart.Find(cudapart.Places(filepath.Dir(LibraryPath())), Version())
	if path == "" {
		path = cudapart.File // LD_LIBRARY_PATH may have it
	}
	cudaPath = path
	if os.Getenv("PYTORCH_ALLOC_CONF") == "" {
		// Packs and steps of ever new sizes would leave memory in pieces that fit nothing.
		os.Setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
	}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var msg *C.char
	var found C.agt_cuda
	n = int(C.agt_cuda_devices(p, &found, &msg))
	if msg == nil {
		return n, ""
	}
	why = C.GoString(msg)
	C.free(unsafe.Pointer(msg))
	switch old := cudapart.OldDriver(int(found.driver), int(found.runtime)); {
	case old != "":
		why, cudaFix = old, "install a newer NVIDIA driver"
	case found.asked != 0 && found.loaded == 0:
		cudaFix = fmt.Sprintf("make setup CUDA=1, or AGENTCLI_TORCH=FOLDER of an installed torch %s", Version())
	}
	return n, strings.Join(append(refused, why), "; ")
})

// CUDAFix is what a user can do so that CUDADevices finds some; "" where there is nothing to
// say.
func CUDAFix() string {
	_, _ = CUDADevices()
	return cudaFix
}

// EmptyCache gives a device's memory that libtorch keeps for later back to it.
func EmptyCache(dev Device) { C.agt_empty_cache(C.int(dev)) }

// AutoDevice is the first CUDA device, or the CPU where there is none. why says what keeps a
// driver's device from being used.
func AutoDevice() (dev Device, why string) {
	if !HasDriver() {
		return CPU, ""
	}
	n, why := CUDADevices()
	if n == 0 {
		return CPU, why
	}
	return 0, ""
}
