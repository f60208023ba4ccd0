//go:build libtorch

// Our kernels on a device: what each is called with, and how CUDA runs them. NVRTC, which
// comes with torch, compiles them when the program runs; the driver loads and starts them.
// Both are opened with dlopen: agentcli is linked with neither.
#include "gpu.h"
#include "guard.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "blocks.h"
#include "shim.h"
#include "tensors.h"
#include "upload.h"

namespace agt {
namespace gpu {
namespace {

using at::Tensor;

bool loaded(int device);  // our kernels are, on a CUDA device

// How each kind of device runs a kernel; null: not at all.
std::atomic<Launch> on_cuda{nullptr}, on_test_device{nullptr};

Launch launcher(const Tensor &x) { return x.is_cuda() ? on_cuda.load() : x.is_privateuseone() ? on_test_device.load() : nullptr; }

struct Grid {
  int64_t x, y = 1, z = 1;
};

void launch(const char *kernel, const Tensor &of, at::ScalarType type, Grid g, int threads, const void *args, at::TensorList used) {
  for (auto &t : used)
    TORCH_CHECK(!t.defined() || (t.device() == of.device() && t.is_contiguous()), kernel, " is given a tensor ", t.sizes(), " on ", t.device(),
                ", one beside it is on ", of.device(), "; all must be contiguous on one device");
  if (g.x * g.y * g.z == 0) return;
  TORCH_CHECK(g.x <= INT32_MAX && g.y <= 65535 && g.z <= 65535, kernel, " is asked for a grid of ", g.x, " × ", g.y, " × ", g.z);
  launcher(of)({kernel, type, unsigned(g.x), unsigned(g.y), unsigned(g.z), unsigned(threads), args}, used);
}

const void *data(const Tensor &t) { return t.defined() ? t.const_data_ptr() : nullptr; }
template <class A>
const A *data(const Tensor &t) { return t.defined() ? t.const_data_ptr<A>() : nullptr; }
void *out(Tensor &t) { return t.mutable_data_ptr(); }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool have(const Tensor &x) {
  return launcher(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && (!x.is_cuda() || loaded(x.get_device()));
}
bool takes(const Tensor &x, int64_t n) {
  return have(x) && n % 8 == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

void embed(const Tensor &table, const Tensor &ids, double scale, Tensor &y) {
  int64_t rows = y.size(0), n = table.size(1);
  TORCH_CHECK(n % 8 == 0 && ids.numel() == rows && y.size(1) == n, "embed: ", table.sizes(), ", ", ids.sizes(), ", ", y.sizes());
  Embed a{data(table), data<int32_t>(ids), out(y), rows, n, float(scale)};
  launch("embed", y, y.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a, {table, ids, y});
}

void gate(const Tensor &x, bool gelu, Tensor &y) {
  int64_t n = y.size(-1), rows = n ? y.numel() / n : 0;
  TORCH_CHECK(n % 8 == 0 && x.numel() == 2 * y.numel() && x.size(-1) == 2 * n, "gate: ", x.sizes(), ", ", y.sizes());
  Gate a{data(x), out(y), rows, n, int(gelu)};
  launch("gate", y, y.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a, {x, y});
}

bool takes_norm_gradient(const Tensor &x, int64_t n) { return takes(x, n) && n <= kLongRow && x.numel() > 0; }

Tensor rms_norm_gradient(const Tensor &x, const Tensor &w, const Tensor &g, Rms r, Tensor &dx) {
  int64_t n = w.size(0), rows = x.numel() / n, blocks = std::min<int64_t>(n <= kShortRow ? divide_up(rows, kRowThreads / 32) : rows, kSumBlocks);
  Tensor sums = at::empty({blocks, n}, x.options().dtype(at::kFloat));
  NormGradient a{data(x), data(w), data(g), out(dx), static_cast<float *>(out(sums)), rows, n, float(r.eps), float(r.offset)};
  launch(n <= kShortRow ? "norm_rows_gradient" : "norm_long_gradient", x, x.scalar_type(), {blocks}, kRowThreads, &a, {x, w, g, dx, sums});
  return sums.sum(0).to(w.scalar_type());
}

void gate_gradient(const Tensor &x, const Tensor &g, Tensor &dx) {
  int64_t n = x.size(-1) / 2, rows = g.numel() / n;
  GateGradient a{data(x), data(g), out(dx), rows, n};
  launch("gate_gradient", x, x.scalar_type(), {divide_up(rows * n, 8 * kDecodeThreads)}, kDecodeThreads, &a, {x, g, dx});
}

void turn(const Tensor &x, const Tensor &cos, const Tensor &sin, bool neighbours, double sign, Tensor &y) {
  int64_t dim = x.size(2), pairs = x.numel() / 2;
  Turn a{data(x), data<float>(cos), data<float>(sin), out(y), pairs, int(x.size(1)), int(dim), int(cos.size(1)), int(neighbours), float(sign)};
  launch("turn", x, x.scalar_type(), {divide_up(pairs, 8 * kDecodeThreads)}, kDecodeThreads, &a, {x, cos, sin, y});
}

bool takes_few(int64_t rows, int64_t k, int64_t n, at::ScalarType type) {
  return type == at::kBFloat16 && (rows == 1 || rows == 2 || rows == kFewRows) && k % 8 == 0 && n % 2 == 0 && rows * k * int64_t(at::elementSize(type)) <= few_bytes(int(rows));
}

void product(const Tensor &x, const Tensor *add, const Tensor &norm, Rms r, const Tensor &w, const Tensor &bias, bool gated, Tensor *sum, Tensor &y) {
  int64_t rows = x.size(0), k = x.size(1), n = w.size(0), units = gated ? n / 2 : divide_up(n, 2);
  TORCH_CHECK(w.size(1) == k && k % 8 == 0 && y.size(0) == rows && y.size(1) == (gated ? units : n) && (rows == 1 || rows == 2 || rows == kFewRows),
              "product: ", x.sizes(), ", ", w.sizes(), ", ", y.sizes());
  constexpr int warps = kRowThreads / 32;
  int split = 1;
  while (split < warps && 2 * units * split <= kFewBlocks * warps && k >= 512 * split) split *= 2;
  // All blocks are there at once, and each has as much to do.
  const int64_t needed = divide_up(units * split, warps), rounds = divide_up(needed, kFewBlocks);
  Product a{data(x), add ? data(*add) : nullptr, data(norm), data(w), data(bias), sum ? out(*sum) : nullptr, out(y), n, k, split, int(gated),
            float(r.eps), float(r.offset)};
  std::vector<Tensor> used{x, norm, w, bias, y};
  if (add) used.insert(used.end(), {*add, *sum});
  std::string name = std::string(norm.defined() ? "normed_product" : "product") + std::to_string(rows);
  launch(name.c_str(), x, x.scalar_type(), {divide_up(needed, rounds)}, kRowThreads, &a, used);
}

namespace {
void launch_norm(const Norm &a, const Tensor &of, at::TensorList used) {
  if (a.n <= kWarpRow)
    launch("norm_rows", of, of.scalar_type(), {divide_up(a.rows, kDecodeThreads / 32)}, kDecodeThreads, &a, used);
  else
    launch("norm_long", of, of.scalar_type(), {a.rows}, int(std::min<int64_t>(divide_up(a.n, 8 * 32) * 32, kNormThreads)), &a, used);
}
}  // namespace

void rms_norm(const Tensor &x, const Tensor *add, const Tensor &w, Tensor *sum, Rms r, Tensor &y) {
  int64_t n = w.size(0), rows = n ? x.numel() / n : 0;
  Norm a{data(x), add ? data(*add) : nullptr, data(w), sum ? out(*sum) : nullptr, out(y), rows, n, n, float(r.eps), float(r.offset)};
  std::vector<Tensor> used{x, w, y};
  if (add) used.insert(used.end(), {*add, *sum});
  launch_norm(a, x, used);
}

void norm_columns(Tensor &x, int64_t from, const Tensor &w, Rms r) {
  int64_t n = w.size(0), wide = x.size(1);
  TORCH_CHECK(n % 8 == 0 && from % 8 == 0 && wide % 8 == 0 && from + n <= wide, "norm of ", n, " columns from ", from, " on, of ", wide);
  void *at = static_cast<char *>(out(x)) + from * int64_t(x.element_size());
  launch_norm({at, nullptr, data(w), nullptr, at, x.size(0), n, wide, float(r.eps), float(r.offset)}, x, {x, w});
}

void heads(const Tensor &x, const HeadRule &r, const Tensor &slots, Tensor &kpool, Tensor &vpool, Tensor &q) {
  int64_t rows = x.size(0), kv = kpool.size(2), dim = x.size(2), n = x.size(1) - 2 * kv, half = r.k.cos.defined() ? r.k.cos.size(1) : 0;
  Heads a{data(x), data(r.bias), data(r.q_norm), data(r.k_norm), data<float>(r.q.cos), data<float>(r.q.sin), data<float>(r.k.cos),
          data<float>(r.k.sin), data<int32_t>(r.positions), reinterpret_cast<const long long *>(data<int64_t>(slots)), out(q), out(kpool),
          out(vpool), rows, int(n), int(kv), int(dim), int(half), int(r.neighbours), float(r.eps), float(r.offset)};
  launch("heads", x, x.scalar_type(), {divide_up(rows * x.size(1), kDecodeThreads / 32)}, kDecodeThreads, &a,
         {x, r.bias, r.q_norm, r.k_norm, r.q.cos, r.q.sin, r.k.cos, r.k.sin, r.positions, slots, q, kpool, vpool});
}

namespace {
int64_t splits_of(int64_t longest, int64_t window) { return decode_splits(window > 0 ? std::min(window, longest) : longest); }
}  // namespace

int64_t decode_parts(const Tensor &q, int64_t n, int64_t longest, int64_t window) {
  int64_t splits = splits_of(longest, window);
  return splits > 1 ? n * q.size(1) * splits * (q.size(2) + 2) : 0;
}

void decode(const Tensor &q, const Tensor &kpool, const Tensor &vpool, const Decoding &d, Look look, Tensor &parts, Tensor &to) {
  int64_t heads = q.size(1), kv = kpool.size(2), dim = q.size(2), group = heads / kv;
  TORCH_CHECK(dim % 8 == 0 && dim <= kHeadSize, "heads of ", dim, " are not decoded by our kernel");
  int64_t n = d.rows.numel(), splits = splits_of(d.longest, look.window);
  TORCH_CHECK(parts.numel() >= decode_parts(q, n, d.longest, look.window), "decoding has ", parts.numel(), " numbers to work with");
  int lanes = 1;
  while (lanes * 8 < dim) lanes *= 2;
  // The heads that share a key are computed together, which reads it once, unless that makes too few
  // blocks for the device.
  int g = 1;
  while (g < group && g < kDecodeGroup) g *= 2;
  while (g > 1 && splits * kv * divide_up(group, g) * n < kManyBlocks) g /= 2;
  Decode a{data(q), data(kpool), data(vpool), out(to), static_cast<float *>(out(parts)), data<int32_t>(d.rows), data<int32_t>(d.contexts), data<int32_t>(d.width),
           data<int32_t>(d.table), data<float>(look.sinks), splits, look.window, int(heads), int(kv), int(dim), int(kpool.size(1)), lanes,
           float(look.scale_of(q) * 1.4426950408889634)};
  static const std::map<int, const char *> names{{1, "decode1"}, {2, "decode2"}, {4, "decode4"}};
  std::vector<Tensor> used{q, kpool, vpool, to, parts, d.rows, d.contexts, d.width, d.table, look.sinks};
  launch(names.at(g), q, q.scalar_type(), {splits, kv * divide_up(group, g), n}, kDecodeThreads, &a, used);
  if (splits > 1) launch("combine", q, q.scalar_type(), {heads, n}, kDecodeThreads, &a, used);
}

static_assert(sizeof(agt_sampling) == sizeof(Drawing), "the host's rows are the device's");

namespace {
int64_t runs_of(int64_t vocabulary) { return divide_up(vocabulary, kSampleBlock); }
}  // namespace

int64_t sample_parts(int64_t rows, int64_t vocabulary) { return rows * runs_of(vocabulary) * 4; }

void sample(const Tensor &z, const Tensor &rows, Tensor &parts, Tensor &drawn) {
  int64_t n = z.size(0), v = z.size(1), runs = runs_of(v);
  TORCH_CHECK(v <= int64_t(kSampleBlock) * kSampleBlocks, "a vocabulary of ", v);
  TORCH_CHECK(rows.nbytes() == n * sizeof(Drawing) && drawn.numel() == 2 * n, "sample: ", rows.sizes(), " and ", drawn.sizes(), " for ", n, " rows");
  TORCH_CHECK(parts.scalar_type() == at::kDouble && parts.numel() >= sample_parts(n, v), "sample has ", parts.numel(), " numbers to work with");
  float *p = static_cast<float *>(out(drawn));
  auto *work = static_cast<double *>(out(parts));
  auto piece = [&](int i) { return work + i * n * runs; };
  Sample a{data(z), static_cast<const Drawing *>(data(rows)), reinterpret_cast<int *>(p), p + n, piece(0), piece(1),
           reinterpret_cast<long long *>(piece(2)), reinterpret_cast<float *>(piece(3)), v, runs};
  const Grid each{divide_up(runs, kRowThreads / 32), n};
  const std::vector<Tensor> used{z, rows, parts, drawn};
  launch("sample_tops", z, z.scalar_type(), each, kRowThreads, &a, used);
  launch("sample_masses", z, z.scalar_type(), each, kRowThreads, &a, used);
  launch("sample", z, z.scalar_type(), {n}, kSampleThreads, &a, used);
}

void sample(const Tensor &logits, const agt_sampling *rows, int n, int32_t *ids, float *logprobs) {
  Tensor z = logits.contiguous();
  Tensor how = at::from_blob(const_cast<agt_sampling *>(rows), {int64_t(n * sizeof(agt_sampling))}, at::kByte).to(z.device());
  Tensor drawn = at::empty({2, n}, z.options().dtype(at::kFloat));  // read with one copy
  Tensor parts = at::empty({sample_parts(n, z.size(1))}, z.options().dtype(at::kDouble));
  sample(z, how, parts, drawn);
  Tensor host = drawn.to(at::kCPU);
  std::memcpy(ids, host.const_data_ptr(), n * sizeof(int32_t));
  std::memcpy(logprobs, host.const_data_ptr<float>() + n, n * sizeof(float));
}

void head(const Tensor &z, const Tensor &targets, const Tensor &scale, Tensor &lp, Tensor &entropy, Tensor &lse) {
  Head a{data(z), reinterpret_cast<const long long *>(data<int64_t>(targets)), data<float>(scale), static_cast<float *>(out(lp)),
         static_cast<float *>(out(entropy)), static_cast<float *>(out(lse)), z.size(1)};
  launch("head", z, z.scalar_type(), {z.size(0)}, kRowThreads, &a, {z, targets, scale, lp, entropy, lse});
}

void head_gradient(Tensor &z, const Tensor &targets, const Tensor &scale, const Tensor &lse, const Tensor &entropy, const Tensor &g,
                   const Tensor &ge) {
  HeadGradient a{out(z), reinterpret_cast<const long long *>(data<int64_t>(targets)), data<float>(scale), data<float>(lse),
                 data<float>(entropy), data<float>(g), data<float>(ge), z.size(1)};
  launch("head_gradient", z, z.scalar_type(), {z.size(0)}, kRowThreads, &a, {z, targets, scale, lse, entropy, g, ge});
}

void dequantise_blocks(const BlockFormat &f, const agt_bytes *parts, int n, Tensor &y) {
  const std::string kernel = std::string("dequantise_") + f.name;
  Tensor books = upload(f.codebooks ? codebooks() : nullptr, CODEBOOKS, y.device());
  Tensor held = at::empty({std::min(UPLOAD_PIECE, total(parts, n))}, y.options().dtype(at::kByte));  // the blocks of a piece
  auto *to = static_cast<char *>(out(y));
  for_each_piece(parts, n, f.bytes, y.device(), [&](const Tensor &piece, int64_t from) {
    Tensor blocks = held.narrow(0, 0, piece.numel());
    blocks.copy_(piece, /*non_blocking=*/true);
    const int64_t before = from / f.bytes * f.values * int64_t(y.element_size());
    DequantiseBlocks a{data<uint8_t>(blocks), static_cast<const signed char *>(data(books)), to + before, piece.numel() / f.bytes};
    launch(kernel.c_str(), y, y.scalar_type(), {divide_up(a.blocks, kDecodeThreads)}, kDecodeThreads, &a, {blocks, books, y});
  });
}

void dequantise_codes(const agt_codes &c, Tensor &y) {
  TORCH_CHECK(c.count * c.rows <= INT32_MAX && c.cols <= INT32_MAX, "codes of ", c.count, " times ", c.rows, " times ", c.cols);
  const at::Device on = y.device();
  Tensor bytes = upload(static_cast<const uint8_t *>(c.data), c.bytes, on), scales = upload(c.scales, c.n_scales, on),
         zeros = upload(c.zeros, c.n_zeros, on), groups = upload(c.groups, c.n_groups, on);
  DequantiseCodes a{data<uint8_t>(bytes), static_cast<const float *>(data(scales)), static_cast<const float *>(data(zeros)),
                    static_cast<const int *>(data(groups)), out(y), c.count, c.rows, c.cols, c.stride, c.across, c.high, c.wide,
                    c.transposed, c.bits, c.order, c.meaning, c.rounding};
  const int64_t tiles = c.count * divide_up(c.rows, kCodeTile) * divide_up(c.cols, kCodeTile);
  launch("dequantise_codes", y, y.scalar_type(), {tiles}, kRowThreads, &a, {bytes, scales, zeros, groups, y});
}

// ---- CUDA ------------------------------------------------------------------------------
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

bool loaded(int device) {
  std::lock_guard<std::mutex> g(lock);
  return modules.count(device) > 0;
}

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

}  // namespace

Graph::Graph(at::Device device, const std::function<void()> &work) : device_(device) {
  constexpr int relaxed = 2;  // what other threads do meanwhile is not looked at
  c10::DeviceGuard guard(device);
  c10::impl::VirtualGuardImpl impl(device.type());
  wait(device);
  // The stream of all is not recorded; this one is, with the workspace that cuBLAS has for it.
  static thread_local c10::Stream own = impl.getStreamFromGlobalPool(device);
  if (own.device() != device) own = impl.getStreamFromGlobalPool(device);
  c10::Stream was = impl.exchangeStream(own);
  void *graph = nullptr;
  try {
    work();
    wait(device);
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
    driver().check(driver().end_capture(own.native_handle(), &graph), "cuStreamEndCapture");
    driver().check(driver().instantiate(&run_, graph, 0), "cuGraphInstantiate");
  } catch (...) {
    impl.exchangeStream(was);
    if (graph) driver().destroy_graph(graph);
    throw;
  }
  impl.exchangeStream(was);
  driver().destroy_graph(graph);
}
Graph::~Graph() { driver().destroy_run(run_); }
void Graph::launch() const { driver().check(driver().run(run_, stream(device_)), "cuGraphLaunch"); }

void wait(at::Device device) {
  const c10::OptionalDeviceGuard guard(device);  // else CUDA begins on the thread's device, too
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

void set_test_device(Launch l) { on_test_device = l; }
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
    agt::gpu::on_cuda = agt::gpu::launch_cuda;
  });
}
}
