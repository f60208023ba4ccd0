//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// libtorch's CUDA part.
const cudaFile = "libtorch_cuda.so"

// cudaPath is where CUDADevices has found it.
var cudaPath string

// CUDADevices is the number of CUDA devices; why says why there are none. The first call
// loads libtorch's CUDA part. It must come before the process's first backward: autograd
// starts its threads then, for the devices that it knows.
var CUDADevices = sync.OnceValues(func() (n int, why string) {
	path, refused := findCUDA(places())
	if path == "" {
		path = cudaFile // LD_LIBRARY_PATH may have it
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
	if path == cudaFile {
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

// place is a folder that may hold libtorch's CUDA part.
type place struct {
	folder string
	what   string // for people
	same   bool   // it is part of the libtorch that is loaded
}

// places are where the CUDA part is looked for, in order: beside the libtorch that is
// loaded, in AGENTCLI_TORCH, in the torch of python3.
func places() []place {
	out := []place{{folder: filepath.Dir(LibraryPath()), same: true}}
	if dir := os.Getenv("AGENTCLI_TORCH"); dir != "" {
		out = append(out, place{folder: dir, what: "AGENTCLI_TORCH"}, place{folder: filepath.Join(dir, "lib"), what: "AGENTCLI_TORCH"})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const where = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
	if dir, err := exec.CommandContext(ctx, "python3", "-c", where).Output(); err == nil && len(strings.TrimSpace(string(dir))) > 0 {
		out = append(out, place{folder: filepath.Join(strings.TrimSpace(string(dir)), "lib"), what: "python3"})
	}
	return out
}

var torchVersion = regexp.MustCompile(`__version__ = '([^'+]+)`)

// findCUDA gives the first CUDA part of libtorch's own version; refused says which others
// there are.
func findCUDA(places []place) (path string, refused []string) {
	for _, p := range places {
		file := filepath.Join(p.folder, cudaFile)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if p.same {
			return file, nil
		}
		raw, err := os.ReadFile(filepath.Join(p.folder, "..", "version.py"))
		version := torchVersion.FindSubmatch(raw)
		switch {
		case err != nil || version == nil:
			refused = append(refused, fmt.Sprintf("the torch of %s (%s) does not say its version", p.what, p.folder))
		case string(version[1]) != Version():
			refused = append(refused, fmt.Sprintf("the torch of %s (%s) is %s, and %s is needed", p.what, p.folder, version[1], Version()))
		default:
			return file, nil
		}
	}
	return "", refused
}
