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
	n = int(C.agt_cuda_devices(p, &msg))
	if msg == nil {
		return n, ""
	}
	why = C.GoString(msg)
	C.free(unsafe.Pointer(msg))
	if path == cudapart.File {
		why = fmt.Sprintf("%s; make setup CUDA=1 fetches it; or install torch %s for Python, or set AGENTCLI_TORCH to the folder of one",
			why, Version())
	}
	return n, strings.Join(append(refused, why), "; ")
})

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
