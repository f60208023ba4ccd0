//go:build libtorch

package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"agentcli/internal/filesys"
)

//go:embed gpu_kernels.cu *.cuh gpu_args.h block_types.h codebooks.h code_kinds.h portable.h
var gpuFiles embed.FS

// kernelSource is gpu_kernels.cu and the files that it includes, in order.
type kernelSource struct {
	text     []byte
	included [][2]string // name, text
}

var gpuSource = sync.OnceValues(func() (src kernelSource, err error) {
	files, err := gpuFiles.ReadDir(".")
	for _, f := range files {
		text, e := gpuFiles.ReadFile(f.Name())
		err = errors.Join(err, e)
		if f.Name() == "gpu_kernels.cu" {
			src.text = text
		} else {
			src.included = append(src.included, [2]string{f.Name(), string(text)})
		}
	}
	return src, err
})

// Architecture is what our kernels are compiled for on a GPU of that compute capability.
func Architecture(major, minor int) string {
	if major == 9 {
		return "sm_90a"
	}
	return fmt.Sprintf("sm_%d%d", major, minor)
}

// cudaStandard is the language of our kernels.
const cudaStandard = "c++20"

// CompileKernels gives our kernels as machine code for an architecture ("sm_90a"). nvrtc is
// the file of NVIDIA's run-time compiler, or of a library that needs it. No GPU is needed.
func CompileKernels(nvrtc, arch string) ([]byte, error) {
	src, err := gpuSource()
	if err != nil {
		return nil, err
	}
	file, source, standard, target := C.CString(nvrtc), C.CString(string(src.text)), C.CString(cudaStandard), C.CString(arch)
	used := []*C.char{file, source, standard, target}
	var names, headers []*C.char
	for _, h := range src.included {
		names, headers = append(names, C.CString(h[0])), append(headers, C.CString(h[1]))
	}
	for _, p := range slices.Concat(used, names, headers) {
		defer C.free(unsafe.Pointer(p))
	}
	var code unsafe.Pointer
	var n C.int64_t
	var msg *C.char
	if C.agt_gpu_compile(file, source, C.int(len(names)), &names[0], &headers[0], standard, target, &code, &n, &msg) != 0 {
		return nil, taken(msg)
	}
	defer C.free(code)
	return C.GoBytes(code, C.int(n)), nil
}

func taken(msg *C.char) error {
	defer C.free(unsafe.Pointer(msg))
	return errors.New(C.GoString(msg))
}

// NVRTC is NVIDIA's run-time compiler.
type NVRTC struct {
	Major, Minor int
	Path         string // of its file
}

// NVRTCOf opens the compiler in a file, or in a library that needs it. No GPU is needed.
func NVRTCOf(file string) (NVRTC, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var found C.agt_nvrtc
	var msg *C.char
	if C.agt_gpu_nvrtc(name, &found, &msg) != 0 {
		return NVRTC{}, taken(msg)
	}
	return NVRTC{int(found.major), int(found.minor), C.GoString(&found.path[0])}, nil
}

// NVRTCFile is the file that our kernels are compiled by.
func NVRTCFile() string {
	const file = "libcaffe2_nvrtc.so" // it needs NVRTC, and lies beside the CUDA part
	if dir := filepath.Dir(cudaPath); dir != "." {
		return filepath.Join(dir, file)
	}
	return file
}

// GPU is a CUDA device, and what drives it.
type GPU struct {
	Name                   string
	Memory                 int64 // bytes
	Major, Minor           int   // compute capability
	Driver, Runtime, CUDNN int   // versions: 13000 is CUDA 13.0, 91900 cuDNN 9.19.0
}

// GPUOf asks the driver.
func GPUOf(dev Device) (GPU, error) {
	var g C.agt_gpu
	var msg *C.char
	if C.agt_gpu_device(C.int(dev), &g, &msg) != 0 {
		return GPU{}, taken(msg)
	}
	return GPU{Name: C.GoString(&g.name[0]), Memory: int64(g.memory), Major: int(g.major), Minor: int(g.minor), Driver: int(g.driver),
		Runtime: int(g.runtime), CUDNN: int(g.cudnn)}, nil
}

// CUDAPath is the file in which CUDADevices found CUDA, "" where it found none.
func CUDAPath() string { return cudaPath }

// HasDriver is whether there is an NVIDIA driver.
func HasDriver() bool { return C.agt_has_driver() != 0 }

var gpu struct {
	sync.Mutex
	tried map[Device]error
}

// UseGPUKernels loads our kernels on a CUDA device, once. They are compiled for it where the
// user's cache folder does not have them from before. After an error libtorch's own
// operations compute what they would, as they do with AGENTCLI_GPU_KERNELS=none.
func UseGPUKernels(dev Device) error {
	if os.Getenv("AGENTCLI_GPU_KERNELS") == "none" {
		return errors.New("AGENTCLI_GPU_KERNELS is none")
	}
	gpu.Lock()
	defer gpu.Unlock()
	if err, done := gpu.tried[dev]; done {
		return err
	}
	if gpu.tried == nil {
		gpu.tried = map[Device]error{}
	}
	err := loadKernels(dev)
	gpu.tried[dev] = err
	return err
}

func loadKernels(dev Device) error {
	g, err := GPUOf(dev)
	if err != nil {
		return err
	}
	arch := Architecture(g.Major, g.Minor)
	code, err := cachedKernels(arch, g.Driver, func() ([]byte, error) { return CompileKernels(NVRTCFile(), arch) })
	if err != nil {
		return err
	}
	p := C.CBytes(code)
	defer C.free(p)
	var msg *C.char
	if C.agt_gpu_load(C.int(dev), p, &msg) != 0 {
		return taken(msg)
	}
	return nil
}

// cachedKernels gives what compile gives, from the user's cache folder where it has been
// kept there for the same source, architecture and driver.
func cachedKernels(arch string, driver int, compile func() ([]byte, error)) ([]byte, error) {
	h := sha256.New()
	src, err := gpuSource()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(h, "%s %d %s %s %s %q\n", arch, driver, Version(), cudaStandard, src.text, src.included)
	dir, err := os.UserCacheDir()
	if err != nil {
		return compile()
	}
	file := filepath.Join(dir, "agentcli", "kernels", fmt.Sprintf("%s-%x.cubin", arch, h.Sum(nil)[:12]))
	if code, err := os.ReadFile(file); err == nil && len(code) > 0 {
		return code, nil
	}
	code, err := compile()
	if err != nil {
		return nil, err
	}
	// A cache that cannot be written costs seconds at the next start, and nothing else.
	if os.MkdirAll(filepath.Dir(file), 0o755) == nil {
		_ = filesys.WriteFile(filesys.OS, file, code, 0o644)
	}
	return code, nil
}
