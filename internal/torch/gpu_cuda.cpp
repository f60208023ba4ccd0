//go:build libtorch

// How CUDA compiles and runs our kernels. NVRTC, which comes with torch, compiles them when the program
// runs; the driver loads and starts them, and records graphs. Both are opened with dlopen: agentcli is
// linked with neither.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "gpu.h"
#include "guard.h"
#include "shim.h"

namespace agt {
namespace gpu {
namespace {

// Functions of a library that is opened when the program runs.
struct Library {
  void *handle;
  template <class F>
  void find(F &f, const char *name) {
    f = reinterpret_cast<F>(dlsym(handle, name));
    TORCH_CHECK(f, name, " is missing");
  }
};

struct NVRTC {  // nvrtc.h
  int (*version)(int *, int *);
  int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
  int (*compile)(void *, int, const char *const *);
  int (*destroy)(void **);
  int (*log_size)(void *, size_t *);
  int (*log)(void *, char *);
  int (*cubin_size)(void *, size_t *);
  int (*cubin)(void *, char *);
  const char *(*text)(int);
  int major = 0, minor = 0;
  std::string path;  // of the file that has it; "": unknown

  explicit NVRTC(const char *file) {
    void *h = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *e = h ? nullptr : dlerror();
    TORCH_CHECK(h, "NVRTC cannot be loaded: ", e ? e : "?");
    Library l{h};  // a function of a library that `file` needs is found, too
    l.find(version, "nvrtcVersion");
    l.find(create, "nvrtcCreateProgram");
    l.find(compile, "nvrtcCompileProgram");
    l.find(destroy, "nvrtcDestroyProgram");
    l.find(log_size, "nvrtcGetProgramLogSize");
    l.find(log, "nvrtcGetProgramLog");
    l.find(cubin_size, "nvrtcGetCUBINSize");
    l.find(cubin, "nvrtcGetCUBIN");
    l.find(text, "nvrtcGetErrorString");
    // NVRTC opens its built-in functions by their bare name; they lie beside it.
    check(version(&major, &minor), "nvrtcVersion");
    Dl_info where;
    if (dladdr(reinterpret_cast<void *>(version), &where) && where.dli_fname) {
      path = where.dli_fname;
      auto beside = path.substr(0, path.rfind('/') + 1) + "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
      dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL);
    }
  }
  void check(int code, const char *what) const { TORCH_CHECK(code == 0, what, ": ", text(code)); }

  std::string compiled(const char *source, int n_headers, const char *const *names, const char *const *headers, const char *standard,
                       const char *arch) const {
    void *program = nullptr;
    check(create(&program, source, "gpu_kernels.cu", n_headers, headers, names), "nvrtcCreateProgram");
    std::string target = std::string("--gpu-architecture=") + arch;
    std::string language = std::string("--std=") + standard;
    const char *options[] = {target.c_str(), language.c_str(), "-default-device"};
    int code = compile(program, 3, options);
    size_t n = 0;
    std::string out;
    if (code != 0) {
      log_size(program, &n);
      std::string said(n, ' ');
      log(program, said.data());
      destroy(&program);
      TORCH_CHECK(false, "our kernels do not compile for ", arch, ": ", text(code), ": ", said.c_str());
    }
    check(cubin_size(program, &n), "nvrtcGetCUBINSize");
    out.resize(n);
    check(cubin(program, out.data()), "nvrtcGetCUBIN");
    destroy(&program);
    return out;
  }
};

struct LaunchAttribute {  // cuda.h
  int id;
  char pad[4];
  union {
    char bytes[64];
    int allowed;
  } value;
};
struct LaunchConfig {
  unsigned x, y, z, threads_x, threads_y, threads_z, shared;
  void *stream;
  LaunchAttribute *attributes;
  unsigned n_attributes;
};

struct Driver {  // cuda.h
  int (*device)(int *, int);
  int (*attribute)(int *, int, int);
  int (*version)(int *);
  int (*name)(char *, int, int);
  int (*memory)(size_t *, int);
  int (*load)(void **, const void *);
  int (*function)(void **, void *, const char *);
  int (*start)(const LaunchConfig *, void *, void **, void **);
  int (*text)(int, const char **);
  int (*current)(void **);
  int (*set_current)(void *);
  int (*primary)(void **, int);
  int (*begin_capture)(void *, int);
  int (*end_capture)(void *, void **);
  int (*instantiate)(void **, void *, unsigned long long);
  int (*destroy_graph)(void *);
  int (*destroy_run)(void *);
  int (*run)(void *, void *);

  Driver() {
    Library l{dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    TORCH_CHECK(l.handle, "there is no NVIDIA driver");
    l.find(device, "cuDeviceGet");
    l.find(attribute, "cuDeviceGetAttribute");
    l.find(version, "cuDriverGetVersion");
    l.find(name, "cuDeviceGetName");
    l.find(memory, "cuDeviceTotalMem_v2");
    l.find(load, "cuModuleLoadData");
    l.find(function, "cuModuleGetFunction");
    l.find(start, "cuLaunchKernelEx");
    l.find(text, "cuGetErrorString");
    l.find(current, "cuCtxGetCurrent");
    l.find(set_current, "cuCtxSetCurrent");
    l.find(primary, "cuDevicePrimaryCtxRetain");
    l.find(begin_capture, "cuStreamBeginCapture_v2");
    l.find(end_capture, "cuStreamEndCapture");
    l.find(instantiate, "cuGraphInstantiateWithFlags");
    l.find(destroy_graph, "cuGraphDestroy");
    l.find(destroy_run, "cuGraphExecDestroy");
    l.find(run, "cuGraphLaunch");
  }
  void check(int code, const char *what) const {
    const char *said = nullptr;
    if (code != 0) text(code, &said);
    TORCH_CHECK(code == 0, "CUDA error: ", what, ": ", said ? said : "unknown");
  }
};
const Driver &driver() {
  static Driver d;
  return d;
}

// The modules of the devices, and the functions found in them.
std::mutex lock;
std::map<int, void *> modules;
std::map<std::pair<int, std::string>, void *> functions;

// Whether this thread records a graph. A kernel in a graph may start while the one in front of it still
// runs (await_last in gpu_common.cuh): what it reads early was written when the graph was launched.
thread_local bool recording = false;

void *function(int device, const std::string &name) {
  std::lock_guard<std::mutex> g(lock);
  void *&f = functions[{device, name}];
  if (!f) {
    auto m = modules.find(device);
    TORCH_CHECK(m != modules.end(), "our kernels are not loaded on device ", device);
    driver().check(driver().function(&f, m->second, name.c_str()), name.c_str());
  }
  return f;
}

// What this thread does with the driver is done in the device's context, which a thread has from
// libtorch only once libtorch has called CUDA on it.
void enter(int device) {
  void *context = nullptr;
  int id = 0;
  auto &d = driver();
  d.check(d.current(&context), "cuCtxGetCurrent");
  if (context) return;
  d.check(d.device(&id, device), "cuDeviceGet");
  d.check(d.primary(&context, id), "cuDevicePrimaryCtxRetain");
  d.check(d.set_current(context), "cuCtxSetCurrent");
}

// Compute capability 9.0 has programmatic dependent launch.
bool starts_early(int device) {
  static std::map<int, bool> known;
  std::lock_guard<std::mutex> g(lock);
  auto k = known.find(device);
  if (k != known.end()) return k->second;
  int id = 0, major = 0;
  auto &d = driver();
  d.check(d.device(&id, device), "cuDeviceGet");
  d.check(d.attribute(&major, 75, id), "cuDeviceGetAttribute");
  return known[device] = major >= 9;
}

void *stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle(); }

void launch_cuda(const Call &c, at::TensorList used) {
  std::string name = std::string("gpu_") + c.kernel;
  if (c.type != at::ScalarType::Undefined) name += c.type == at::kFloat ? "_f32" : "_bf16";
  c10::Device device = used[0].device();
  c10::DeviceGuard guard(device);
  enter(device.index());
  void *params[] = {const_cast<void *>(c.args)};
  constexpr int programmatic_serialization = 6;
  LaunchAttribute early{programmatic_serialization, {}, {}};
  early.value.allowed = 1;
  LaunchConfig config{c.x, c.y, c.z, c.threads, 1, 1, 0, stream(device), &early, recording && starts_early(device.index())};
  driver().check(driver().start(&config, function(device.index(), name), params, nullptr), name.c_str());
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(at::Device device, void *graph) : device_(device), status_(driver().instantiate(&run_, graph, 0)) {}
  ~CudaGraph() override {
    if (status_ == 0) driver().destroy_run(run_);
  }
  CudaGraph(const CudaGraph &) = delete;
  CudaGraph &operator=(const CudaGraph &) = delete;

  int status() const { return status_; }
  void launch() const override {
    c10::DeviceGuard guard(device_);  // the stream of all is the one of the thread's device
    enter(device_.index());
    driver().check(driver().run(run_, stream(device_)), "cuGraphLaunch");
  }

 private:
  at::Device device_;
  void *run_ = nullptr;
  int status_;
};

std::unique_ptr<Graph> record_cuda(at::Device device, const std::function<void()> &work) {
  constexpr int relaxed = 2;  // what other threads do meanwhile is not looked at
  constexpr int out_of_memory = 2;
  c10::DeviceGuard guard(device);
  c10::impl::VirtualGuardImpl impl(device.type());
  wait(device);
  // The stream of all is not recorded; this one is, with the workspace that cuBLAS has for it.
  static thread_local c10::Stream own = impl.getStreamFromGlobalPool(device);
  if (own.device() != device) own = impl.getStreamFromGlobalPool(device);
  const c10::Stream was = impl.exchangeStream(own);
  void *graph = nullptr;
  std::unique_ptr<CudaGraph> recorded;
  try {
    work();
    own.synchronize();
    driver().check(driver().begin_capture(own.native_handle(), relaxed), "cuStreamBeginCapture");
    recording = true;
    try {
      work();
    } catch (...) {
      recording = false;
      driver().end_capture(own.native_handle(), &graph);
      throw;
    }
    recording = false;
    int code = driver().end_capture(own.native_handle(), &graph);
    if (code == 0) {
      recorded = std::make_unique<CudaGraph>(device, graph);
      code = recorded->status();
    }
    if (code == out_of_memory)
      recorded = nullptr;  // the work is done all the same
    else
      driver().check(code, "recording a graph");
  } catch (...) {
    impl.exchangeStream(was);
    if (graph) driver().destroy_graph(graph);
    try {  // what comes on the other stream is not ordered behind what was begun
      own.synchronize();
    } catch (...) {
    }
    throw;
  }
  impl.exchangeStream(was);
  if (graph) driver().destroy_graph(graph);
  return recorded;
}

}  // namespace

bool loaded(int device) {
  std::lock_guard<std::mutex> g(lock);
  return modules.count(device) > 0;
}

}  // namespace gpu
}  // namespace agt

extern "C" {

int agt_gpu_compile(const char *nvrtc, const char *source, int n_headers, const char *const *names, const char *const *headers,
                    const char *standard, const char *arch, void **cubin, int64_t *n, char **err) {
  return agt::guarded(err, [&] {
    std::string out = agt::gpu::NVRTC(nvrtc).compiled(source, n_headers, names, headers, standard, arch);
    *n = int64_t(out.size());
    *cubin = malloc(out.size());
    std::memcpy(*cubin, out.data(), out.size());
  });
}
int agt_gpu_nvrtc(const char *nvrtc, agt_nvrtc *found, char **err) {
  return agt::guarded(err, [&] {
    agt::gpu::NVRTC r(nvrtc);
    found->major = r.major, found->minor = r.minor;
    snprintf(found->path, sizeof found->path, "%s", r.path.c_str());
  });
}
int agt_gpu_device(int device, agt_gpu *gpu, char **err) {
  return agt::guarded(err, [&] {
    auto &d = agt::gpu::driver();
    at::empty({1}, at::TensorOptions().device(at::Device(at::kCUDA, c10::DeviceIndex(device))));  // CUDA's context begins
    int id = 0;
    size_t memory = 0;
    *gpu = {};
    d.check(d.device(&id, device), "cuDeviceGet");
    d.check(d.name(gpu->name, sizeof gpu->name, id), "cuDeviceGetName");
    d.check(d.memory(&memory, id), "cuDeviceTotalMem");
    d.check(d.attribute(&gpu->major, 75, id), "cuDeviceGetAttribute");
    d.check(d.attribute(&gpu->minor, 76, id), "cuDeviceGetAttribute");
    d.check(d.version(&gpu->driver), "cuDriverGetVersion");
    gpu->memory = int64_t(memory);
    // Both came with libtorch's CUDA part, whose symbols are everyone's.
    if (auto f = reinterpret_cast<int (*)(int *)>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"))) f(&gpu->runtime);
    if (auto f = reinterpret_cast<size_t (*)()>(dlsym(RTLD_DEFAULT, "cudnnGetVersion"))) gpu->cudnn = int(f());
  });
}
int agt_gpu_load(int device, const void *cubin, char **err) {
  return agt::guarded(err, [&] {
    c10::DeviceGuard guard(at::Device(at::kCUDA, c10::DeviceIndex(device)));
    at::empty({1}, at::TensorOptions().device(guard.current_device()));
    agt::gpu::enter(device);
    void *m = nullptr;
    auto &d = agt::gpu::driver();
    d.check(d.load(&m, cubin), "cuModuleLoadData");
    {
      std::lock_guard<std::mutex> g(agt::gpu::lock);
      agt::gpu::modules[device] = m;
    }
    agt::gpu::set_cuda(agt::gpu::launch_cuda, agt::gpu::record_cuda);
  });
}
}
