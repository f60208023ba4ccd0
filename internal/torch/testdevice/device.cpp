//go:build libtorch

// The device itself: memory, copies, and a fallback that computes on the CPU. After
// PyTorch's own example of a backend (torch_openreg).
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/ScopeExit.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <climits>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "device.h"
#include "testdevice.h"

namespace testdevice {

std::atomic<long> calls[6];

namespace {

// ---- memory that the host cannot touch ----------------------------------------------
struct Region {
  size_t bytes;
  int open;  // how many kernels use it now
};
std::mutex lock;
std::map<char *, Region> regions;
size_t held = 0, most = 0, peak = 0, limit = SIZE_MAX;  // bytes
std::string failure;  // of the next allocation; "": none

size_t rounded(size_t n) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  return (n + page - 1) / page * page;
}

void release(void *p) {
  std::lock_guard<std::mutex> g(lock);
  auto r = regions.find(static_cast<char *>(p));
  munmap(p, r->second.bytes);
  held -= r->second.bytes;
  regions.erase(r);
}

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t n) override {
    at::Device device(at::kPrivateUse1, 0);
    if (n == 0) return {nullptr, nullptr, nullptr, device};
    TORCH_CHECK(!recording, "memory is asked for in work that is recorded: ", n, " bytes");
    size_t bytes = rounded(n);
    std::lock_guard<std::mutex> g(lock);
    TORCH_CHECK(failure.empty(), std::exchange(failure, ""));
    TORCH_CHECK(held + bytes <= limit, "the device is out of memory: ", n, " bytes are asked for, ", held, " of ", limit, " are taken");
    void *p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(p != MAP_FAILED, "out of memory: ", n, " bytes");
    held += bytes;
    most = std::max(most, held);
    peak = std::max(peak, held);
    regions[static_cast<char *>(p)] = {bytes, 0};
    return {p, p, release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void *, const void *, std::size_t) const override { TORCH_CHECK(false, "a copy that does not go through the device"); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr &, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    std::lock_guard<std::mutex> g(lock);
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto all = size_t(c10::CachingAllocator::StatType::AGGREGATE);
    stats.allocated_bytes[all].peak = stats.reserved_bytes[all].peak = int64_t(peak);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    std::lock_guard<std::mutex> g(lock);
    size_t all = std::min(limit, size_t(1) << 32);
    return {all - std::min(all, held), all};
  }
};
Memory memory;

void open_region(const void *p, int by) {
  if (!p) return;
  std::lock_guard<std::mutex> g(lock);
  auto r = regions.upper_bound(static_cast<char *>(const_cast<void *>(p)));
  TORCH_INTERNAL_ASSERT(r != regions.begin(), "no memory of the device");
  --r;
  if ((by > 0 && r->second.open == 0) || (by < 0 && r->second.open == 1))
    mprotect(r->first, r->second.bytes, by > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  r->second.open += by;
}

}  // namespace

// ---- copies that nobody waits for -----------------------------------------------------------
// A copy from the host is made when an event behind it is waited for, or when memory of the device is used in another way. If its
// source changes before, the changed bytes are copied. A GPU may copy later still, behind work that it has begun.
namespace {
std::recursive_mutex copies_lock;  // while they are made, too: whoever reads waits
std::deque<std::pair<at::Tensor, at::Tensor>> waiting;  // from, to
long made = 0;                                          // copies since the process began
bool making = false;

// The first `until` copies since the process began.
void make_copies(long until = LONG_MAX) {
  std::lock_guard<std::recursive_mutex> g(copies_lock);
  if (making) return;  // a copy uses the device's memory, too
  const auto ended = c10::make_scope_exit([] { making = false; });
  making = true;
  while (!waiting.empty() && made < until) {
    const auto [from, to] = waiting.front();
    waiting.pop_front();
    made++;
    Open(to).host.copy_(from);
  }
}
}  // namespace

Open::Open(const at::Tensor &t) : p_(t.is_privateuseone() && t.numel() > 0 ? t.data_ptr() : nullptr) {
  make_copies();
  open_region(p_, 1);
  host = p_ ? at::from_blob(p_, t.sizes(), t.strides(), t.options().device(at::kCPU).requires_grad(false)) : t.is_privateuseone() ? at::empty(t.sizes(), t.options().device(at::kCPU)) : t;
}
at::Tensor placed(const at::Tensor &t) {
  at::Tensor out = at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kPrivateUse1));
  Open(out).host.copy_(t);
  return out;
}

Open::~Open() { open_region(p_, -1); }

namespace {

// ---- what makes and shows tensors ------------------------------------------------------
at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<at::Device>,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}
at::Tensor as_strided(const at::Tensor &x, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  auto at = offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(x, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), at);
}
at::Tensor view(const at::Tensor &x, c10::SymIntArrayRef size) { return at::native::view(x, C10_AS_INTARRAYREF_SLOW(size)); }
at::Tensor reshape_alias(const at::Tensor &x, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(x, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
const at::Tensor &resize_(const at::Tensor &x, c10::SymIntArrayRef size0, std::optional<at::MemoryFormat>) {
  auto size = C10_AS_INTARRAYREF_SLOW(size0);
  int64_t n = 1;
  for (auto d : size) n *= d;
  size_t bytes = size_t(n) * x.element_size();
  if (bytes > x.storage().nbytes()) {
    auto fresh = memory.allocate(bytes);
    TORCH_CHECK(x.numel() == 0, "a tensor of the device that has values does not grow");
    x.storage().set_data_ptr_noswap(std::move(fresh));
    x.storage().set_nbytes(bytes);
  }
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return x;
}

// ---- copies ------------------------------------------------------------------------------
at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool later) {
  if (recording) {
    TORCH_CHECK(from.is_privateuseone() && to.is_privateuseone(), "a copy from or to the host is in work that is recorded");
    recording->push_back([from = Place(from), to = Place(to)] { copy_from(from.at(), to.at(), false); });
    return to;
  }
  if (from.is_cpu() != to.is_cpu()) calls[3]++;
  if (from.is_cpu()) calls[5] += long(from.nbytes());
  if (later && from.is_cpu() && from.numel() > 0) {
    std::lock_guard<std::recursive_mutex> g(copies_lock);
    waiting.emplace_back(from, to);
    return to;
  }
  Open a(from), b(to);
  b.host.copy_(a.host);
  return to;
}
at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

// ---- everything else -----------------------------------------------------------------------
// The operation on the same memory, as CPU tensors of the same strides: libtorch's CPU
// kernels take other ways for other strides, and results are to be equal bit for bit.
struct Arguments {
  std::deque<Open> open;
  std::deque<std::pair<at::Tensor, at::Tensor>> pairs;  // on the host, on the device
  const c10::OperatorHandle &op;

  at::Tensor host(const at::Tensor &t) {
    if (!t.defined() || (t.is_cpu() && t.dim() == 0)) return t;
    TORCH_CHECK(t.is_privateuseone(), op.schema().name(), " was given a tensor ", t.sizes(), " on ", t.device(), " beside one on the device");
    open.emplace_back(t);
    pairs.emplace_back(open.back().host, t);
    return open.back().host;
  }
  at::Tensor device(const at::Tensor &t) {
    if (!t.defined()) return t;
    for (auto &[host, own] : pairs)
      if (t.is_same(host)) return own;
    return placed(t);
  }
  c10::IValue map(const c10::IValue &v, at::Tensor (Arguments::*f)(const at::Tensor &)) {
    if (v.isTensor()) return (this->*f)(v.toTensor());
    if (v.isDevice()) return c10::Device(at::kCPU);
    if (v.isTensorList()) {
      c10::List<at::Tensor> out;
      for (const at::Tensor &t : v.toTensorVector()) out.push_back((this->*f)(t));
      return out;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> out;
      for (const std::optional<at::Tensor> &t : v.toOptionalTensorVector()) out.push_back(t ? std::optional<at::Tensor>((this->*f)(*t)) : t);
      return out;
    }
    return v;
  }
};

// Whether an operation gives the host a number of the device: the program waits for it.
bool waits(const std::string &name) {
  for (const char *n : {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"})
    if (name == n) return true;
  return false;
}

// As the CUDA part has it for bfloat16 from compute capability 9.0 on. Elsewhere it copies the ends to the host.
at::Tensor grouped_mm(const at::Tensor &a, const at::Tensor &b, const std::optional<at::Tensor> &ends, const std::optional<at::Tensor> &bias,
                      std::optional<at::ScalarType> type) {
  Open x(a), y(b), e(*ends);
  return placed(at::_grouped_mm(x.host, y.host, e.host, bias, type));
}

}  // namespace

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  if (recording) return record_operation(op, stack);
  // autograd's thread of the device takes the number of threads that was set last, before its
  // first product and not in the middle of its first backward pass: libtorch has two such flags.
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  calls[2]++;
  if (waits(op.schema().name())) calls[3]++;
  Arguments args{{}, {}, op};
  for (size_t n = op.schema().arguments().size(), i = stack->size() - n; i < stack->size(); i++) (*stack)[i] = args.map((*stack)[i], &Arguments::host);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto &[host, own] : args.pairs)
    if (host.sizes() != own.sizes()) Open(own.resize_(host.sizes())).host.copy_(host);  // an empty result that the operation has sized
  for (size_t n = op.schema().returns().size(), i = stack->size() - n; i < stack->size(); i++) (*stack)[i] = args.map((*stack)[i], &Arguments::device);
}

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return c10::Device(at::kPrivateUse1, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(getDevice()); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  // An event is the number of copies before it, plus one.
  void record(void **event, const c10::Stream &, c10::DeviceIndex, c10::EventFlag) const override {
    std::lock_guard<std::recursive_mutex> g(copies_lock);
    *event = reinterpret_cast<void *>(made + long(waiting.size()) + 1);
  }
  void synchronizeEvent(void *event) const override { make_copies(reinterpret_cast<long>(event) - 1); }
  void synchronizeDevice(c10::DeviceIndex) const override { make_copies(); }
  void synchronizeStream(const c10::Stream &) const override { make_copies(); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

}  // namespace
}  // namespace testdevice

extern "C" long agt_test_device_calls(int what) { return testdevice::calls[what]; }

extern "C" void agt_test_device_fail(const char *text) {
  std::lock_guard<std::mutex> g(testdevice::lock);
  testdevice::failure = text;
}

extern "C" long agt_test_device_memory(long bytes) {
  std::lock_guard<std::mutex> g(testdevice::lock);
  long was = long(testdevice::most);
  testdevice::most = testdevice::held;
  testdevice::limit = bytes > 0 ? testdevice::held + size_t(bytes) : SIZE_MAX;
  return was - long(testdevice::held);
}

extern "C" void agt_test_device_load(void) {
  static bool once = [] {
    using namespace testdevice;
    c10::register_privateuse1_backend("testdevice");
    static Guard guard;
    static c10::impl::DeviceGuardImplRegistrar registrar(at::kPrivateUse1, &guard);
    c10::SetAllocator(at::kPrivateUse1, &memory);
    at::RegisterPrivateUse1HooksInterface(new Hooks());
    static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    aten.impl("empty.memory_format", empty);
    aten.impl("empty_strided", empty_strided);
    aten.impl("as_strided", as_strided);
    aten.impl("view", view);
    aten.impl("_reshape_alias", reshape_alias);
    aten.impl("resize_", resize_);
    aten.impl("_copy_from", copy_from);
    aten.impl("_copy_from_and_resize", copy_from_and_resize);
    aten.impl("_grouped_mm", grouped_mm);
    register_attention(aten);
    static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    return true;
  }();
  (void)once;
}
